"""Whether a figure is as good as those of earlier passes of the same job."""

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal, short
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import Baseline, Past
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import Expected, Speed
from shakedown.gates.registry import gate
from shakedown.logs.metrics import metric_of
from shakedown.state.findings import Verdict

PREFIX = "baseline."


@gate
def baseline_known(expected: Expected) -> Outcome | None:
    """Earlier runs, with which the figures are to be compared, could be read; skipped where they were."""
    past = expected.past
    if past is None or not (past.judge and past.problem):
        return None
    return Outcome(verdict=Verdict.UNKNOWN, evidence=past.problem, remedy=advice("no_past"))


@gate(names="`baseline.METRIC`")
def figures_and_past(expected: Expected, speed: Speed) -> dict[str, Outcome]:
    """One figure is no worse than earlier passes of the same job differ anyway, nor are the last runs together with it.
    Statistic: the median of the judged iterations, and in a gate of its own (`.mean`) their mean.

    docs/ledger.md has the method. With fewer earlier runs than it needs the gate is skipped.
    """
    values = speed.figures.values()
    judged = expected.past.judged if expected.past else {}
    return {PREFIX + metric: _compared(past, metric, values.get(metric)) for metric, past in judged.items()}


def _compared(past: Past, metric: str, value: float | None) -> Outcome:
    unit, direction = metric_of(metric).unit, metric_of(metric).direction
    earlier = past.of_metric(metric)
    if value is None:
        evidence = f"this run has no such figure, and {len(earlier)} earlier ones have"
        return Outcome(verdict=Verdict.UNKNOWN, unit=unit, evidence=evidence, remedy=advice("no_figure"))
    baseline = compare(past, metric, value, direction)
    return Outcome(
        verdict=Verdict.OK if not baseline.lost else Verdict.WARN if baseline.reported else Verdict.FAIL,
        wanted=baseline.bound,
        actual=baseline.recent,
        unit=unit,
        evidence=_evidence(baseline, past, metric, [run.run_id for run in earlier]),
        remedy=advice("worse_than_before") if baseline.lost else None,
    )


def _evidence(baseline: Baseline, past: Past, metric: str, runs: list[str]) -> str:
    assert baseline.centre is not None and baseline.error is not None and baseline.spread is not None
    texts = [f"wanted {baseline.direction} {decimal(baseline.bound)}"]
    if baseline.runs > 1:
        last = some([*runs[baseline.earlier :], "this one"])
        texts.append(
            f"the last {baseline.runs} runs ({last}) are at {decimal(baseline.recent)}, "
            f"this one at {decimal(baseline.value)}"
        )
    before = f"{counted(baseline.earlier, 'run')} before: {decimal(baseline.centre)} +- {short(baseline.error)}"
    texts.append(f"{before}, one run differs by {short(baseline.spread)} ({some(runs[: baseline.earlier][::-1])})")
    if peers := past.peers.get(metric):
        texts.append(f"{peers.nodes} other nodes differ by {100 * peers.noise:.2g} % from run to run")
    texts.append(past.epoch)
    if baseline.since:
        level = "again at the level that was reported" if baseline.reported else "the level has changed"
        accept = "to accept the level, give the day as smoke.baseline_since and your name as smoke.baseline_by"
        texts.append(f"{level}, since run {baseline.since}; {accept}")
    texts += [past.before] if past.before else []
    if past.since:
        texts.append(f"since {past.since} (smoke.baseline_since{f', accepted by {past.by}' if past.by else ''})")
    return "; ".join(texts)
