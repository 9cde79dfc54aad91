"""The burn-in: stages of load over all nodes at once, each cut into jobs, judged as it goes, and gone on with later."""

import os
from pathlib import Path
from typing import cast

from pyinfra import logger
from pyinfra.api import Host
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host as current_host

from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import counted, printable, some
from shakedown.desired.models import Soak, Trials
from shakedown.gates import Gate
from shakedown.gates.nodes import no_kernel_fault
from shakedown.hosts import folded
from shakedown.jobs.launch import Event, Job, LaunchPlan
from shakedown.operations import smoke as smoke_operations
from shakedown.report import outcomes
from shakedown.runner import training
from shakedown.runner.jobs import holders
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, call_once, session
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord, desired_digest
from shakedown.runs.folder import own, run_ids
from shakedown.runs.judging import any_failed, judge_job, judge_soak, soak_failed, throttled
from shakedown.schedulers.interface import Allocation, Interrupted
from shakedown.state.findings import Verdict
from shakedown.trials import soak as burn
from shakedown.trials.plan import plan_between, schedule
from shakedown.trials.soak_judge import FAULT, LOAD_EDAC, NO_COUNTER, broken, gaps, soak_gates, unseen

FILE = "soak.json"  # of the run directory: what an earlier soak of the same command is found by
RECENT = 20  # runs that are looked at for one to go on with


def plan() -> bool:
    """Plan the soak, or find the one to go on with, and show it. Return whether trials come before the load."""
    current = session()
    if current.examination.state_of(current_host.name) is None:
        current.fail(current.host(current_host.name), "could not be examined")
    current.once("soak: plan", lambda: _begin(current))
    return bool(current.shared["soak: trials"])


def run() -> None:
    """Load the nodes, from stage to stage."""
    current = session()
    if current.record is None or not current.examination.state_of(current_host.name):
        return
    if not (holders.takes_jobs(True) and holders.leave_alone()):
        return
    where = holders.where_of(current, _wanted(current).via)
    smoke_operations.rounds(name="Soak", work=lambda *how: _load(current, *how), where=where)


def conclude() -> None:
    """Judge the soak and close its record; nodes with a failure fail."""
    if session().record is not None:
        call_once("Judge the soak", _judge_all, _passes)


def _wanted(current: Session) -> Soak:
    return next((desired.soak for desired in current.examination.desired.values() if desired.soak), None) or Soak()


def _begin(current: Session) -> None:
    request, wanted = invocation.soak, _wanted(current)
    desired, states = current.examination.desired, current.examination.states
    try:
        kept = _read(request.resume).soak if request.resume else None  # its time and stages, unless others are given
        seconds = kept.total_s if kept and not request.time else burn.seconds_of(request.time or wanted.time)
        record = burn.record_of(seconds, invocation.only or (kept.only if kept else wanted.only), desired, states)
        earlier = None if request.fresh else _earlier(current, record)
    except (OSError, ValueError) as error:
        raise PyinfraError(f"no soak: {error}") from error
    current.shared["soak: trials"] = burn.shares_of(seconds).trials and not record.only and earlier is None
    if earlier is not None:
        _go_on(current, *earlier)
        record = current.shared["soak: record"]  # type: ignore[assignment]
    _show_plan(current, record)
    if invocation.dry:
        progress(current.state).plan = "plan: no load was run"
        return
    if earlier is None:
        current.open_run().soak = record
    _, directory = current.begun
    directory.write(FILE, record.model_dump_json(indent=1) + "\n")


def _show_plan(current: Session, record: burn.SoakRecord) -> None:
    line = f"soak: {burn.length(record.total_s)} under load on {folded(record.nodes)}"
    line += f", in {counted(len(record.stages), 'stage')}"
    line += f"; {burn.length(record.done_s)} are done" if record.done_s else ""
    current.say(f"{line}; counters are read every {burn.catalogue().sample_s:g} s")
    if current.shared["soak: trials"]:
        current.say("  trials: before the load, not counted")
    for stage in record.stages:
        programs = dict.fromkeys(burn.catalogue().tool[name].program for name in burn.tools_of(record, stage.name))
        tools = ", ".join(programs) or burn.stage_of(stage.name).trial or "training"
        done = f", {burn.length(stage.done_s)} done" if stage.done_s else ""
        current.say(f"  {stage.name}: {burn.length(stage.wanted_s)}{done}: {burn.stage_of(stage.name).about} ({tools})")
    for name, why in record.left_out.items():
        current.say(f"  {name}: left out: {why}")


