"""The smoke run's beginning and end: its jobs, each planned from what the nodes are, and judged by what they did."""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from pyinfra.api.exceptions import PyinfraError

from shakedown.checks.examination import Examination
from shakedown.common.lists import grouped
from shakedown.common.secret_file import keyed_digest
from shakedown.common.secrets import masked_model
from shakedown.common.text import file_name
from shakedown.desired.models import EACH, TOGETHER
from shakedown.desired.problems import Problem, as_lines
from shakedown.evidence.diagnosis.origin import STOPPED
from shakedown.evidence.results import JobResult
from shakedown.gates import verdict as verdict_of
from shakedown.gates.consequences import about, with_origin
from shakedown.gates.judgement import watched_counters
from shakedown.hosts import few
from shakedown.isolation import tree
from shakedown.jobs.launch import Event, Job, LaunchPlan, job_name
from shakedown.jobs.plan import PlanError, make_plan, render
from shakedown.jobs.progress import Progress, ProgressOfEach
from shakedown.jobs.remote import TOKEN, token
from shakedown.logs.mad import Results
from shakedown.logs.metrics import METRICS_OF
from shakedown.report import outcomes
from shakedown.report.summary import fitted
from shakedown.report.trials import of_training
from shakedown.runner.comparison import compare_with_alone, compare_with_earlier
from shakedown.runner.examine import reread, show_screen
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session
from shakedown.runs.diagnosis import diagnose
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, new_run_id
from shakedown.runs.judging import judge_job
from shakedown.state.findings import Verdict


def jobs_of(examination: Examination) -> list[str | None]:
    """Return the jobs that the scopes ask for, in order: a node's name for its own, None for the job over all."""
    without = left_out(examination)
    sections = {name: desired.smoke for name, desired in examination.desired.items() if name not in without}
    scopes = {name: smoke.scope for name, smoke in sections.items() if smoke is not None}
    alone = [name for name, scope in scopes.items() if EACH in scope]
    together = not alone or any(TOGETHER in scope for scope in scopes.values())
    return [*alone, *([None] if together else [])]


def left_out(examination: Examination) -> dict[str, str]:
    """Return the nodes that the desired state leaves out as suspects of the last search, with the reason."""
    smokes = {name: desired.smoke for name, desired in examination.desired.items() if desired.smoke is not None}
    asked = [name for name, smoke in smokes.items() if smoke.exclude == "suspects"]
    try:
        return tree.left_out(asked, invocation.inventory)
    except (OSError, ValueError) as error:
        raise PyinfraError(f'smoke.exclude is "suspects", and no search says who is one: {error}') from error


def plan_of(
    examination: Examination,
    run_id: str | None = None,
    excluded: Mapping[str, str] | None = None,
    alone: str | None = None,
    repaired: bool = False,
) -> LaunchPlan:
    """Return the launch plan over the nodes that are fit to train, in inventory order, or of one that trains `alone`,
    which has an id of its own. `repaired`: over all that answered, as if nothing kept them out. Raise PlanError with
    everything that cannot be derived or does not fit."""
    without = left_out(examination)
    missing = {node: why for node, why in (excluded or {}).items() if node not in without}
    for node in examination.desired:
        blockers = examination.blockers(node)
        if blockers and node not in without and not (repaired and examination.state_of(node)):
            missing.setdefault(node, f"{blockers[0].name}: {blockers[0].verdict}")
    fit = {node: desired for node, desired in examination.desired.items() if node not in without}
    smoke = {node: desired for node, desired in fit.items() if desired.smoke is not None}
    states = {node: state for node, state in examination.states.items() if node not in missing}
    run_id = run_id or new_run_id()
    if alone is not None:
        run_id = f"{run_id}-{EACH}-{list(smoke).index(alone) + 1}"
    return make_plan(smoke, states, missing=missing, run_id=run_id, alone=alone, repaired=repaired)


