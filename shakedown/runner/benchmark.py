"""PyTorch training on each node alone, as the desired state's section `benchmark` says, gated and recorded."""

from pathlib import Path

from pyinfra.api import Host, State
from pyinfra.context import host as current_host
from pyinfra.operations import python

from shakedown.common.text import counted, file_name
from shakedown.gates import Gate
from shakedown.gates import verdict as verdict_of
from shakedown.jobs.benchmark.plan import launch_plan
from shakedown.jobs.benchmark.results import figures_of
from shakedown.jobs.job import Event, Job, job_name
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.token import TOKEN, token
from shakedown.operations import checkout as checkouts
from shakedown.operations import smoke as smoke_operations
from shakedown.recipes.benchmark import document
from shakedown.report import outcomes
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, session
from shakedown.runner.training import ended_by, show_notes
from shakedown.runs.directory import RunDirectory
from shakedown.runs.judging import judge_job, results_of
from shakedown.runs.records import JobRecord
from shakedown.state.findings import Verdict
from shakedown.state.node import is_unreadable


def checkout() -> None:
    """Have the benchmark's scripts at their commit."""
    current = session()
    wanted = current.examination.desired[current_host.name].benchmark
    if wanted is None or not current.may_change(current_host.name, as_root=False):
        return
    checkouts.git(name=f"{wanted.checkout}: checkout", url=wanted.url, path=wanted.checkout, commit=wanted.commit)


def run() -> None:
    """Run the benchmark on every node that is fit."""
    current = session()
    name = current_host.name
    if current.examination.desired[name].benchmark is None or current.examination.state_of(name) is None:
        return
    current.once("benchmark: open the run", lambda: _open(current))
    smoke_operations.run(name="Benchmark", jobs=current.jobs)


def conclude() -> None:
    """Judge every node: a node that gave no figure has failed."""
    current = session()
    if current.examination.desired[current_host.name].benchmark is not None:
        python.call(name="Judge the benchmark", function=_conclude)


def _open(current: Session) -> None:
    """Open the record: from here on it shows a benchmark that is not judged yet."""
    if not invocation.dry:
        record = current.open_run()
        reason = "the run ended before it was judged"
        record.gates = [Gate(name="benchmark", verdict=Verdict.UNKNOWN, wanted="judged", evidence=reason)]
    for name in current.examination.states:
        if current.examination.desired[name].benchmark is None or name in current.excluded:
            continue
        current.jobs.append(_job(current, name))
        if invocation.dry:
            current.out.print(f"{name}: {current.jobs[-1].make_plan().nodes[0].shell()}", markup=False, highlight=False)


def _job(current: Session, name: str) -> Job:
    wanted = current.examination.desired[name].benchmark
    assert wanted is not None
    state = current.examination.states[name]
    desired = current.examination.desired[name]
    engine = state.containers.engine
    plan = launch_plan(
        wanted,
        node=name,
        engine="docker" if is_unreadable(engine) else engine,
        image=desired.images[wanted.image].reference,
        run_id="dry" if invocation.dry else current.open_run().run_id,
    )

    def tell(event: Event) -> None:
        current.out.print(f"    benchmark: {event.node or name}: {event.text}", markup=False, highlight=False)

    def make_plan() -> LaunchPlan:
        secret = None if invocation.dry else token(wanted.hf_token_file)
        if secret:
            job.secrets = {TOKEN: secret.strip()}
        return plan

    logs = current.directory.logs if current.directory else Path()
    job = Job(
        make_plan=make_plan, log_dir=logs, node=name, on_event=current.taking(job_name(name), tell), quota=current.quota
    )
    return job


def _conclude(state: State, host: Host) -> bool:
    current = session()
    current.once("benchmark: judge", lambda: _judge_all(current))
    verdict = verdict_of(gate for gate in (current.record.gates if current.record else ()) if gate.node == host.name)
    if not verdict.passes:
        current.run_of(host.name).verdict = current.run_of(host.name).verdict or verdict
    return verdict.passes


def _judge_all(current: Session) -> None:
    record, directory = current.record, current.directory
    assert record is not None and directory is not None
    jobs = {job.node: job for job in current.jobs}
    nodes = [name for name, desired in current.examination.desired.items() if desired.benchmark is not None]
    record.gates = []
    for name in nodes:
        kept = _job_record(current, name, jobs.get(name))
        record.jobs.append(kept)
        current.save()  # the evidence has the logs now
        _show_figures(current, directory, kept)
        record.gates += judge_job(directory, kept, current.evidence[kept.name]).gates
    plans = [f"{job.node}: {job.plan.nodes[0].shell()}\n" for job in current.jobs if job.plan]
    directory.write("plan.txt", "".join(plans))
    current.close()
    current.out.print(outcomes.gates_table(record.gates))
    show_notes(current)
    current.out.print(f"benchmark: {outcomes.outcome(verdict_of(record.gates))}, {counted(len(record.gates), 'gate')}")


def _job_record(current: Session, name: str, job: Job | None) -> JobRecord:
    """Return the record of one node's job: enough to judge it again."""
    kept = JobRecord(node=name, benchmark=current.examination.desired[name].benchmark)
    if job is None or job.result is None:
        why = current.excluded.get(name) or (job.error if job else None) or "it was never run"
        return kept.model_copy(update={"error": why})
    invocation.interrupted |= job.result.outcome == "interrupted"
    (node,) = job.result.nodes
    evidence = current.evidence[job.name]
    evidence.exit_codes[name] = node.exit_code
    evidence.stopped = None if job.result.completed else job.result.reason
    evidence.left[name] = node.left
    kept.ended_by = ended_by(job.result)
    kept.logs = {name: [current.relative(path) for path in node.logs]}
    return kept


def _show_figures(current: Session, directory: RunDirectory, kept: JobRecord) -> None:
    """Show what the node measured, on the screen and in a file of its own."""
    results, _incomplete = results_of(directory, kept, current.evidence[kept.name])
    directory.write(f"benchmark/{file_name(kept.node or '')}.json", results.model_dump_json(indent=1) + "\n")
    for figure in figures_of(results):
        unit = document().metrics[figure.metric].unit
        current.out.print(f"{kept.node}: {figure.metric} {figure.value:,.6g} {unit} ({figure.source})", markup=False)