def _earlier(current: Session, record: burn.SoakRecord) -> tuple[Path, RunRecord] | None:
    """Return the run that this soak goes on with, asked for or the newest. Raises ValueError, OSError."""
    if invocation.soak.resume:
        path = invocation.soak.resume
        if not _same(current, earlier := _read(path), record):
            wrong = "it has no soak, or its inventory, nodes, desired state, time or stages differ"
            raise ValueError(f"{path}: {wrong}: begin a new one (--fresh)")
        return path, _resumable(path, earlier)
    for name in run_ids()[:RECENT]:
        path = runs_folder() / name
        try:
            if (path / FILE).is_file() and _same(current, earlier := _read(path), record):
                return path, _resumable(path, earlier)
        except _Over:
            return None
        except (OSError, ValueError):
            continue
    return None


class _Over(ValueError):
    """A soak cannot go on; the text has the reason."""


def _read(path: Path) -> RunRecord:
    own(path, "run.json", FILE)
    return RunDirectory(path).load()


def _same(current: Session, earlier: RunRecord, record: burn.SoakRecord) -> bool:
    kept, digest = earlier.soak, desired_digest(dict(current.examination.desired))
    if kept is None or (earlier.inventory, earlier.desired_digest) != (invocation.inventory, digest):
        return False
    return (kept.total_s, kept.only, kept.nodes) == (record.total_s, record.only, record.nodes)


def _resumable(path: Path, earlier: RunRecord) -> RunRecord:
    """Return the run. Raises _Over for one that is finished, or has found something."""
    kept = earlier.soak
    assert kept is not None
    if kept.over and earlier.finished_at:
        raise _Over(f"{path}: its soak is finished")
    if soak_failed(earlier):
        raise _Over(f"{path}: its soak has failed: repair what it names, then begin a new one (--fresh)")
    return earlier


def _go_on(current: Session, path: Path, record: RunRecord) -> None:
    """Take up a run; jobs of it whose controller was killed brought nothing home, and are done again."""
    directory = RunDirectory(path)
    evidence = directory.load_evidence()
    record.jobs = [job for job in record.jobs if job.logs]
    current.evidence.update({job.name: evidence[job.name] for job in record.jobs if job.name in evidence})
    record.soak = judge_soak(directory, record, current.evidence)
    record.gates, record.finished_at, record.verdict = [], None, Verdict.UNKNOWN
    current.shared["soak: record"] = record.soak
    current.say(f"soak: going on with {path} (--fresh begins a new one)")
    if not invocation.dry:
        current.directory, current.record = directory, record
        current.states_kept |= set(current.examination.states)


def _load(current: Session, where: Allocation, interrupted: Interrupted) -> None:
    """Go from stage to stage until all is done, something is found, or somebody ends it."""
    training.note_missing(current)
    if (looked := _job(current, where, interrupted, burn.LOOK, 0.0)) is not None:
        record = _judged(current)
        if blind := unseen(record, [stage.name for stage in record.stages]):
            current.say(f"soak: the verdict will be unknown at best: {NO_COUNTER}: {some(blind)}: {LOAD_EDAC}")
        for gap in gaps(record):
            current.say(f"soak: the verdict will be unknown at best: {gap}")
    tried: set[str] = set()  # stages that loaded no node, or not each: again and again would go on for ever
    fault = ""
    while looked is not None and not interrupted():
        record = _judged(current)
        stage = next((stage for stage in record.stages if stage.left_s and stage.name not in tried), None)
        if stage is None or broken(record) or (fault := _fault(current)):
            break
        seconds = min(stage.left_s, burn.catalogue().segment_s)
        share = f"{burn.length(seconds)} of {burn.length(stage.wanted_s)}"
        text = f"soak: {stage.name}: {share}, {burn.length(record.done_s)} done in all"
        current.say(text)
        if current.notes:
            current.notes.note("stage", text)
        job = _job(current, where, interrupted, stage.name, seconds)
        if job is not None and not burn.stage_of(stage.name).tools:  # a training or a trial, which reads no counters
            job = _job(current, where, interrupted, burn.LOOK, 0.0)
        if job is None:
            break
        if _judged(current).stages[[s.name for s in record.stages].index(stage.name)].done_s <= stage.done_s:
            tried.add(stage.name)
    ended = interrupted() or where.lost() or ""
    invocation.interrupted |= bool(ended)
    if current.record is not None and current.record.soak is not None:
        of_slurm = os.environ.get("SLURM_JOB_ID", "")  # there SIGTERM is Slurm's, which takes the node for another job
        by_slurm = f"preempted: {ended} in Slurm's job {printable(of_slurm, 40)}" if ended and of_slurm else ended
        ended = fault or by_slurm
        current.record.soak = current.record.soak.model_copy(update={"ended": ended})
    current.save()


