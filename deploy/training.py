"""The smoke run's beginning and end: its jobs, each planned from what the nodes are, and judged by what they did."""

from __future__ import annotations

import os
from collections.abc import Sequence

from deploy.examine import reread
from deploy.session import Session
from shakedown.examination import Examination
from shakedown.findings import Verdict
from shakedown.guard import invocation
from shakedown.report import terminal
from shakedown.runs import JobRecord, RunRecord, judge_job, new_run_id
from shakedown.secret_file import read_secret
from shakedown.smoke.gates import verdict as verdict_of
from shakedown.smoke.job import Job
from shakedown.smoke.judgement import watched_counters
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.plan import PlanError, make_plan, render
from shakedown.smoke.progress import Progress


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
    """Make the jobs that the smoke operation runs. Plans are made when they start, from the nodes as they are then."""
    if invocation.dry:
        _show_plan(current)
        return
    record = current.open_run()
    assert current.directory is not None
    job = Job(make_plan=lambda: _plan_now(current, record, job), log_dir=current.directory.logs, on_event=Progress())
    current.jobs = [job]


def _show_plan(current: Session) -> None:
    try:
        current.out.print(render(plan_of(current.examination)), markup=False, highlight=False)
    except PlanError as error:
        current.out.print(f"as the nodes are now, the smoke run could not start:\n{error}", markup=False)


def _plan_now(current: Session, record: RunRecord, job: Job) -> LaunchPlan:
    for host in current.hosts:
        if host not in current.state.active_hosts:
            current.left_out.setdefault(host.name, "failed before the smoke run")
    plan = plan_of(current.examination, record.run_id, current.left_out)
    record.jobs.append(JobRecord(node=job.node, plan=plan))
    assert current.directory is not None
    current.directory.write("plan.txt", "\n".join(render(each.plan) for each in record.jobs if each.plan) + "\n")
    evidence = current.evidence[job.name]
    for node in plan.nodes:
        evidence.counters_before[node.name] = watched_counters(
            current.examination.desired[node.name], current.examination.states[node.name], node.interface
        )
    current.save()
    job.secrets = secrets_of(plan, current.examination)
    return plan


def secrets_of(plan: LaunchPlan, examination: Examination) -> dict[str, str]:
    """The values of the variables that the plan only names: from the environment of the controller, or from the file
    of the desired state. Raises SecretError where that is none."""
    smoke = examination.desired[plan.driver].smoke
    values = {}
    for name in {name for node in plan.nodes for name in node.secrets}:
        if name in os.environ:
            values[name] = os.environ[name]
        elif name == "HF_TOKEN" and smoke is not None and smoke.hf_token_file:
            values[name] = read_secret(smoke.hf_token_file).strip()
    return values


def conclude_run(current: Session) -> None:
    """Judge the jobs, keep the record, show the verdict."""
    if current.record is None:
        current.out.print("smoke run: NOT STARTED: no node was left to run it", style="red")
        return
    judge_jobs(current, current.jobs)
    current.close()
    show_judgement(current)


def judge_jobs(current: Session, jobs: Sequence[Job]) -> None:
    """Read the counters of the jobs' nodes again, and apply all gates to each job. A job of a node that was left out
    before has nothing to be judged."""
    record, directory = current.record, current.directory
    assert record is not None and directory is not None
    begun = [job for job in jobs if job.result or job.error or job.node not in current.left_out]
    _counters_after(current, begun)
    for job in begun:
        kept = record.job(job.name)
        if kept not in record.jobs:
            why = job.error or "no node was left to run it"
            kept = JobRecord(node=job.node, error=why)
            record.jobs.append(kept)
            current.out.print(f"smoke run: NOT STARTED: {why}", style="red", markup=False)
        evidence = current.evidence[job.name]
        if job.result is None:
            evidence.stopped = job.error or "the run ended before the job did"
        else:
            kept.logs = {node.name: [current.relative(path) for path in node.logs] for node in job.result.nodes}
            evidence.exit_codes = {node.name: node.exit_code for node in job.result.nodes}
            evidence.stopped = None if job.result.completed else job.result.reason
            invocation.interrupted |= job.result.outcome == "interrupted"
        current.save()
        judgement = judge_job(directory, kept, evidence)
        record.gates += judgement.gates
        kept.iterations, kept.figures = judgement.iterations, judgement.figures
    current.save()


def _counters_after(current: Session, jobs: Sequence[Job]) -> None:
    planned = [(job, node) for job in jobs if job.plan for node in job.plan.nodes]
    names = {node.name for _, node in planned}
    hosts = [host for host in current.hosts if host.name in names and host.connected]
    after = Examination({host.name: current.examination.desired[host.name] for host in hosts})
    reread(current.state, after, hosts)
    for job, node in planned:
        state = after.states.get(node.name)
        if state is not None:
            watched = watched_counters(after.desired[node.name], state, node.interface)
            current.evidence[job.name].counters_after[node.name] = watched


def show_judgement(current: Session) -> None:
    """The gates, the figures, the verdict, and where the evidence is."""
    out, record = current.out, current.record
    assert record is not None and current.directory is not None
    out.print()
    out.print(terminal.gates_table(record.gates))
    out.print()
    for kept in record.jobs:
        if kept.iterations and kept.figures and kept.plan:
            out.print(terminal.figures_table(kept.figures, kept.plan.expect))
            out.print()
    for job in current.jobs:
        if job.result and job.result.first_failure:
            out.print(f"first: {job.result.first_failure.text}", style="red", markup=False)
    for name, why in current.left_out.items():
        out.print(f"{name} took no part: {why}", markup=False)
    show_notes(current)
    passed = verdict_of(record.gates) == Verdict.OK
    out.print(f"smoke run: {'[green]PASSED[/]' if passed else '[red]FAILED[/]'}, {len(record.gates)} gates")
    out.print(terminal.findings_summary(current.examination.all_findings(), len(current.hosts)))
    out.print(f"evidence: {current.directory.path}", highlight=False)


def show_notes(current: Session) -> None:
    """What a person should know of the nodes after a job: what is left there, logs that could not be fetched."""
    for node in current.outcomes():
        for note in node.notes:
            current.out.print(f"{node.name}: {note}", markup=False, highlight=False)
