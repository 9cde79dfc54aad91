"""Gates on what a benchmark reported, on its step lines, and on the lines of MLPerf training."""

import math
import statistics
from collections.abc import Sequence

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal, in_unit, some
from shakedown.gates.model import Outcome
from shakedown.gates.observed import Expected, NodeLog, Reading
from shakedown.gates.registry import gate
from shakedown.logs.mad import Figure, Results
from shakedown.logs.metrics import METRICS_OF
from shakedown.logs.mlperf import MlperfRun
from shakedown.state.findings import Verdict


@gate
def report(benchmark: Results, reading: Reading) -> Outcome:
    """Results hold at least one figure: the benchmark's scripts end with 0 whatever became of the training.

    The remedy does not point to the end of a log that is not whole.
    """
    right = bool(benchmark.figures) and not benchmark.problems
    return Outcome(
        verdict=Verdict.OK if right else Verdict.FAIL,
        wanted="at least one figure",
        actual=counted(len(benchmark.figures), "figure"),
        evidence=some(benchmark.problems) or "the report and the log",
        remedy=None if right or reading.cut else advice("benchmark"),
    )


@gate(stands=True)
def figures_finite(benchmark: Results) -> Outcome:
    """Every figure of the benchmark is finite and above 0."""
    reported = benchmark.figures
    bad = [figure for figure in reported if not (math.isfinite(figure.value) and figure.value > 0)]
    verdict = Verdict.FAIL if bad else Verdict.OK if reported else Verdict.UNKNOWN
    shown = ", ".join(f"{figure.metric} = {figure.value} ({figure.source})" for figure in bad)
    wanted, actual = "finite and above 0", f"{len(bad)} that are not" if bad else counted(len(reported), "figure")
    evidence = shown or ", ".join(figure.source for figure in reported) or "there is no figure"
    return Outcome(verdict=verdict, wanted=wanted, actual=actual, evidence=evidence, remedy=advice("benchmark"))


@gate
def steps_complete(benchmark: Results) -> Outcome | None:
    """Step lines of the benchmark go to its last step."""
    steps, total_steps = benchmark.steps, benchmark.total_steps
    if not (steps or benchmark.prints_steps):
        return None
    last = steps[-1].step if steps else None
    verdict = Verdict.UNKNOWN if total_steps is None else Verdict.OK if last == total_steps else Verdict.FAIL
    wanted = counted(total_steps, "step") if total_steps is not None else "an unknown number of steps"
    actual, remedy = f"step {last}" if last is not None else "no step", advice("benchmark")
    evidence = counted(len(steps), "step line") + ("" if total_steps else "; the log does not state the total")
    return Outcome(verdict=verdict, wanted=wanted, actual=actual, evidence=evidence, remedy=remedy)


@gate(stands=True)
def loss_finite(benchmark: Results) -> Outcome | None:
    """Every step line of the benchmark has a finite loss."""
    steps = benchmark.steps
    if not (steps or benchmark.prints_steps):
        return None
    bad = [step.step for step in steps if step.loss is None or not math.isfinite(step.loss)]
    verdict = Verdict.UNKNOWN if not steps else Verdict.FAIL if bad else Verdict.OK
    wanted, actual = "a finite loss on every step line", f"{len(steps) - len(bad)} of {len(steps)}"
    evidence = f"not finite at step {bad[0]}" if bad else counted(len(steps), "step line")
    remedy = advice("loss" if bad else "benchmark")
    return Outcome(verdict=verdict, wanted=wanted, actual=actual, evidence=evidence, remedy=remedy)


@gate(names="each expected metric", stands=True)
def expected_figures(benchmark: Results, expected: Expected) -> dict[str, Outcome]:
    """Even the worst of the benchmark's figures of this metric meets its bound, in the metric's own direction."""
    return {
        name: _expected(name, bound, [figure for figure in benchmark.figures if figure.metric == name])
        for name, bound in expected.bounds.items()
    }


def _expected(name: str, bound: float, figures: Sequence[Figure]) -> Outcome:
    metric = METRICS_OF["mad"][name]
    if not figures:
        evidence, remedy, unit = "neither the report nor the log has this figure", advice("benchmark"), metric.unit
        return Outcome(verdict=Verdict.UNKNOWN, wanted=bound, unit=unit, evidence=evidence, remedy=remedy)
    worst = min(figures, key=lambda figure: metric.meets(figure.value, bound))
    verdict = Verdict.OK if metric.meets(worst.value, bound) else Verdict.FAIL
    wanted, unit, remedy = f"{metric.direction} {decimal(bound)}", metric.unit, advice("slow")
    evidence = f"wanted {metric.direction} {in_unit(decimal(bound), unit)}: {decimal(worst.value)}, {worst.source}"
    return Outcome(verdict=verdict, wanted=wanted, actual=worst.value, unit=unit, evidence=evidence, remedy=remedy)


@gate
def mlperf_run(mlperf: NodeLog) -> Outcome | None:
    """Of a log with MLPerf's lines: each run that began has stopped with the status success, and its accuracies and
    throughputs are numbers. The status aborted fails; one of another name is unknown, and so is a log without a begin,
    and one that is not whole and has no end.
    """
    run = mlperf.mlperf
    if run is None:
        return None
    ended = {status: f"a run stopped with the status {status}" for status in run.statuses if status != "success"}
    failed = [ended.pop("aborted")] if "aborted" in ended else []
    failed += [
        f"{what} {some(wrong)} is not a number of at least 0"
        for what, values in (("eval_accuracy", run.accuracies), ("throughput", run.throughputs))
        if (wrong := [value for value in values if not (math.isfinite(value) and value >= 0)])
    ]
    open_ended = bool(run.starts) and not run.statuses
    doubtful = list(ended.values()) + ([] if run.starts else ["no line says that a run began"])
    if open_ended:
        (doubtful if mlperf.incomplete or run.damaged else failed).append(
            "a run began, and no line says that it stopped"
        )
    if run.damaged and (open_ended or not run.starts):
        doubtful.append(f"{counted(run.damaged, 'line')} of MLPerf cannot be read")
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if doubtful else Verdict.OK
    actual, remedy = ", ".join(dict.fromkeys(run.statuses)) or None, advice("unfinished")
    evidence = "; ".join([*failed, *doubtful, *_seen(run)])
    return Outcome(verdict=verdict, wanted="success", actual=actual, evidence=evidence, remedy=remedy)


def _seen(run: MlperfRun) -> list[str]:
    texts = [f"{counted(run.lines, 'line')} of MLPerf training{f', {run.benchmark}' * bool(run.benchmark)}"]
    if run.begun_ms is not None and run.stopped_ms is not None:
        texts.append(f"{decimal((run.stopped_ms - run.begun_ms) / 60_000, 4)} min from begin to stop")
    if run.accuracies:
        texts.append(f"the last of {counted(len(run.accuracies), 'evaluation')} reached {decimal(run.accuracies[-1])}")
    if run.throughputs:
        texts.append(f"mean throughput {decimal(statistics.fmean(run.throughputs))} samples/s")
    return texts
