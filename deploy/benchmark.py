"""PyTorch training on each node by itself, as the desired state's section `benchmark` says, gated and recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyinfra.api import Host, State
from pyinfra.context import host as current_host
from pyinfra.operations import python

from deploy.session import Session, session
from deploy.training import show_notes
from operations import benchmark as benchmark_operations
from operations import checkout as checkouts
from shakedown.findings import Verdict
from shakedown.guard import invocation
from shakedown.report import terminal
from shakedown.smoke.benchmark.document import document
from shakedown.smoke.benchmark.judge import figures_of, judge
from shakedown.smoke.benchmark.plan import launch_plan
from shakedown.smoke.benchmark.results import Results, read
from shakedown.smoke.gates import Gate
from shakedown.smoke.gates import verdict as verdict_of
from shakedown.smoke.job import Event
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.supervise import Job
from shakedown.state import is_unreadable


def checkout() -> None:
    """The benchmark's scripts at their commit."""
    current = session()
    wanted = current.examination.desired[current_host.name].benchmark
    if wanted is None or not current.may_change(current_host.name, as_root=False):
        return
    checkouts.git(name=f"{wanted.checkout}: checkout", url=wanted.url, path=wanted.checkout, commit=wanted.commit)


def run() -> None:
    """The benchmark on every node that is fit."""
    current = session()
    name = current_host.name
    if current.examination.desired[name].benchmark is None or name not in current.examination.states:
        return
    current.once("benchmark: open the run", lambda: _open(current))
    jobs = current.benchmarks
    if name not in jobs and name not in current.left_out:
        job = _job(current, name)
        if invocation.dry:
            current.out.print(f"{name}: {job.make_plan().nodes[0].shell()}", markup=False, highlight=False)
        jobs[name] = job
    benchmark_operations.run(name="Benchmark", jobs=jobs)


def conclude() -> None:
    """Judge every node: a node that gave no figure has failed."""
    current = session()
    if current.examination.desired[current_host.name].benchmark is not None:
        python.call(name="Judge the benchmark", function=_conclude)


def _open(current: Session) -> None:
    """From here on the record says that something was asked for which nobody has judged."""
    if not invocation.dry:
        record = current.open_run()
        why = "the run ended before it was judged"
        record.gates = [Gate(name="benchmark", verdict=Verdict.UNKNOWN, wanted="judged", evidence=why)]


def _job(current: Session, name: str) -> Job:
    wanted = current.examination.desired[name].benchmark
    assert wanted is not None
    state = current.examination.states[name]
    desired = current.examination.desired[name]
    engine = state.containers.engine
    user = "root" if state.probe.uid == 0 else str(current.host(name).data.get("ssh_user"))
    plan = launch_plan(
        wanted,
        node=name,
        home="/root" if user == "root" else f"/home/{user}",
        engine="docker" if is_unreadable(engine) else engine,
        image=desired.images[wanted.image].reference,
        run_id="dry" if invocation.dry else current.open_run().run_id,
    )

    def tell(event: Event) -> None:
        current.out.print(f"    benchmark: {event.node or name}: {event.text}", markup=False, highlight=False)

    def make_plan() -> LaunchPlan:
        if wanted.hf_token_file and not invocation.dry:
            job.secrets = {"HF_TOKEN": Path(wanted.hf_token_file).expanduser().read_text("utf-8").strip()}
        return plan

    job = Job(make_plan=make_plan, log_dir=current.directory.logs if current.directory else Path(), on_event=tell)
    return job


def _conclude(state: State, host: Host) -> bool:
    current = session()
    current.once("benchmark: judge", lambda: _judge_all(current))
    gates = [gate for gate in current.record.gates if gate.name.endswith(f".{host.name}")] if current.record else []
    return bool(gates) and verdict_of(gates) == Verdict.OK


def _judge_all(current: Session) -> None:
    record, directory = current.record, current.directory
    assert record is not None and directory is not None
    gates: list[Gate] = []
    plans = []
    for name, desired in current.examination.desired.items():
        if desired.benchmark is None:
            continue
        job = current.benchmarks.get(name)
        if job is None or job.result is None:
            why = current.left_out.get(name) or (job.error if job else None) or "it was never run"
            gates.append(Gate(name=f"ran.{name}", verdict=Verdict.FAIL, wanted="ran", actual="not run", evidence=why))
            continue
        plans.append(f"{name}: {job.plan.nodes[0].shell()}" if job.plan else name)
        invocation.interrupted |= job.result.outcome == "interrupted"
        exit_code = job.result.nodes[0].exit_code
        current.evidence.exit_codes[name] = exit_code
        results = _results(job)
        directory.write(f"benchmark/{name}.json", results.model_dump_json(indent=1) + "\n")
        wanted = desired.benchmark
        steps_wanted = wanted.mode in document().models[wanted.model].steps
        if not job.result.completed:
            gates.append(
                Gate(name=f"ran.{name}", verdict=Verdict.FAIL, wanted="ran to its end", evidence=job.result.reason)
            )
        gates += judge(name, results, exit_code, wanted.expect, steps_wanted)
        for figure in figures_of(results):
            unit = document().metrics[figure.metric].unit
            current.out.print(f"{name}: {figure.metric} {figure.value:,.6g} {unit} ({figure.source})", markup=False)
    directory.write("plan.txt", "\n".join(plans) + "\n")
    record.gates = gates
    current.job = _all_of(list(current.benchmarks.values()))
    current.close()
    current.out.print(terminal.gates_table(gates))
    show_notes(current)
    passed = verdict_of(gates) == Verdict.OK
    current.out.print(f"benchmark: {'[green]PASSED[/]' if passed else '[red]FAILED[/]'}, {len(gates)} gates")
    current.out.print(f"evidence: {directory.path}", highlight=False)


def _all_of(jobs: list[Job]) -> Job | None:
    """The nodes' jobs as one, for the record's list of nodes."""
    results = [job.result for job in jobs if job.result]
    if not results:
        return None
    nodes = [node for result in results for node in result.nodes]
    return replace(jobs[0], result=results[0].model_copy(update={"nodes": nodes}))


def _results(job: Job) -> Results:
    """The node's log and its report, as they were collected. A log that cannot be read has no results."""
    assert job.result is not None
    logs = job.result.nodes[0].logs
    report = next((path for path in logs if path.name == "perf.csv"), None)
    try:
        log = logs[0].read_text("utf-8", errors="replace") if logs else ""
        return read(log, report.read_text("utf-8", errors="replace") if report else None)
    except OSError as error:
        return Results(problems=[str(error)])
