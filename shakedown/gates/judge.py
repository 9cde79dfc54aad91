"""Every gate that can be asked of a job, over all that was observed of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shakedown.catalogue import advice
from shakedown.gates.model import Gate, Outcome, ranges, some
from shakedown.gates.node_log import NodeLog, logs_of
from shakedown.gates.possible import impossible
from shakedown.gates.registry import OF_LINES, Observed, Rule, called, rules
from shakedown.gates.steadiness import clock, paces
from shakedown.logs.figures import WARMUP, judged_lines, measure, tokens_told
from shakedown.logs.job_shape import shape_of
from shakedown.logs.log import MAX_ITERATIONS, Iteration, Summary
from shakedown.logs.log_form import is_read
from shakedown.logs.loss_scale import loss_scale
from shakedown.logs.metrics import METRICS
from shakedown.state.findings import Verdict


def judge(job: Observed) -> list[Gate]:
    """The gates of a job, in the order in which they are shown. What needs evidence that there is none of is not
    asked."""
    return [called(name, _outcome(rule, job, name)) for rule in rules() for name in rule.names(job)]


def _outcome(rule: Rule, job: Observed, name: str) -> Outcome:
    of_lines = not rule.needs.isdisjoint(OF_LINES)
    if of_lines and job.unjudged:
        verdict = rule.contradicted if job.contradicted else Verdict.UNKNOWN
        remedy = advice("log_form" if job.unread else "unfinished")
        return Outcome(verdict=verdict, evidence=job.unjudged, remedy=remedy)
    outcome = rule.outcome(job, name)
    if of_lines and job.cut and not (outcome.verdict is Verdict.FAIL and rule.stands and job.shows_failure):
        return _of_a_part(outcome, job.cut)
    return outcome


def _of_a_part(outcome: Outcome, why: str) -> Outcome:
    """A gate over what is not whole: only a failure that was seen would stand."""
    evidence = f"{outcome.evidence}; but {why}"
    remedy = outcome.remedy or advice("incomplete")
    return outcome.model_copy(update={"verdict": Verdict.UNKNOWN, "evidence": evidence, "remedy": remedy})


def judge_log(*logs: Any, **options: Any) -> list[Gate]:
    """The gates that need nothing but the log of one run; the arguments are those of `of_logs`."""
    return judge(of_logs(*logs, **options))


def of_logs(
    logs: NodeLog | Mapping[str, NodeLog | None],
    expect: Mapping[str, float],
    iterations: int | None = None,
    *,
    warmup: int = WARMUP,
    seq_length: int | None = None,
    world_size: int | None = None,
    global_batch: int | None = None,
    rdma: bool = False,
    nccl_debug: str | None = None,
    unlogged: int = 0,
    steady: bool = True,
    gpus: Collection[str] = (),
    own: bool = True,
) -> Observed:
    """What the log of one run says: of one node, or of all, by node name. None stands for a log that could not be had.

    `unlogged` is the number of nodes that are in none of the logs.
    `own` says that the program is known to print iteration lines.
    `gpus` are the models of the nodes' GPUs; none: as the logs say.
    `steady` says whether the iterations are to follow each other evenly.
    `expect` holds the bound of each expected metric (`metrics.METRICS`), `iterations` the N of the run (None: what the
    lines say). Raises ValueError, with every fault, for a metric that does not exist or a bound that is no number.
    """
    if faults := unknown_metrics(expect):
        raise ValueError("; ".join(faults))
    if isinstance(logs, NodeLog):
        logs = {"log": logs}
    seen, damaged = iterations_of(logs)
    cut = _fullest(logs).incomplete or ("" if seen else _why_none(logs))
    missing = [name for name, log in logs.items() if log is None]
    crowded = [name for name, log in logs.items() if log and log.beyond]
    contradictions = [] if crowded else _contradictions(logs)
    unjudged = ""
    if crowded:
        unjudged = f"more than {MAX_ITERATIONS} iteration lines in {some(crowded)}"
    elif contradictions:
        unjudged = f"the logs are not of one run: {some(contradictions)}"
    elif missing and not seen:
        unjudged = f"no iteration line, and no log of {some(missing)}"
    elif unlogged and not seen:
        unjudged = f"no iteration line, and {logs_of(logs, unlogged)}: the last rank alone prints them"
    unread = "" if own or seen or unjudged else _unread(logs)
    mlperf = next((log for log in logs.values() if log and log.mlperf), None)
    shape = shape_of([log.shape for log in logs.values() if log])
    figures = measure(seen, warmup, seq_length, world_size, global_batch, summary_of(logs))
    timed = judged_lines(seen, warmup)
    told = tokens_told(timed, seq_length, world_size)
    throughput = any(line.tflops_per_gpu is not None for line in seen) or bool(impossible(timed))
    return Observed(
        logs=logs,
        unlogged=unlogged or None,
        rdma=rdma,
        nccl_debug=nccl_debug,
        iterations=None if mlperf else seen,
        mlperf=mlperf.mlperf if mlperf else None,
        mlperf_cut=mlperf.incomplete if mlperf else "",
        normed=seen if any(line.grad_norm is not None for line in seen) and not mlperf else None,
        damaged=damaged,
        wanted=iterations,
        loaded=shape.loaded,
        exited=shape.exited,
        vocabulary=shape.vocabulary,
        reinforced=shape.reinforced,
        clock=clock(seen, _fullest(logs).stamps),
        figures=figures,
        timed=timed if figures.throughput_per_gpu or figures.tokens_per_gpu or throughput or told else None,
        told_tokens=told,
        gpus=gpus or ([shape.gpu] if shape.gpu else []),
        precision=shape.precision,
        token_flops=shape.token_flops,
        paces=paces(seen, warmup) if steady else None,
        expect=expect,
        unread=bool(unread),
        unjudged=unjudged or unread,
        contradicted=bool(contradictions),
        cut=f"the log is not whole: {cut}" if cut else "",
        shows_failure=_shows_failure(seen),
    )


def unknown_metrics(expect: Mapping[str, float]) -> list[str]:
    """What is wrong with the expected figures, each fault as a sentence; empty when all is well."""
    return [
        f"expect.{name}: no such metric; there are {', '.join(METRICS)}"
        if name not in METRICS
        else f"expect.{name}: {bound!r} is not a number above 0"
        for name, bound in expect.items()
        if name not in METRICS or not _is_bound(bound)
    ]


def _is_bound(bound: object) -> bool:
    return isinstance(bound, int | float) and not isinstance(bound, bool) and math.isfinite(bound) and bound > 0


def iterations_of(logs: Mapping[str, NodeLog | None]) -> tuple[list[Iteration], Collection[int]]:
    """The run's iteration lines, and the numbers of those that are damaged.

    Only the last global rank prints them, so one log has them; where copies exist, the fullest counts.
    """
    log = _fullest(logs)
    return list(log.iterations), set(log.damaged)


def summary_of(logs: Mapping[str, NodeLog | None]) -> Summary:
    """What the job's script printed at its end, on the node that has the iteration lines: on the others it is NaN."""
    return _fullest(logs).summary


