"""A job's logs as evidence, and every gate over it. A family names its parser in `PARSERS`."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from shakedown.catalogue import advice
from shakedown.common.nearest import there_are
from shakedown.common.text import ranges, some
from shakedown.gates.model import Gate, Outcome
from shakedown.gates.observed import (
    RESUME_RTOL,
    Expected,
    InImage,
    Logs,
    LogsByNode,
    NodeLog,
    Observed,
    Reading,
    Speed,
    Training,
    logs_of,
)
from shakedown.gates.registry import Rule, rules
from shakedown.gates.speed import impossible
from shakedown.gates.steadiness import clock, paces
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs import mad
from shakedown.logs.figures import WARMUP, judged_lines, loss_scale, measure, tokens_of_all_gpus
from shakedown.logs.form import is_read
from shakedown.logs.iterations import MAX_ITERATIONS
from shakedown.logs.job_shape import JobShape, shape_of
from shakedown.logs.kept_logs import LEADER
from shakedown.logs.metrics import METRICS
from shakedown.logs.nccl_debug import quietest
from shakedown.state.findings import Verdict


@dataclass(frozen=True)
class JobSpec:
    """What is known of a job besides its logs. Defaults mean: as the logs say."""

    expect: Mapping[str, float] = field(default_factory=dict)  # metric (`metrics.METRICS`) -> bound
    iterations: int | None = None
    warmup: int = WARMUP
    seq_length: int | None = None
    world_size: int | None = None
    global_batch: int | None = None
    rdma: bool = False  # between its nodes
    nccl_debug: str | None = None
    unlogged: int = 0  # nodes that are in none of the logs
    steady: bool = True  # the iterations have to follow each other evenly
    gpus: Collection[str] = ()  # models of the nodes' GPUs
    prints_iterations: bool = True  # the program is known to print iteration lines
    resume_at: int | None = None  # iteration whose checkpoint the run was to read back
    resume_rtol: float = RESUME_RTOL
    image: str | None = None  # that the nodes ran the job in


def from_logs(logs: LogsByNode, spec: JobSpec) -> Observed:
    """Collect the evidence in a run's logs, by node. Raises ValueError with every unknown metric and wrong bound."""
    if faults := unknown_metrics(spec.expect):
        raise ValueError("; ".join(faults))
    fullest = fullest_log(logs)
    shape = shape_of([log.shape for log in logs.values() if log])
    of_mlperf = [log for log in logs.values() if log and log.mlperf]
    mlperf = min(of_mlperf, key=lambda log: bool(log.mlperf and log.mlperf.through), default=None)  # the worst
    # MLPerf stops where its goal is reached. Another node's lines of MLPerf say nothing of the iterations.
    counted = spec.iterations is not None or (fullest.iterations and not fullest.mlperf)
    lines, damaged = list(fullest.iterations), set(fullest.damaged)
    own = fullest.shape, fullest.no_numbers
    training = Training(lines, damaged, spec.iterations, shape, spec.resume_at, spec.resume_rtol, *own)
    return Observed(
        logs=Logs(logs, spec.unlogged, spec.rdma, spec.nccl_debug),
        training=None if mlperf and not counted else training,
        in_image=_in_image(logs, spec.image),
        mlperf=mlperf,
        speed=_speed(fullest, shape, spec),
        expected=Expected(spec.expect),
        reading=_reading(logs, spec),
    )


def _in_image(logs: LogsByNode, image: str | None) -> InImage | None:
    printed = shape_of([log.shape for log in logs.values() if log]).in_image
    silent = [node for node, log in logs.items() if not log or not log.shape.in_image]
    return InImage(image, printed, silent) if image else None


def fullest_log(logs: LogsByNode) -> NodeLog:
    """Return the log with the most iteration lines: the last global rank alone prints them."""
    return max((log for log in logs.values() if log), key=lambda log: len(log.iterations), default=NodeLog())


