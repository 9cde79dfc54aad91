"""The gates of a benchmark on one node. What could not be seen never passes."""

from __future__ import annotations

import math
import statistics

from shakedown.desired.models import Benchmark
from shakedown.findings import Verdict
from shakedown.smoke.benchmark.document import document
from shakedown.smoke.benchmark.results import Figure, Results
from shakedown.smoke.gates import Gate
from shakedown.smoke.signatures import advice

STEADY = slice(30, 40)  # the steps that MAD's own report takes the mean of


def judge(node: str, results: Results, exit_code: int | None, wanted: Benchmark, incomplete: str = "") -> list[Gate]:
    """All gates of one node, by what was asked for; an expected figure is judged in its metric's own direction.
    `incomplete` says why the log or the report is not whole: then only a failure that was seen stands."""
    figures = figures_of(results)
    steps_wanted = wanted.mode in document().models[wanted.model].steps
    gates = [_there(results, figures), _finite(figures)]
    if results.steps or steps_wanted:
        gates += [_complete(results), _loss(results)]
    gates += [_expected(metric, bound, figures) for metric, bound in wanted.expect.items()]
    if incomplete:
        gates = [_of_a_part(gate, incomplete) for gate in gates]
    gates.insert(0, _exit(exit_code))
    return [gate.model_copy(update={"name": f"{gate.name}.{node}"}) for gate in gates]


def not_run(node: str, why: str) -> Gate:
    """Of a job that did not come to its end."""
    return Gate(name=f"ran.{node}", verdict=Verdict.FAIL, wanted="ran to its end", evidence=why)


def _of_a_part(gate: Gate, why: str) -> Gate:
    if gate.verdict is Verdict.FAIL and gate.name not in ("report", "steps_complete"):
        return gate
    evidence = f"{gate.evidence}; but the log or the report is not whole: {why}"
    return gate.model_copy(update={"verdict": Verdict.UNKNOWN, "evidence": evidence, "remedy": advice("incomplete")})


def figures_of(results: Results) -> list[Figure]:
    """The report's figures and the summaries'; where there are neither, the means of torchtitan's steady steps."""
    if results.figures or len(results.steps) < STEADY.stop:
        return results.figures
    steady = results.steps[STEADY]
    found = []
    for metric in ("tokens_per_gpu", "throughput_per_gpu"):
        values = [value for step in steady if (value := getattr(step, metric)) is not None]
        if len(values) == len(steady):
            source = f"log, mean of steps {steady[0].step} to {steady[-1].step}"
            found.append(Figure(metric=metric, value=statistics.fmean(values), source=source))
    return found


def _exit(code: int | None) -> Gate:
    verdict = Verdict.UNKNOWN if code is None else Verdict.OK if code == 0 else Verdict.FAIL
    return Gate(name="exit_code", verdict=verdict, wanted=0, actual=code, evidence="of the container")


def _there(results: Results, figures: list[Figure]) -> Gate:
    """The scripts end with 0 whatever became of the training, so a run without a figure has failed."""
    right = bool(figures) and not results.problems
    return Gate(
        name="report",
        verdict=Verdict.OK if right else Verdict.FAIL,
        wanted="at least one figure",
        actual=f"{len(figures)} figures",
        evidence="; ".join(results.problems) or "the report and the log",
        remedy=None if right else "read the log from its end: the first error of the program is there",
    )


def _finite(figures: list[Figure]) -> Gate:
    bad = [figure for figure in figures if not (math.isfinite(figure.value) and figure.value > 0)]
    verdict = Verdict.FAIL if bad else Verdict.OK if figures else Verdict.UNKNOWN
    shown = ", ".join(f"{figure.metric} = {figure.value} ({figure.source})" for figure in bad)
    return Gate(
        name="figures_finite",
        verdict=verdict,
        wanted="finite and above 0",
        actual=f"{len(bad)} that are not" if bad else f"{len(figures)} figures",
        evidence=shown or ", ".join(figure.source for figure in figures) or "there is no figure",
    )


def _complete(results: Results) -> Gate:
    last = results.steps[-1].step if results.steps else None
    total = results.total_steps
    verdict = Verdict.UNKNOWN if total is None else Verdict.OK if last == total else Verdict.FAIL
    return Gate(
        name="steps_complete",
        verdict=verdict,
        wanted=f"{total if total is not None else 'an unknown number of'} steps",
        actual=f"step {last}" if last is not None else "no step",
        evidence=f"{len(results.steps)} step lines" + ("" if total else "; no line says how many there are to be"),
    )


def _loss(results: Results) -> Gate:
    losses = [step.loss for step in results.steps]
    bad = [step.step for step in results.steps if step.loss is None or not math.isfinite(step.loss)]
    verdict = Verdict.UNKNOWN if not losses else Verdict.FAIL if bad else Verdict.OK
    return Gate(
        name="loss_finite",
        verdict=verdict,
        wanted="a finite loss on every step line",
        actual=f"{len(losses) - len(bad)} of {len(losses)}",
        evidence=f"not finite at step {bad[0]}" if bad else f"{len(losses)} step lines",
    )


def _expected(metric: str, bound: float, figures: list[Figure]) -> Gate:
    known = document().metrics[metric]
    found = [figure for figure in figures if figure.metric == metric]
    if not found:
        evidence = "neither the report nor the log has this figure"
        return Gate(name=metric, verdict=Verdict.UNKNOWN, wanted=bound, unit=known.unit, evidence=evidence)
    worst = min(found, key=lambda figure: known.meets(figure.value, bound))
    return Gate(
        name=metric,
        verdict=Verdict.OK if known.meets(worst.value, bound) else Verdict.FAIL,
        wanted=f"{known.direction} {bound:g}",
        actual=worst.value,
        unit=known.unit,
        evidence=worst.source,
    )