def plans_of(examination: Examination) -> tuple[dict[str, LaunchPlan], dict[str, list[str]]]:
    """Return the jobs' plans as the nodes are now, by job, and what stands in the way of others -> their names."""
    run_id = new_run_id()
    plans, errors = {}, defaultdict(list)
    for node in jobs_of(examination):
        try:
            plans[job_name(node)] = shown(plan_of(examination, run_id, alone=node), examination)
        except PlanError as error:
            errors[str(error)].append(job_name(node))
    return plans, errors


def preview_of(examination: Examination) -> tuple[dict[str, LaunchPlan], list[str]]:
    """Return the jobs' plans, by the jobs' names, and what stands in the way of jobs now. Of such a job it is the plan
    as it will be once the nodes are repaired, as far as that can be derived."""
    run_id, plans = new_run_id(), {}
    hindrances: dict[Problem, None] = {}
    for node in jobs_of(examination):
        plan: LaunchPlan | None = None
        try:
            plan = plan_of(examination, run_id, alone=node)
        except PlanError as error:
            hindrances |= dict.fromkeys(error.problems)
            try:
                plan = plan_of(examination, run_id, alone=node, repaired=True)
            except PlanError as partly:
                plan = partly.plan
        if plan is not None:
            plans[job_name(node)] = shown(plan, examination)
    return plans, as_lines(hindrances)


def shown(plan: LaunchPlan, examination: Examination) -> LaunchPlan:
    """Return the plan as it may be shown and kept: without the values of secrets."""
    return masked_model(plan, examination.not_secret())


def kept_plan(plan: LaunchPlan, examination: Examination) -> LaunchPlan:
    """Return the plan as it may be kept, with a digest of what is not shown of its parameters.

    Two jobs that differ in a secret alone are two jobs.
    """
    kept = shown(plan, examination)
    hidden = {name: value for name, value in plan.parameters.items() if kept.parameters.get(name) != value}
    return kept.model_copy(update={"hidden": keyed_digest(hidden)}) if hidden else kept


def start_run(current: Session) -> None:
    """Make the jobs that the smoke operation runs. Plans are made when they start, from the nodes as they are then."""
    if not invocation.dry:
        current.open_run()
    for name, why in left_out(current.examination).items():
        current.exclude(name, why, Verdict.UNKNOWN)
    nodes = jobs_of(current.examination)
    shared = ProgressOfEach()
    current.jobs += [_job(current, node, Progress() if node is None else shared.of(node)) for node in nodes]


def _job(current: Session, node: str | None, on_event: Callable[[Event], None]) -> Job:
    directory = current.directory
    logs = Path() if directory is None else directory.logs if node is None else directory.logs_of_each
    taking = current.taking(job_name(node), on_event)
    job = Job(make_plan=lambda: _plan_now(current, job), log_dir=logs, node=node, on_event=taking, quota=current.quota)
    return job


def _plan_now(current: Session, job: Job) -> LaunchPlan:
    record, _ = current.begun
    if invocation.interrupted:
        raise RuntimeError("the run was stopped before this job began")
    note_missing(current)
    current.examination.compare()  # where every node that was changed has failed, none has done so
    plan = plan_of(current.examination, record.run_id, current.excluded, job.node)
    record.jobs.append(JobRecord(node=job.node, plan=kept_plan(plan, current.examination)))
    begun = record.jobs[-1:] if current.plans else record.jobs  # the first has those of trials before it
    current.plans += [render(kept.plan, kept.name) for kept in begun if kept.plan]
    if current.notes is not None:
        current.notes.plan(job.name, plan)
    evidence, states = current.evidence[job.name], current.examination.states | current.latest
    for node in plan.nodes:
        watched = watched_counters(current.examination.desired[node.name], states[node.name], node.interface)
        evidence.counters_before[node.name] = watched
    current.save_soon(0)  # before the first job begins, and after the last one was planned
    job.secrets = secrets_of(plan, current.examination)
    return plan


def note_missing(current: Session) -> None:
    """Exclude the hosts that pyinfra has failed since."""
    for host in current.hosts:
        if host not in current.state.active_hosts:
            run = current.run_of(host.name)
            run.exclude(run.failure or "failed before the smoke run")


