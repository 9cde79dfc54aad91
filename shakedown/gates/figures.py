"""Gates on the expected figures, each in its metric's own direction."""

from collections.abc import Collection, Mapping

from shakedown.catalogue import advice
from shakedown.common.frozen import Frozen
from shakedown.common.text import counted, decimal
from shakedown.gates.baselines.model import Baseline
from shakedown.gates.model import Outcome
from shakedown.gates.observed import Expected, Speed
from shakedown.gates.registry import gate
from shakedown.logs.figures import Figure, Figures
from shakedown.logs.metrics import METRICS
from shakedown.state.findings import Verdict


class Recorded(Frozen):
    """A figure that is kept for the report and not judged: no bound is expected of it, and there are too few earlier
    runs. `value` None: the log does not have it."""

    name: str
    value: float | None
    unit: str
    why: str = ""  # what earlier runs say of it, or how many of those that it takes there are


@gate(names="each expected metric")
def expected_figures(expected: Expected, speed: Speed) -> dict[str, Outcome]:
    """One figure against its bound, in the metric's own direction. A figure that cannot be had fails. Statistic: the
    mean of the judged iterations, as published figures are means."""
    return {name: _expected(name, bound, speed.figures) for name, bound in expected.bounds.items()}


def _expected(name: str, bound: float, figures: Figures) -> Outcome:
    metric, figure = METRICS[name], figures.get(name)
    met = figure is not None and metric.meets(figure.mean, bound)
    return Outcome(
        verdict=Verdict.OK if met else Verdict.FAIL,
        wanted=bound,
        actual=figure.mean if figure else None,
        unit=metric.unit,
        evidence=f"wanted {metric.direction} {decimal(bound)}: {_evidence(figure, figures)}",
        remedy=None if met else _remedy(name, figure),
    )


def recorded(
    judged: Collection[str], figures: Figures, baselines: Mapping[str, Baseline] | None = None
) -> list[Recorded]:
    """Return the metrics that no gate has `judged`, with what was measured, and why `baselines` do not judge it."""
    return [
        Recorded(
            name=name,
            value=_value(figures, name),
            unit=metric.unit,
            why=str((baselines or {}).get(name, "")),
        )
        for name, metric in METRICS.items()
        if name not in judged
    ]


def _value(figures: Figures, name: str) -> float | None:
    figure = figures.get(name)
    return figure.value if figure else None


def _evidence(figure: Figure | None, figures: Figures) -> str:
    if not figures.steady:
        return "no steady iterations: more than 3 are needed, since the first two and the last do not count"
    if figure is None:
        return f"none of the {figures.steady} steady iterations has it, or a value is not finite"
    if figure.summary:
        return "the mean that the job's script printed at its end; no iteration line has it"
    spread = "" if figure.spread is None else f", quartiles {decimal(figure.spread, 4)} apart"
    derived = ", derived from batch, sequence length and time" if figure.derived else ""
    return f"mean of {counted(figure.count, 'steady iteration')}, median {decimal(figure.value)}{spread}{derived}"


def _remedy(name: str, figure: Figure | None) -> str:
    if figure is None:
        return advice("no_figure")
    return advice("memory" if name == "mem_usage" else "slow")