def _speed(log: NodeLog, shape: JobShape, spec: JobSpec) -> Speed:
    lines = list(log.iterations)
    figures = measure(lines, spec.warmup, spec.seq_length, spec.world_size, spec.global_batch, log.summary)
    timed = judged_lines(lines, spec.warmup)
    all_gpus_tokens = tokens_of_all_gpus(timed, spec.seq_length, spec.world_size)
    throughput = bool(figures.throughput_per_gpu or figures.tokens_per_gpu or all_gpus_tokens or impossible(timed))
    throughput = throughput or any(line.tflops_per_gpu is not None for line in lines)
    return Speed(
        figures=figures,
        timed=timed if throughput else None,
        all_gpus_tokens=all_gpus_tokens,
        gpus=spec.gpus or ([shape.gpu] if shape.gpu else []),
        shape=shape,
        paces=paces(lines, spec.warmup) if spec.steady else None,
        clock=clock(lines, log.stamps),
        ranks=spec.world_size or 0,
    )


def _reading(logs: LogsByNode, spec: JobSpec) -> Reading:
    fullest = fullest_log(logs)
    crowded = [name for name, log in logs.items() if log and log.beyond]
    contradictions = [] if crowded else _contradictions(logs)
    unread = False
    unjudged = ""
    if crowded:
        unjudged = f"more than {MAX_ITERATIONS} iteration lines in {some(crowded)}"
    elif contradictions:
        unjudged = f"the logs are not of one run: {some(contradictions)}"
    elif not fullest.iterations:
        unjudged, unread = _no_lines(logs, spec)
    incomplete = next((log.incomplete for log in logs.values() if log and log.incomplete), "")
    cut = fullest.incomplete or ("" if fullest.iterations else incomplete)
    lines = fullest.iterations
    return Reading(
        unjudged=unjudged,
        contradicted=bool(contradictions),
        unread=unread,
        cut=f"the log is not whole: {cut}" if cut else "",
        # Not without lines, nor where only the search for a loss scale ends them.
        shows_failure=bool(lines) and (loss_scale(lines).ended or any(line.nan_iterations for line in lines)),
    )


def _no_lines(logs: LogsByNode, spec: JobSpec) -> tuple[str, bool]:
    """Return why logs without an iteration line say nothing of the run, and whether that is for their form."""
    if missing := [name for name, log in logs.items() if log is None]:
        return f"no iteration line, and no log of {some(missing)}", False
    shape = shape_of([log.shape for log in logs.values() if log])
    if spec.unlogged:
        return f"no iteration line, and {logs_of(logs, spec.unlogged)}: the last rank alone prints them", False
    interval, of = shape.log_interval or 0, shape.train_iters or 0
    if interval > of > 0:
        return f"no iteration line: the job prints one for {interval} iterations, and has {of}", False
    forms = [log.form for log in logs.values() if log]
    if spec.prints_iterations or any(map(is_read, forms)):
        return "", False
    form = next(filter(None, forms), "")
    program = f"{form}, whose iteration lines are not read" if form else "no program that is known"
    return f"no iteration line of a known form: the log is of {program}", True


def unknown_metrics(expect: Mapping[str, float]) -> list[str]:
    """Return what is wrong with the expected figures, a sentence for each fault."""
    faults = []
    for name, bound in expect.items():
        if name not in METRICS:
            faults.append(f"expect.{name}: no such metric; {there_are(name, METRICS)}")
        elif type(bound) not in (int, float) or not (math.isfinite(bound) and bound > 0):
            faults.append(f"expect.{name}: {bound!r} is not a number above 0")
    return faults


def _contradictions(logs: LogsByNode) -> list[str]:
    """Return where two logs differ in an iteration, or the fullest log lacks one: they are of two runs."""
    with_lines = {name: log for name, log in logs.items() if log and log.iterations}
    if len(with_lines) < 2:
        return []
    fullest = max(with_lines, key=lambda name: len(with_lines[name].iterations))
    lines = {line.iteration: line.json() for line in with_lines[fullest].iterations}
    cut = set(with_lines[fullest].damaged)
    whole_run = not with_lines[fullest].incomplete  # otherwise a line that it lacks may be one that was cut off
    contradictions = []
    for name, log in with_lines.items():
        spoilt = cut | set(log.damaged)
        whole = [it for it in log.iterations if it.iteration not in spoilt and (whole_run or it.iteration in lines)]
        if different := [it.iteration for it in whole if lines.get(it.iteration) != it.json()]:
            contradictions.append(f"{name} and {fullest} differ in {ranges(different, 'iteration')}")
    return contradictions


