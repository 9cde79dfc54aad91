"""The smoke run's beginning and end: the plan from what the nodes are, and the judgement of what they did."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.examine import reread
from deploy.session import Session
from shakedown.examination import Examination
from shakedown.findings import Verdict
from shakedown.guard import invocation
from shakedown.report import terminal
from shakedown.runs import RunRecord, judge_run, new_run_id
from shakedown.smoke.judgement import Judgement, watched_counters
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.plan import PlanError, make_plan, render
from shakedown.smoke.progress import Progress
from shakedown.smoke.supervise import Job


def plan_of(examination: Examination, run_id: str | None = None, left_out: dict[str, str] | None = None) -> LaunchPlan:
    """The launch plan over the nodes that are fit to train, in inventory order. Raises PlanError with everything that
    cannot be derived or does not fit."""
    missing = dict(left_out or {})
    for node in examination.desired:
        blockers = examination.blockers(node)
        if blockers:
            missing.setdefault(node, f"{blockers[0].name}: {blockers[0].verdict}")
    smoke = {node: desired for node, desired in examination.desired.items() if desired.smoke is not None}
    states = {node: state for node, state in examination.states.items() if node not in missing}
    return make_plan(smoke, states, order=list(smoke), missing=missing, run_id=run_id or new_run_id())


def start_run(current: Session) -> None:
    """Make the job that the smoke operation runs. The plan is made when it starts, from the nodes as they are then."""
    if invocation.dry:
        current.job = Job(make_plan=lambda: plan_of(current.examination), log_dir=Path())
        _show_plan(current)
        return
    record = current.open_run()
    assert current.directory is not None
    current.job = Job(make_plan=lambda: _plan_now(current, record), log_dir=current.directory.logs, on_event=Progress())


def _show_plan(current: Session) -> None:
    try:
        current.out.print(render(plan_of(current.examination)), markup=False, highlight=False)
    except PlanError as error:
        current.out.print(f"as the nodes are now, the smoke run could not start:\n{error}", markup=False)


def _plan_now(current: Session, record: RunRecord) -> LaunchPlan:
    for host in current.hosts:
        if host not in current.state.active_hosts:
            current.left_out.setdefault(host.name, "failed before the smoke run")
    plan = plan_of(current.examination, record.run_id, current.left_out)
    record.plan = plan
    assert current.directory is not None
    current.directory.write("plan.txt", render(plan) + "\n")
    for node in plan.nodes:
        watched = watched_counters(
            current.examination.desired[node.name], current.examination.states[node.name], node.interface
        )
        current.evidence.counters_before[node.name] = watched
    current.save()
    assert current.job is not None
    current.job.secrets = secrets_of(plan, current.examination)
    return plan


def secrets_of(plan: LaunchPlan, examination: Examination) -> dict[str, str]:
    """The values of the variables that the plan only names: from the environment of the controller, or from the file
    of the desired state. Raises OSError if that cannot be read."""
    smoke = examination.desired[plan.driver].smoke
    values = {}
    for name in {name for node in plan.nodes for name in node.secrets}:
        if name in os.environ:
            values[name] = os.environ[name]
        elif name == "HF_TOKEN" and smoke is not None and smoke.hf_token_file:
            values[name] = Path(smoke.hf_token_file).expanduser().read_text("utf-8").strip()
    return values


def conclude_run(current: Session) -> None:
    """Read the counters again, apply all gates, keep the record, show the verdict."""
    record, job = current.record, current.job
    if record is None or job is None or job.result is None or record.plan is None:
        why = (job.error if job else None) or "no node was left to run it"
        current.out.print(f"smoke run: NOT STARTED: {why}", style="red", markup=False)
        return
    _counters_after(current, record.plan)
    current.evidence.exit_codes = {node.name: node.exit_code for node in job.result.nodes}
    current.evidence.stopped = None if job.result.completed else job.result.reason
    invocation.interrupted |= job.result.outcome == "interrupted"
    assert current.directory is not None
    current.save()
    judgement = judge_run(current.directory, record, current.evidence)
    record.gates, record.iterations, record.figures = judgement.gates, judgement.iterations, judgement.figures
    current.close()
    show_judgement(current, judgement)


def _counters_after(current: Session, plan: LaunchPlan) -> None:
    names = {node.name: node for node in plan.nodes}
    hosts = [host for host in current.hosts if host.name in names and host.connected]
    after = Examination({host.name: current.examination.desired[host.name] for host in hosts})
    reread(current.state, after, hosts)
    for name, state in after.states.items():
        current.evidence.counters_after[name] = watched_counters(after.desired[name], state, names[name].interface)


def show_judgement(current: Session, judgement: Judgement) -> None:
    """The gates, the figures, the verdict, and where the evidence is."""
    out, record = current.out, current.record
    assert record is not None and current.directory is not None
    out.print()
    out.print(terminal.gates_table(judgement.gates))
    out.print()
    if judgement.iterations:
        out.print(terminal.figures_table(judgement.figures, record.plan.expect if record.plan else {}))
        out.print()
    if current.job and current.job.result and current.job.result.first_failure:
        out.print(f"first: {current.job.result.first_failure.text}", style="red", markup=False)
    for name, why in current.left_out.items():
        out.print(f"{name} took no part: {why}", markup=False)
    show_notes(current)
    passed = judgement.verdict == Verdict.OK
    out.print(f"smoke run: {'[green]PASSED[/]' if passed else '[red]FAILED[/]'}, {len(judgement.gates)} gates")
    out.print(terminal.findings_summary(current.examination.all_findings(), len(current.hosts)))
    out.print(f"evidence: {current.directory.path}", highlight=False)


def show_notes(current: Session) -> None:
    """What a person should know of the nodes after a job: what is left there, logs that could not be fetched."""
    for node in current.job.result.nodes if current.job and current.job.result else []:
        for note in node.notes:
            current.out.print(f"{node.name}: {note}", markup=False, highlight=False)
