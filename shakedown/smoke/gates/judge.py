"""The gates that need nothing but the nodes' logs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from shakedown.findings import Verdict
from shakedown.smoke.figures import METRICS, WARMUP, measure
from shakedown.smoke.gates.evidence import no_failure_signature, rccl_tuning
from shakedown.smoke.gates.figures import figure_gate
from shakedown.smoke.gates.iterations import iterations_complete, loss_falling, loss_finite, no_skipped_or_nan
from shakedown.smoke.gates.model import Gate, ranges, some
from shakedown.smoke.gates.node_log import NodeLog
from shakedown.smoke.log import MAX_ITERATIONS, Iteration, Summary
from shakedown.smoke.loss_scale import loss_scale
from shakedown.smoke.signatures import advice


def judge_log(
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
) -> list[Gate]:
    """Judges the log of one run: of one node, or of all, by node name. None stands for a log that could not be had.

    `expect` holds the bound of each expected metric (`figures.METRICS`), `iterations` the N of the run (None: what the
    lines say). Raises ValueError, with every fault, for a metric that does not exist or a bound that is no number.
    """
    if faults := unknown_metrics(expect):
        raise ValueError("; ".join(faults))
    if isinstance(logs, NodeLog):
        logs = {"log": logs}
    seen, damaged = iterations_of(logs)
    cut = _fullest(logs).incomplete or ("" if seen else _why_none(logs))
    missing = [name for name, log in logs.items() if log is None]
    if crowded := [name for name, log in logs.items() if log and log.beyond]:
        gates = _unjudged(expect, f"more than {MAX_ITERATIONS} iteration lines in {some(crowded)}", Verdict.UNKNOWN)
    elif contradictions := _contradictions(logs):
        gates = _unjudged(expect, f"the logs are not of one run: {some(contradictions)}", Verdict.FAIL)
    elif missing and not seen:
        gates = _unjudged(expect, f"no iteration line, and no log of {some(missing)}", Verdict.UNKNOWN)
    else:
        figures = measure(seen, warmup, seq_length, world_size, global_batch, summary_of(logs))
        gates = [
            iterations_complete(seen, iterations, damaged),
            loss_finite(seen, damaged),
            no_skipped_or_nan(seen),
            loss_falling(seen),
            *(figure_gate(name, bound, figures) for name, bound in expect.items()),
        ]
        gates = [_of_a_part(gate, cut, _shows_failure(seen)) for gate in gates] if cut else gates
    return [*gates, no_failure_signature(logs), rccl_tuning(logs, rdma, nccl_debug)]


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


def _why_none(logs: Mapping[str, NodeLog | None]) -> str:
    return next((log.incomplete for log in logs.values() if log and log.incomplete), "")


# What shows in a part of a log and cannot be otherwise in the whole of it; the others compare with what is missing.
_SEEN = ("loss_finite", "no_skipped_or_nan")


def _shows_failure(seen: Sequence[Iteration]) -> bool:
    """Whether what these gates found wrong is on the lines: not so where there are none, or where the log ends while
    the loss scale was still being searched and nothing else is wrong."""
    scale = loss_scale(seen)
    return bool(seen) and (scale.ended or bool(scale.later) or any(line.nan_iterations for line in seen))


def _of_a_part(gate: Gate, why: str, seen: bool) -> Gate:
    """A gate over a log that is not whole: only a failure that was seen stands."""
    if gate.verdict is Verdict.FAIL and gate.name in _SEEN and seen:
        return gate
    evidence = f"{gate.evidence}; but the log is not whole: {why}"
    return gate.model_copy(
        update={"verdict": Verdict.UNKNOWN, "evidence": evidence, "remedy": gate.remedy or advice("incomplete")}
    )


def _contradictions(logs: Mapping[str, NodeLog | None]) -> list[str]:
    """Iterations that two logs tell differently, or that the fullest log does not have: two runs."""
    with_lines = {name: log for name, log in logs.items() if log and log.iterations}
    if len(with_lines) < 2:
        return []
    fullest = max(with_lines, key=lambda name: len(with_lines[name].iterations))
    known = {it.iteration: it.model_dump_json() for it in with_lines[fullest].iterations}  # as text, NaN equals NaN
    cut = set(with_lines[fullest].damaged)
    whole_run = not with_lines[fullest].incomplete  # else a line that it lacks may be one of those that are missing
    said = []
    for name, log in with_lines.items():
        spoilt = cut | set(log.damaged)
        whole = [it for it in log.iterations if it.iteration not in spoilt and (whole_run or it.iteration in known)]
        if different := [it.iteration for it in whole if known.get(it.iteration) != it.model_dump_json()]:
            said.append(f"{name} and {fullest} differ in iteration {ranges(different)}")
    return said


def _unjudged(expect: Mapping[str, float], why: str, verdict: Literal[Verdict.FAIL, Verdict.UNKNOWN]) -> list[Gate]:
    """The gates on iteration lines when nobody can say which lines, if any, are the run's."""
    remedy = advice("unfinished")
    names = ("loss_finite", "no_skipped_or_nan", "loss_falling", *expect)
    return [
        Gate(name="iterations_complete", verdict=verdict, evidence=why, remedy=remedy),
        *(Gate(name=name, verdict=Verdict.UNKNOWN, evidence=why, remedy=remedy) for name in names),
    ]