def secrets_of(plan: LaunchPlan, examination: Examination) -> dict[str, str]:
    """Return the values of variables that the plan only names, from the environment or the file. Raise SecretError."""
    smoke = examination.desired[plan.driver].smoke
    values = {}
    for name in {name for node in plan.nodes for name in node.secrets}:
        value = token(smoke.hf_token_file if smoke else None) if name == TOKEN else os.environ.get(name)
        if value is not None:
            values[name] = value.strip()
    return values


def conclude_run(current: Session) -> None:
    """Judge the jobs that are not yet, keep the record, show the verdict."""
    if current.record is None:
        current.out.print("smoke run: NOT STARTED: no node was left to run it", style="red")
        return
    judge_jobs(current)
    current.close()
    show_judgement(current)


def judge_each(current: Session) -> None:
    """Judge the nodes' own jobs; with another job to follow, show already what they came to."""
    judge_jobs(current, alone=True)
    if current.record is not None and any(job.node is None and not job.trials for job in current.jobs):
        current.out.print()
        current.out.print(outcomes.nodes_table(of_training(current.record.gates), current.record.jobs))
        current.out.print()


def judge_jobs(current: Session, alone: bool = False) -> None:
    """Judge the jobs (`alone`: the nodes' own) that are not yet: read the counters of their nodes again, and apply all
    gates to each. A node that has failed alone is excluded; one that was excluded before has nothing to be judged."""
    record, directory = current.begun
    judged = {gate.job for gate in record.gates}
    training = [job for job in current.jobs if not job.trials]
    begun = [job for job in training if job.name not in judged and (job.node or not alone)]
    excluded = current.excluded
    begun = [job for job in begun if job.result or job.error or job.node not in excluded]
    _counters_after(current, begun)
    kept_of = {job.name: keep(current, job) for job in begun}
    current.save()
    compare_with_earlier(current, list(kept_of.values()))
    for job in begun:
        kept = kept_of[job.name]
        compare_with_alone(
            current,
            kept,
            lambda node: kept_plan(plan_of(current.examination, record.run_id, alone=node), current.examination),
        )
        judgement = judge_job(directory, kept, current.evidence[job.name])
        record.gates += judgement.gates
        if current.notes:
            current.notes.gates(judgement.gates)
        kept.iterations, kept.figures = judgement.iterations, judgement.figures
        kept.baselines = judgement.baselines
        kept.telemetry = judgement.telemetry
        kept.stragglers = judgement.stragglers
        if judgement.reported is not None and job.plan is not None:
            _keep_report(current, directory, job.plan, judgement.reported)
        if job.node is not None and judgement.verdict != Verdict.OK:
            wrong = ", ".join(gate.name for gate in judgement.gates if not gate.verdict.passes)
            current.exclude(job.node, f"failed its single-node run: {wrong}", judgement.verdict)
    record.diagnosis = diagnose(record, current.evidence, directory)
    record.gates = with_origin(record.gates, record.diagnosis)
    current.save()


def _keep_report(current: Session, directory: RunDirectory, plan: LaunchPlan, reported: Results) -> None:
    directory.write(f"benchmark/{file_name(plan.driver)}.json", reported.model_dump_json(indent=1) + "\n")
    for figure in reported.figures:
        unit = METRICS_OF[plan.parser][figure.metric].unit
        current.say(f"{plan.driver}: {figure.metric} {figure.value:,.6g} {unit} ({figure.source})")


def keep(current: Session, job: Job) -> JobRecord:
    """Write the result of a job into the record and its evidence."""
    record, directory = current.begun
    kept = next((kept for kept in record.jobs if kept.name == job.name), None)
    if kept is None:
        kept = JobRecord(node=job.node, trials=job.trials, error=job.error or "no node was left to run it")
        record.jobs.append(kept)
    evidence = current.evidence[job.name]
    if job.result is None:
        evidence.stopped = job.error or "the run ended before the job did"
        evidence.started = job.allocated
        kept.ended_by = "interrupted" if invocation.interrupted else "controller" if job.plan else ""
    else:
        take_result(kept, evidence, job.result, directory)
        invocation.interrupted |= job.result.outcome == "interrupted"
    return kept