def _fullest(logs: Mapping[str, NodeLog | None]) -> NodeLog:
    return max((log for log in logs.values() if log), key=lambda log: len(log.iterations), default=NodeLog())


def _unread(logs: Mapping[str, NodeLog | None]) -> str:
    """Return why nothing is known of logs without an iteration line: they are of no form that is read. Empty: they are
    of one whose lines would be."""
    every = [log for log in logs.values() if log]
    if any(is_read(log.form) for log in every):
        return ""
    name = next((log.form for log in every if log.form), "")
    what = f"{name}, whose iteration lines are not read" if name else "no program that is known"
    return f"no iteration line of a known form: the log is of {what}"


def _why_none(logs: Mapping[str, NodeLog | None]) -> str:
    return next((log.incomplete for log in logs.values() if log and log.incomplete), "")


def _shows_failure(seen: Sequence[Iteration]) -> bool:
    """Whether what a gate found wrong is on the lines: not so where there are none, or where the log ends while
    the loss scale was still being searched and nothing else is wrong."""
    scale = loss_scale(seen)
    return bool(seen) and (scale.ended or any(line.nan_iterations for line in seen))


def _contradictions(logs: Mapping[str, NodeLog | None]) -> list[str]:
    """Iterations that two logs tell differently, or that the fullest log does not have: two runs."""
    with_lines = {name: log for name, log in logs.items() if log and log.iterations}
    if len(with_lines) < 2:
        return []
    fullest = max(with_lines, key=lambda name: len(with_lines[name].iterations))
    known = {it.iteration: it.json() for it in with_lines[fullest].iterations}
    cut = set(with_lines[fullest].damaged)
    whole_run = not with_lines[fullest].incomplete  # else a line that it lacks may be one of those that are missing
    said = []
    for name, log in with_lines.items():
        spoilt = cut | set(log.damaged)
        whole = [it for it in log.iterations if it.iteration not in spoilt and (whole_run or it.iteration in known)]
        if different := [it.iteration for it in whole if known.get(it.iteration) != it.json()]:
            said.append(f"{name} and {fullest} differ in iteration {ranges(different)}")
    return said
