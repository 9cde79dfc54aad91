"""Gates on what a benchmark reported, and on its step lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shakedown.common.text import counted
from shakedown.gates.model import Outcome
from shakedown.gates.registry import gate, gate_of_each_metric
from shakedown.jobs.benchmark.results import Figure, Step
from shakedown.recipes.benchmark import document
from shakedown.state.findings import Verdict


@gate
def report(reported: Sequence[Figure], problems: Sequence[str], cut: str = "") -> Outcome:
    """The benchmark has a figure: its scripts end with 0 whatever became of the training.

    Nobody is sent to the end of a log that is not whole (`cut`).
    """
    right = bool(reported) and not problems
    return Outcome(
        verdict=Verdict.OK if right else Verdict.FAIL,
        wanted="at least one figure",
        actual=counted(len(reported), "figure"),
        evidence="; ".join(problems) or "the report and the log",
        remedy=None if right or cut else "read the log from its end: the first error of the program is there",
    )


@gate(stands=True)
def figures_finite(reported: Sequence[Figure]) -> Outcome:
    """Every figure of the benchmark is finite and above 0."""
    bad = [figure for figure in reported if not (math.isfinite(figure.value) and figure.value > 0)]
    verdict = Verdict.FAIL if bad else Verdict.OK if reported else Verdict.UNKNOWN
    shown = ", ".join(f"{figure.metric} = {figure.value} ({figure.source})" for figure in bad)
    return Outcome(
        verdict=verdict,
        wanted="finite and above 0",
        actual=f"{len(bad)} that are not" if bad else counted(len(reported), "figure"),
        evidence=shown or ", ".join(figure.source for figure in reported) or "there is no figure",
    )


@gate
def steps_complete(steps: Sequence[Step], total_steps: int | None = None) -> Outcome:
    """The benchmark's last step line is that of its last step."""
    last = steps[-1].step if steps else None
    verdict = Verdict.UNKNOWN if total_steps is None else Verdict.OK if last == total_steps else Verdict.FAIL
    return Outcome(
        verdict=verdict,
        wanted=counted(total_steps, "step") if total_steps is not None else "an unknown number of steps",
        actual=f"step {last}" if last is not None else "no step",
        evidence=counted(len(steps), "step line") + ("" if total_steps else "; no line says how many there are to be"),
    )


@gate(stands=True)
def loss_finite(steps: Sequence[Step]) -> Outcome:
    """Every step line of the benchmark has a finite loss."""
    bad = [step.step for step in steps if step.loss is None or not math.isfinite(step.loss)]
    verdict = Verdict.UNKNOWN if not steps else Verdict.FAIL if bad else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted="a finite loss on every step line",
        actual=f"{len(steps) - len(bad)} of {len(steps)}",
        evidence=f"not finite at step {bad[0]}" if bad else counted(len(steps), "step line"),
    )


@gate_of_each_metric(stands=True)
def expected(metric: str, bound: float, reported: Sequence[Figure]) -> Outcome:
    """The worst of the benchmark's figures of this metric meets its bound, in the metric's own direction."""
    known = document().metrics[metric]
    found = [figure for figure in reported if figure.metric == metric]
    if not found:
        evidence = "neither the report nor the log has this figure"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=bound, unit=known.unit, evidence=evidence)
    worst = min(found, key=lambda figure: known.meets(figure.value, bound))
    return Outcome(
        verdict=Verdict.OK if known.meets(worst.value, bound) else Verdict.FAIL,
        wanted=f"{known.direction} {bound:g}",
        actual=worst.value,
        unit=known.unit,
        evidence=worst.source,
    )