def take_result(kept: JobRecord, evidence: Evidence, result: JobResult, directory: RunDirectory) -> None:
    """Write what became of a job into its record and its evidence."""
    kept.ended_by = result.first_failure.kind if result.first_failure else ""
    of_node = {node.name: directory.below(node.kept) for node in result.nodes}
    kept.logs = {node: [log.path for log in logs] for node, logs in of_node.items()}
    evidence.logs = of_node
    evidence.exit_codes = {node.name: node.exit_code for node in result.nodes}
    evidence.stopped_nodes = [node.name for node in result.nodes if node.stopped]
    evidence.started = result.started_at is not None
    evidence.stopped = None if result.completed else result.reason
    evidence.failures = list(result.failures)
    evidence.running = {node.name: node.running_at_end for node in result.nodes}
    evidence.left = {node.name: node.left for node in result.nodes}
    evidence.timing = result.timing


def shortfall(current: Session, node: str) -> tuple[str, Verdict]:
    """Return why a node has not passed what its scope asks for, alone and together with others (empty: it has), and the
    worst verdict of the gates about it; unknown: there are none."""
    gates = [gate for gate in current.record.gates if about(gate, node)] if current.record else []
    wrong = [gate.name for gate in gates if not gate.verdict.passes]
    reason = f"did not hold: {', '.join(wrong)}" if wrong else "" if gates else "nothing of it was judged"
    return current.run_of(node).excluded or reason, verdict_of(gates)


UNDECIDED = "on which node the failure began is undecided"


def elsewhere(current: Session, node: str) -> str:
    """Return how the part of a node ended that did not pass since the failure began on another one, or was no node's,
    or nobody knows on which one; empty otherwise."""
    found = current.record.diagnosis if current.record else None
    began = (*found.origin, *found.common) if found else ()
    verdict, text = current.parts().get(node, (Verdict.UNKNOWN, ""))
    own = [gate for gate in current.record.gates if gate.node == node] if current.record else []
    if current.run_of(node).excluded or node in began or any(gate.verdict != Verdict.OK for gate in own):
        return ""
    if found is None or found.confidence == "undecided":
        return f"{text}; {UNDECIDED}" if text == STOPPED else ""
    if verdict != Verdict.OK or not text:
        return ""
    reason = f"the failure began on {few(began)}" if began else found.cause
    return text if text.endswith(reason) else f"{text}: {reason}"


def _counters_after(current: Session, jobs: Sequence[Job]) -> None:
    planned = [(job, node) for job in jobs if job.plan for node in job.plan.nodes]
    names = {node.name for _, node in planned}
    hosts = [host for host in current.hosts if host.name in names and host.connected]
    after = Examination({host.name: current.examination.desired[host.name] for host in hosts})
    reread(current.state, after, hosts)
    current.latest.update(after.states)
    for job, node in planned:
        if (state := after.states.get(node.name)) is not None:
            watched = watched_counters(after.desired[node.name], state, node.interface)
            current.evidence[job.name].counters_after[node.name] = watched


def show_judgement(current: Session) -> None:
    """Show the gates and figures of a run that passed. The end of another run says what failed."""
    out, (record, _) = current.out, current.begun
    if verdict_of(record.gates).passes:
        for texts, parts in groupby(outcomes.judgement(record.gates, record.jobs), lambda part: isinstance(part, str)):
            for number, part in enumerate(parts):
                if not (texts and number):  # lines of one text stand together
                    out.print()
                out.print(outcomes.constrained(part))
    out.print()
    # Leftovers, and logs that could not be fetched.
    notes = grouped((note, node.name) for node in current.outcomes() for note in node.notes)
    for line in fitted((f"{few(names)}: {note}" for note, names in notes.items()), most=5):
        current.say(line, soft_wrap=True)
    alone = "benchmark" if any(job.plan and job.plan.has_report for job in record.jobs) else "each node alone"
    for line in outcomes.closing(record.gates, alone):
        out.print(line)
    show_screen(current.examination, out, quiet=True)