def judge(job: Observed) -> list[Gate]:
    """Judge a job by every gate that has evidence, in the order in which gates are shown."""
    return [
        Gate(name=name, **{field: getattr(outcome, field) for field in Outcome.model_fields})
        for rule in rules()
        for name, seen in rule.outcomes(job).items()
        for outcome in [_trusted(rule, seen, job.reading) if rule.of_lines else seen]
    ]


def judge_log(
    logs: NodeLog | LogsByNode, expect: dict[str, float], iterations: int | None = None, **spec: Any
) -> list[Gate]:
    """Judge the log of one run by the gates that need nothing else; `spec` holds fields of `JobSpec`."""
    by_node = {"log": logs} if isinstance(logs, NodeLog) else logs
    return judge(from_logs(by_node, JobSpec(expect=expect, iterations=iterations, **spec)))


def _trusted(rule: Rule, outcome: Outcome, reading: Reading) -> Outcome:
    """Return what an outcome over lines is worth. Over a part of a log only a failure that was seen can stand."""
    if reading.unjudged:
        verdict = rule.contradicted if reading.contradicted else Verdict.UNKNOWN
        remedy = advice("log_form" if reading.unread else "unfinished")
        return Outcome(verdict=verdict, evidence=reading.unjudged, remedy=remedy)
    if not reading.cut or (outcome.verdict is Verdict.FAIL and rule.stands and reading.shows_failure):
        return outcome
    evidence = f"{outcome.evidence}; but {reading.cut}"
    remedy = outcome.remedy or advice("incomplete")
    return outcome.model_copy(update={"verdict": Verdict.UNKNOWN, "evidence": evidence, "remedy": remedy})


Text = Callable[[str], tuple[str | None, str]]  # of a log's name on the node: its text or None, and what that lacks


@dataclass(frozen=True)
class Parser:
    """One way to read a job; METRICS_OF says what it can measure."""

    read: Callable[[NodeLog, Text], NodeLog]  # the job's own output on a node, and the copies of all of its logs
    observe: Callable[[LogsByNode, LaunchPlan], Observed]


def _spec(plan: LaunchPlan) -> JobSpec:
    rdma = wants_rdma(plan)
    return JobSpec(
        expect=plan.expect,
        iterations=plan.iterations,
        warmup=plan.warmup,
        seq_length=plan.seq_length,
        world_size=plan.world_size,
        global_batch=plan.global_batch or None,
        rdma=rdma,
        nccl_debug=quietest(node.environment.get("NCCL_DEBUG", "") for node in plan.nodes) if rdma else None,
        steady=plan.steady,
        gpus=plan.gpus,
        image=plan.declared_image or plan.image,
        resume_at=int(plan.parameters["resume_at"]) if "resume_at" in plan.parameters else None,
        resume_rtol=float(plan.parameters.get("resume_rtol", RESUME_RTOL)),
    )


def wants_rdma(plan: LaunchPlan) -> bool:
    """Return whether the job was to use RDMA: a single node with devices is enough. Plan or site may choose sockets."""
    sockets = any(
        node.environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")
        or node.environment.get("NCCL_NET", "").lower() == "socket"
        for node in plan.nodes
    )
    return len(plan.nodes) > 1 and any(node.hca for node in plan.nodes) and not sockets


def _read_mad(log: NodeLog, text: Text) -> NodeLog:
    (output, lacks), (report, report_lacks) = text(LEADER), text(mad.REPORT)
    incomplete = "; ".join(dict.fromkeys(filter(None, (log.incomplete, lacks, report_lacks))))
    return log.model_copy(update={"reported": mad.read(output, report), "incomplete": incomplete})


def _mad_evidence(logs: LogsByNode, plan: LaunchPlan) -> Observed:
    """Return what MAD's report says. Of each node it is a program of its own, so there is one log."""
    log = next(iter(logs.values()), None) or NodeLog()
    results = (log.reported or mad.Results()).model_copy(update={"prints_steps": mad.prints_steps(plan.parameters)})
    cut = f"the log or the report is not whole: {log.incomplete}" if log.incomplete else ""
    expected, reading = Expected(plan.expect), Reading(cut=cut)
    in_image = _in_image(logs, plan.declared_image or plan.image)
    return Observed(benchmark=results, in_image=in_image, expected=expected, reading=reading)


PARSERS = {
    "training": Parser(lambda log, _text: log, lambda logs, plan: from_logs(logs, _spec(plan))),
    "mad": Parser(_read_mad, _mad_evidence),
}
