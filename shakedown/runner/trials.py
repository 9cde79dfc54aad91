"""The trials' stage: each node alone, then the rounds between nodes, judged together and kept in the record."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyinfra import logger
from pyinfra.api import Host
from pyinfra.context import host as current_host

from shakedown.common.text import counted
from shakedown.desired.models import Trials
from shakedown.gates import Gate
from shakedown.gates import verdict as verdict_of
from shakedown.jobs.launch import Event, Job, LaunchPlan, job_name
from shakedown.ledger.compared import Wanted, past_of, usual_ledger
from shakedown.operations import smoke as smoke_operations
from shakedown.report import outcomes
from shakedown.report import trials as shown
from shakedown.runner import training
from shakedown.runner.jobs import holders
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, call_once, session
from shakedown.runs.directory import JobRecord
from shakedown.runs.judging import judge_job, judge_trials, past_by_node
from shakedown.state.findings import Verdict
from shakedown.trials import plan
from shakedown.trials.gates import gates, named_nodes
from shakedown.trials.judge import judge_record, suspects, to_confirm
from shakedown.trials.models import AGAIN, NODES, NODES_AGAIN, PAIRS, Limits, TrialsRecord


@dataclass
class _Stage:
    wanted: Trials
    names: list[str]
    began: float  # by the controller's clock
    alone: list[Job] = field(default_factory=list)
    between: list[Job] = field(default_factory=list)
    alone_again: list[Job] = field(default_factory=list)  # a fresh run of what was named: filled when all are over
    between_again: list[Job] = field(default_factory=list)
    names_again: dict[str, list[str]] = field(default_factory=dict)  # kind of job -> trials
    nodes_again: list[str] = field(default_factory=list)  # of the fresh rounds

    @property
    def jobs(self) -> list[Job]:
        return [*self.alone, *self.between, *self.alone_again, *self.between_again]


def measure(always: bool = False) -> None:
    """Measure nodes, alone and in pairs, where there is a section `trials`, or `always`; all that answered."""
    current = session()
    name = current_host.name
    if current.examination.state_of(name) is None:
        if always:
            current.fail(current.host(name), "could not be examined", current.examination.blockers(name))
        return
    if not (always or any(desired.trials for desired in current.examination.desired.values())):
        return
    if always and not (holders.takes_jobs(True) and holders.leave_alone()):
        return
    current.once("trials: plan", lambda: _begin(current))
    stage = _stage(current)
    where = holders.where_of(current, stage.wanted.via)
    if stage.alone:
        smoke_operations.run(name="Trials, each node alone", jobs=stage.alone, where=where)
    if stage.between:
        smoke_operations.run(name="Trials between nodes", jobs=stage.between, where=where)
    call_once("Choose what is measured again", _measure_again)
    if stage.alone:
        smoke_operations.run(name="Fresh trials of what stood out, beside others", jobs=stage.alone_again, where=where)
    if stage.between:
        smoke_operations.run(name="Fresh trials between nodes that stood out", jobs=stage.between_again, where=where)
    call_once("Judge the trials", _judge_all, _passes)


def _stage(current: Session) -> _Stage:
    stage = current.shared["trials"]
    assert isinstance(stage, _Stage)
    return stage


def _begin(current: Session) -> None:
    """Say what is to come, and make the jobs. Their plans are made when they start."""
    desired = current.examination.desired
    wanted = next((state.trials for state in desired.values() if state.trials), None) or Trials()
    stage = _Stage(wanted, plan.chosen_trials(wanted, invocation.only), began=time.monotonic())
    current.shared["trials"] = stage
    nodes = list(current.examination.states)
    pairs = plan.between_nodes(stage.names)
    number = len(plan.schedule(len(nodes), "")) if pairs else 0
    rails = plan.count_rails(stage.names, list(desired.values()), list(current.examination.states.values()))
    seconds = plan.expected_seconds(stage.names, wanted.repetitions, number, rails)
    line = f"trials: {', '.join(stage.names)} on {counted(len(nodes), 'node')}"
    line += f", {counted(wanted.repetitions, 'repetition')}"
    line += f", {counted(number, 'round')} of pairs" if number else ""
    line += f" over {counted(max(rails.values()), 'rail')}" if number and max(rails.values()) > 1 else ""
    current.say(f"{line}: about {seconds:.0f} s")
    if not invocation.dry:
        record = current.open_run()
        record.trials = _record(current, stage, number)
        why = "the run ended before its trials were judged"
        record.gates.append(Gate(name=NODES, verdict=Verdict.UNKNOWN, wanted="judged", evidence=why, job=NODES))
    if len(pairs) < len(stage.names):
        stage.alone = [_job(current, stage, NODES, node) for node in nodes]
    if pairs and len(nodes) > 1:
        stage.between = [_job(current, stage, PAIRS, None)]
    current.jobs += [*stage.alone, *stage.between]
    if invocation.dry:
        _show_plans(current, stage)


def _record(current: Session, stage: _Stage, number: int) -> TrialsRecord:
    states, desired = current.examination.states, current.examination.desired
    wanted = stage.wanted
    sections = list(desired.values())
    most = plan.ceilings(sections, plan.count_rails(stage.names, sections, list(states.values())))
    return TrialsRecord(
        asked=stage.names,
        repetitions=wanted.repetitions,
        confirm=True,
        limits=Limits(slower=wanted.slower, floors=wanted.floors, ceilings=most, blocks=wanted.racks),
        groups={node: desired[node].gpu.profile for node in states},
        rounds=number,
    )


def _show_plans(current: Session, stage: _Stage) -> None:
    for job in [*stage.alone, *stage.between]:
        try:
            plan = _plan(current, stage, job)
        except ValueError as error:
            current.say(f"{job.name}: {error}")
            continue
        for node in training.shown(plan, current.examination).nodes:
            current.say(f"{job.name} on {node.name}: {node.shell()}")


def _job(current: Session, stage: _Stage, kind: str, node: str | None) -> Job:
    def tell(event: Event) -> None:
        if event.kind != "iteration":
            current.say(f"    {job.name}: {event.text}")

    logs = current.directory.path / kind if current.directory else Path()
    taking = current.taking(job_name(node, kind), tell)
    job = Job(lambda: _plan_now(current, stage, job), logs, node, kind, on_event=taking, quota=current.quota)
    return job


def _plan(current: Session, stage: _Stage, job: Job) -> LaunchPlan:
    states, desired = current.examination.states, current.examination.desired
    run_id = current.record.run_id if current.record else "dry"
    names = stage.names_again.get(job.trials, stage.names)
    if job.node is not None:
        number = list(states).index(job.node) + 1
        mine = desired[job.node], states[job.node]
        return plan.plan_alone(*mine, job.node, f"{run_id}-{job.trials}-{number}", names, stage.wanted)
    there = [node for node in (stage.nodes_again if job.trials == AGAIN else states) if node not in current.excluded]
    if len(there) < 2:
        raise ValueError(f"{len(there)} node is left: a pair needs two")
    taken = plan.schedule(len(there), f"{run_id}-{job.trials}" if job.trials == AGAIN else run_id)
    own = {node: desired[node] for node in there}, {node: states[node] for node in there}
    return plan.plan_between(*own, f"{run_id}-{job.trials}", taken, stage.wanted, names)


def _measure_again(current: Session) -> None:
    """Measure again, in a fresh run, what the first run names, beside others that it does not name."""
    (record, directory), stage = current.begun, _stage(current)
    training.note_missing(current)
    _keep(current, stage)
    current.save()
    so_far = judge_trials(directory, record, current.evidence)
    if so_far is None or invocation.interrupted:
        return
    # Nothing is confirmed yet: these are the names of the first run alone.
    so_far = judge_record(so_far.model_copy(update={"confirm": False}), past_by_node(record, current.evidence))
    _again_alone(current, stage, so_far)
    _again_between(current, stage, so_far)
    current.jobs += [*stage.alone_again, *stage.between_again]


def _again_alone(current: Session, stage: _Stage, so_far: TrialsRecord) -> None:
    """Choose the named nodes, and of each kind of them as many others as they need for peers."""
    named = {node: names for node, names in to_confirm(so_far).items() if node not in current.excluded}
    if not named:
        return
    chosen = set(named)
    for group in {so_far.groups.get(node, "") for node in named}:
        others = [node for node, of_node in so_far.groups.items() if of_node == group and node not in named]
        others = [node for node in others if node not in current.excluded]
        count = sum(so_far.groups.get(node, "") == group for node in named)
        draw = random.Random(current.record.run_id if current.record else "")
        chosen |= set(draw.sample(others, min(plan.peers_for(count), len(others))))
    wanted = {name for names in named.values() for name in names}
    stage.names_again[NODES_AGAIN] = [name for name in stage.names if name in wanted]
    stage.alone_again += [_job(current, stage, NODES_AGAIN, node) for node in so_far.groups if node in chosen]
    line = f"{', '.join(named)} again in a fresh run of {', '.join(stage.names_again[NODES_AGAIN])}"
    others = [node for node in so_far.groups if node in chosen and node not in named]
    line += f", beside {', '.join(others)}" if others else ""
    current.say(f"trials: {line}")


def _again_between(current: Session, stage: _Stage, so_far: TrialsRecord) -> None:
    """Measure the pairs that stood out again, in rounds of their own."""
    odd = suspects(so_far)
    if not (places := sorted({place for places in odd.values() for place in places})):
        return
    count, run_id = len(so_far.places), current.record.run_id if current.record else ""
    had = [pair for pairs in plan.schedule(count, run_id) for pair in pairs]
    stage.nodes_again = [so_far.places[place] for place in plan.beside(places, count, had, run_id)]
    stage.names_again[AGAIN] = [name for name in stage.names if name in odd]
    number = len(plan.schedule(len(stage.nodes_again), ""))
    names = ", ".join(so_far.places[place] for place in places)
    line = f"trials: {counted(number, 'fresh round')} of {', '.join(stage.names_again[AGAIN])} with {names} and "
    line += counted(len(stage.nodes_again) - len(places), "other node")
    current.say(line)
    stage.between_again.append(_job(current, stage, AGAIN, None))


def _keep(current: Session, stage: _Stage) -> None:
    record, _ = current.begun
    gone = {job.node for job in stage.alone if not job.result and not job.error and job.node in current.excluded}
    for job in stage.jobs:
        if job.node not in gone or job.node is None:
            training.keep(current, job)
    if gone and record.trials is not None:
        groups = {node: group for node, group in record.trials.groups.items() if node not in gone}
        record.trials = record.trials.model_copy(update={"groups": groups})
    book, states = usual_ledger(), current.examination.states
    for kept in record.jobs:
        if kept.trials == NODES and kept.node is not None and current.evidence[kept.name].past is None:
            past = past_of(kept, states, record.run_id, Wanted(judge=True), book)
            current.evidence[kept.name].past = past


def _plan_now(current: Session, stage: _Stage, job: Job) -> LaunchPlan:
    if invocation.interrupted:
        raise RuntimeError("the run was stopped before this job began")
    training.note_missing(current)
    plan = _plan(current, stage, job)
    record, _ = current.begun
    if job.node is None and record.trials is not None:
        places = "places_again" if job.trials == AGAIN else "places"
        record.trials = record.trials.model_copy(update={places: [node.name for node in plan.nodes]})
    kept = JobRecord(node=job.node, trials=job.trials, plan=training.shown(plan, current.examination))
    record.jobs.append(kept)
    current.save_soon(0)
    return plan


def _passes(current: Session, host: Host) -> bool:
    """Fail a named node; the others go on."""
    record = current.record
    own = [gate for gate in record.gates if shown.of_trials(gate) and gate.node == host.name] if record else []
    wrong = [gate for gate in own if gate.verdict != Verdict.OK]
    for gate in wrong:
        host.log_styled(f"trial {gate.name}: {gate.evidence}", fg="red", log_func=logger.error)
    trains = any(desired.smoke for desired in current.examination.desired.values())
    return not wrong or (trains and not _stage(current).wanted.exclude)  # a named node may train all the same


def _judge_all(current: Session) -> None:
    (record, directory), stage = current.begun, _stage(current)
    training.note_missing(current)
    _keep(current, stage)
    current.save()  # the evidence has the logs now
    judged = [judge_job(directory, kept, current.evidence[kept.name]) for kept in record.jobs if kept.trials]
    made = [gate for judgement in judged for gate in judgement.gates]
    record.trials = judge_trials(directory, record, current.evidence)
    assert record.trials is not None
    made += gates(record.trials, record.inventory)
    record.gates = [*shown.of_training(record.gates), *made]
    if stage.wanted.exclude:
        for node, why in named_nodes(record.trials).items():
            current.exclude(node, why, Verdict.FAIL)
    current.save()
    _show(current, record.trials, made)


def _show(current: Session, record: TrialsRecord, judged: Sequence[Gate]) -> None:
    out = current.out
    for part in shown.tables(record):
        out.print(outcomes.constrained(part))
    if shown_gates := [gate for gate in judged if gate.name in record.asked or gate.verdict != Verdict.OK]:
        out.print()
        out.print(outcomes.constrained(outcomes.gates_table(shown_gates)))
    took = f"took {time.monotonic() - _stage(current).began:.0f} s"
    out.print(f"trials: {outcomes.outcome(verdict_of(judged))}, {counted(len(judged), 'gate')}, {took}")


def conclude() -> None:
    """Close the record of a run that has trials and nothing after them."""
    if session().examination.states:
        call_once("Close the record", Session.close, lambda current, host: current.record is not None)
