"""The search for bad nodes of an inventory: its problem, how its groups train, what the run keeps."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyinfra import logger
from pyinfra.api import Host
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host as current_host

from shakedown.common.text import counted, duration
from shakedown.desired.models import TOGETHER
from shakedown.isolation import NEEDS_NUMPY, hints
from shakedown.isolation.trainings import judge_training, plan_group
from shakedown.isolation.tree import lines, round_line, to_resume, verdict_of
from shakedown.jobs.launch import Job, LaunchPlan
from shakedown.operations import smoke as smoke_operations
from shakedown.runner.jobs.holders import via_of, where_of
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, call_once, session
from shakedown.runner.training import judge_jobs, secrets_of
from shakedown.runs.directory import RunDirectory
from shakedown.runs.isolation import Group, Hint, Isolation, Problem, Training, short
from shakedown.schedulers.interface import Allocation, Interrupted
from shakedown.state.findings import Verdict

try:
    from shakedown.isolation.strategy import TRAINING_S, estimate, most_rounds, search
except ModuleNotFoundError as error:  # numpy is optional
    raise PyinfraError(NEEDS_NUMPY) from error


def run() -> None:
    """Search: as `shakedown isolate` was asked to, or anew over all nodes that are fit."""
    current = session()
    if current.examination.desired[current_host.name].smoke is None:
        return
    current.once("isolation: begin", lambda: _begin(current))
    if not invocation.dry:
        where = where_of(current, invocation.search.via or via_of(current))
        smoke_operations.rounds(name="Search for bad nodes", work=partial(_search, current), where=where)


def after_failure() -> None:
    """Search where the desired state asks for it and the training over all nodes has failed."""
    current = session()
    smoke = current.examination.desired[current_host.name].smoke
    if smoke is None or not smoke.isolate:
        return
    if invocation.dry:
        current.once("isolation: begin", lambda: _tell(current, _problem(current, failed=True)))
    else:
        where = where_of(current, via_of(current))
        work = partial(_search_if_failed, current)
        smoke_operations.rounds(name="Search for bad nodes", work=work, where=where)


def conclude() -> None:
    """Close the record of a run that was a search; hosts that are suspect, or undecided, fail."""
    current = session()
    if current.examination.desired[current_host.name].smoke is not None:
        call_once("Judge the search", _close, _passes)


def _begin(current: Session) -> None:
    request = invocation.search
    if request.resume:
        _resume(current, request.resume)
        return
    earlier, failed = [], False
    if request.run is not None:
        directory = RunDirectory(request.run)
        record, ended = directory.load(), [run.stopped or "" for run in directory.load_evidence().values()]
        names = {node.name for node in record.nodes}
        stopped = [(node, why) for why in ended if (node := why.partition(":")[0]) in names]
        earlier = list(hints.from_run(record, stopped))
        failed = any(gate.verdict == Verdict.FAIL and gate.job == TOGETHER for gate in record.gates)
    problem = _problem(current, failed, earlier)
    _tell(current, problem)
    if not invocation.dry:
        record = current.open_run()
        _keep(current, Isolation(run_id=record.run_id, inventory=invocation.inventory, problem=problem))


def _problem(current: Session, failed: bool, more: Sequence[Hint] = ()) -> Problem:
    """Over all nodes that are fit to train; the others are named, with why."""
    examination, request = current.examination, invocation.search
    names = [name for name, desired in examination.desired.items() if desired.smoke is not None]
    unfit: dict[str, str] = {}
    for name in names:
        blockers = examination.blockers(name)
        if name in current.excluded or name not in examination.states or blockers:
            unfit[name] = current.excluded.get(name) or ", ".join(f.name for f in blockers) or "it did not answer"
    nodes = [name for name in names if name not in unfit]
    found = [*hints.from_findings(examination.all_findings()), *more]
    return Problem(
        nodes=nodes,
        racks={name: group for name in nodes if (group := examination.groups.get(name, ""))},
        hints=hints.strongest(found, nodes),
        unfit={name: short(why) for name, why in unfit.items()},
        failed=failed,
        rounds=request.rounds,
        seconds=request.seconds,
    )


def _tell(current: Session, problem: Problem) -> None:
    """Show the cost of the search, and what already speaks against which node."""
    texts = [*estimate(problem, TRAINING_S).lines(), *(f"hint: {hint}" for hint in problem.hints)]
    texts += [f"{name} is not searched: {why}" for name, why in problem.unfit.items()]
    for text in ("search for bad nodes:", *(f"  {text}" for text in texts)):
        current.say(text)


def _resume(current: Session, path: Path) -> None:
    """Go on in the directory of a search that was not finished. Raises PyinfraError where that cannot be."""
    directory = RunDirectory(path)
    try:
        record, isolation = directory.load(), to_resume(path)
    except (OSError, ValueError) as error:
        raise PyinfraError(f"no search to go on with: {error}") from error
    if gone := [name for name in isolation.problem.nodes if name not in current.examination.states]:
        raise PyinfraError(f"{path}: not among the nodes of this inventory that answer: {', '.join(gone)}")
    request = invocation.search
    isolation.result = None
    played = len(isolation.rounds)
    rounds = request.rounds or most_rounds(len(isolation.problem.nodes))
    seconds = None if request.seconds is None else isolation.seconds + request.seconds
    limits = {"rounds": played + rounds, "seconds": seconds, "again": played}
    isolation.problem = isolation.problem.model_copy(update=limits)
    more = f"at most {rounds} more" + (f" and {duration(request.seconds)}" if request.seconds else "")
    current.say(f"going on with {path} after {counted(played, 'round')}; {more}")
    if not invocation.dry:
        record.finished_at, record.verdict = None, Verdict.UNKNOWN
        current.directory, current.record = directory, record
        _keep(current, isolation)


def _keep(current: Session, isolation: Isolation) -> None:
    """Keep the search in the record, and in a file of its own for who resumes it."""
    record, directory = current.begun
    record.isolation = isolation
    directory.write("isolation.json", isolation.model_dump_json(indent=1) + "\n")


def _search_if_failed(current: Session, where: Allocation, interrupted: Interrupted) -> None:
    together = [job for job in current.jobs if job.node is None and not job.trials]
    if current.record is None or not together:
        return
    judge_jobs(current)
    record = current.record
    failed = [gate for gate in record.gates if gate.job == TOGETHER and gate.verdict == Verdict.FAIL]
    if invocation.interrupted or not failed:
        return
    (job,) = together
    if job.result is None or job.result.started_at is None:
        current.say(f"no search: the training did not begin ({job.error or 'not started'})")
        return
    first = job.result.first_failure
    stopped = [(first.node, first.text)] if first is not None and first.node is not None else []
    problem = _problem(current, True, list(hints.from_run(record, stopped)))
    _tell(current, problem)
    _keep(current, Isolation(run_id=record.run_id, inventory=invocation.inventory, problem=problem))
    _search(current, where, interrupted)
    if record.isolation is not None:
        show(current, record.isolation)


def _search(current: Session, where: Allocation, interrupted: Interrupted) -> None:
    """From round to round. What goes wrong ends the search, and not the host that drives it."""
    record, _ = current.begun
    if (isolation := record.isolation) is None:
        return
    if not isolation.rounds:
        isolation.problem = _as_they_are(current, isolation.problem)
    try:
        where.allocate(isolation.problem.nodes, current.say, interrupted)
    except Exception as error:
        current.say(f"no search: {error}")
        return
    train = partial(_train, current, where, interrupted, len(isolation.problem.nodes))
    shown = len(isolation.rounds)

    def keep(state: Isolation) -> None:
        nonlocal shown
        _keep(current, state)
        for trainings in state.rounds[shown:]:
            for line in round_line(trainings):
                current.say(line, soft_wrap=True)
        shown = len(state.rounds)

    ended = search(isolation, train, keep, interrupted)
    invocation.interrupted |= interrupted() is not None
    record.isolation = ended
    current.save()


def _as_they_are(current: Session, problem: Problem) -> Problem:
    """Return the problem after what came before the first round: trials against nodes, hosts that failed."""
    active = {host.name for host in current.state.active_hosts}
    lost = [name for name in problem.nodes if name in current.excluded or name not in active]
    unfit = {name: short(current.excluded.get(name) or "it failed before the search") for name in lost}
    nodes = [name for name in problem.nodes if name not in unfit]
    trials = current.record.trials if current.record is not None else None
    found = [*problem.hints, *(hints.from_trials(trials) if trials is not None else ())]
    changed = {"nodes": nodes, "unfit": problem.unfit | unfit, "hints": hints.strongest(found, nodes)}
    return problem.model_copy(update=changed)


def _train(
    current: Session, where: Allocation, interrupted: Interrupted, nodes: int, groups: Sequence[Group]
) -> list[Training]:
    """Train the groups of a round in a search over `nodes` nodes: each is a job of its own, all at once."""
    _, directory = current.begun
    began = datetime.now(UTC)
    jobs = [_job(current, group, nodes) for group in groups]
    smoke_operations.carry_out(jobs, where, interrupted)
    found = []
    for group, job in zip(groups, jobs, strict=True):
        training = judge_training(group, job, directory)
        ended = job.result.finished_at if job.result is not None else datetime.now(UTC)
        found.append(training.model_copy(update={"seconds": max((ended - began).total_seconds(), 0.0)}))
    return found


def _job(current: Session, group: Group, nodes: int) -> Job:
    record, directory = current.begun
    name = f"{group.id}-{secrets.token_hex(2)}"
    examination = current.examination

    def make_plan() -> LaunchPlan:
        plan = plan_group(group, examination.desired, examination.states, nodes, f"{record.run_id}-{name}")
        job.secrets = secrets_of(plan, examination)
        return plan

    job = Job(make_plan, log_dir=directory.isolation / name, quota=current.quota)
    return job


def show(current: Session, isolation: Isolation) -> None:
    """Show the tree and its result."""
    current.out.print()
    for line in lines(isolation):
        current.say(line, soft_wrap=True)


def _passes(current: Session, host: Host) -> bool:
    result = current.record.isolation.result if current.record and current.record.isolation else None
    verdict, why = verdict_of(host.name, result)
    if verdict == Verdict.OK:
        return True
    current.run_of(host.name).verdict = current.run_of(host.name).verdict or verdict
    host.log_styled(f"search for bad nodes: {why}", fg="red", log_func=logger.error)
    return False


def _close(current: Session) -> None:
    if current.record is not None and current.record.isolation is not None:
        show(current, current.record.isolation)
    current.close()
