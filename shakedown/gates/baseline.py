"""Whether a figure is as good as those of earlier passes of the same job."""

from __future__ import annotations

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import Baseline, Past, short
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate, gate_of_each_metric
from shakedown.logs.figures import Figures
from shakedown.logs.metrics import metric_of
from shakedown.state.findings import Verdict

PREFIX = "baseline."


@gate
def baseline_known(no_past: str) -> Outcome:
    """The figures can be compared with those of earlier runs; asked only where nobody can say what those were."""
    return Outcome(verdict=Verdict.UNKNOWN, evidence=no_past, remedy=advice("no_past"))


@gate_of_each_metric(over="past", prefix=PREFIX)
def figure_and_past(metric: str, past: Past, figures: Figures) -> Outcome:
    """One figure is no worse than earlier passes of the same job differ anyway, nor are the last runs together with it.
    Statistic: the median of the judged iterations, and in a gate of its own (`.mean`) their mean.

    docs/baselines.md has the method. With fewer earlier runs than it needs the gate is not asked.
    """
    known, value = metric_of(metric), figures.values().get(metric)
    earlier = past.of_metric(metric)
    if value is None:
        evidence = f"this run has no such figure, and {len(earlier)} earlier ones have"
        return Outcome(verdict=Verdict.UNKNOWN, unit=known.unit, evidence=evidence, remedy=advice("no_figure"))
    found = compare(past, metric, value, known.direction)
    return Outcome(
        verdict=Verdict.OK if not found.lost else Verdict.WARN if found.reported else Verdict.FAIL,
        wanted=found.bound,
        actual=found.recent,
        unit=known.unit,
        evidence=_evidence(found, past, metric, [run.run_id for run in earlier]),
        remedy=advice("worse_than_before") if found.lost else None,
    )


def _evidence(found: Baseline, past: Past, metric: str, runs: list[str]) -> str:
    assert found.centre is not None and found.error is not None and found.spread is not None
    said = [f"wanted {found.direction} {found.bound:.6g}"]
    if found.runs > 1:
        last = some([*runs[found.earlier :], "this one"])
        said.append(f"the last {found.runs} runs ({last}) are at {found.recent:.6g}, this one at {found.value:.6g}")
    before = f"{counted(found.earlier, 'run')} before: {found.centre:.6g} +- {short(found.error)}"
    said.append(f"{before}, one run differs by {short(found.spread)} ({some(runs[: found.earlier][::-1])})")
    if peers := past.peers.get(metric):
        said.append(f"{peers.nodes} other nodes differ by {100 * peers.noise:.2g} % from run to run")
    said.append(past.epoch)
    if found.since:
        what = "again at the level that was reported" if found.reported else "the level has changed"
        accept = "to accept it, give the day as smoke.baseline_since and your name as smoke.baseline_by"
        said.append(f"{what}, since run {found.since}; {accept}")
    said += [past.before] if past.before else []
    if past.since:
        said.append(f"since {past.since} (smoke.baseline_since{f', accepted by {past.by}' if past.by else ''})")
    return "; ".join(said)