def _fault(current: Session) -> str:
    """Return the fault that a node's kernel reported while a job ran; empty: none did."""
    record, directory = current.begun
    seen = cast(dict[str, str], current.shared.setdefault("soak: faults", {}))
    for job in record.jobs:
        if job.trials.startswith(f"{burn.KIND}/") and job.name not in seen:
            judged = judge_job(directory, job, current.evidence.get(job.name, Evidence())).gates
            bad = [gate for gate in judged if gate.name == no_kernel_fault.__name__ and gate.verdict == Verdict.FAIL]
            seen[job.name] = f"{FAULT}: {bad[0].evidence}" if bad else ""
    return next(filter(None, seen.values()), "")


def _job(current: Session, where: Allocation, interrupted: Interrupted, stage: str, seconds: float) -> JobRecord | None:
    """Run one job over all nodes, and keep it. Return None where it could not be run."""
    record, directory = current.begun
    number = sum(job.trials.startswith(f"{burn.KIND}/{stage}-") for job in record.jobs) + 1
    kind = f"{burn.KIND}/{stage}-{number}"

    def tell(event: Event) -> None:
        if event.kind in ("failure", "end", "device"):
            current.say(f"    {kind}: {event.text}")

    def make_plan() -> LaunchPlan:
        run_id = f"{record.run_id}-{stage}-{number}"
        plan = _plan(current, stage, seconds, run_id)
        record.jobs.append(JobRecord(trials=kind, plan=training.kept_plan(plan, current.examination)))
        current.save_soon(0)
        if stage == burn.SMOKE:
            job.secrets = training.secrets_of(plan, current.examination)
        return plan

    job = Job(make_plan, directory.path / kind, trials=kind, on_event=current.taking(kind, tell), quota=current.quota)
    current.jobs.append(job)
    smoke_operations.carry_out([job], where, interrupted)
    kept = training.keep(current, job)
    if job.result is not None and job.result.outcome == "interrupted":
        kept.ended_by = "interrupted"
    current.save()
    return kept if job.result is not None and job.result.outcome == "completed" else None


def _plan(current: Session, stage: str, seconds: float, run_id: str) -> LaunchPlan:
    record, _ = current.begun
    assert record.soak is not None
    nodes = [name for name in record.soak.nodes if name not in current.excluded]
    desired, states = current.examination.desired, current.examination.states
    if stage == burn.SMOKE:
        return training.plan_of(current.examination, run_id, current.excluded)
    if stage != burn.LOOK and burn.stage_of(stage).trial:
        trials = next((desired[name].trials for name in nodes if desired[name].trials), None) or Trials()
        own_part = {name: desired[name] for name in nodes}, {name: states[name] for name in nodes}
        rounds = schedule(len(nodes), run_id)
        return plan_between(*own_part, run_id, rounds, trials, [burn.stage_of(stage).trial])
    pairs = {node: (desired[node], states[node]) for node in nodes}
    return burn.plan_load(record.soak, stage, seconds, run_id, _wanted(current), pairs)


def _judged(current: Session) -> burn.SoakRecord:
    record, directory = current.begun
    current.save()  # the evidence has the logs now
    record.soak = judge_soak(directory, record, current.evidence)
    assert record.soak is not None
    return record.soak


def _passes(current: Session, host: Host) -> bool:
    gates = current.record.gates if current.record else []
    failed = [gate for gate in gates if gate.node == host.name and gate.verdict == Verdict.FAIL]
    for gate in failed:
        host.log_styled(f"{gate.name}: {gate.evidence}", fg="red", log_func=logger.error)
    return not failed


def _judge_all(current: Session) -> None:
    record, directory = current.begun
    training.note_missing(current)
    soak = _judged(current)
    made: list[Gate] = []
    of_jobs = []
    for job in record.jobs:
        if job.trials.startswith(f"{burn.KIND}/"):
            judgement = judge_job(directory, job, current.evidence[job.name])
            job.telemetry = judgement.telemetry
            of_jobs.append(judgement)
            made += judgement.gates
    made += soak_gates(soak, throttled(of_jobs), any_failed(record, made))
    record.gates = [*(gate for gate in record.gates if not gate.job.startswith(burn.KIND)), *made]
    if current.notes:
        current.notes.gates(made)
    shown = [gate for gate in made if gate.job == burn.KIND or gate.verdict != Verdict.OK]
    current.out.print()
    current.out.print(outcomes.gates_table(shown))
    directory.write(FILE, soak.model_dump_json(indent=1) + "\n")
    current.close()
