"""A run's figures beside those of earlier runs, with the band in which a run of these nodes usually lies."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from shakedown.common.text import counted, decimal, printable
from shakedown.gates.baselines.model import Baseline
from shakedown.ledger.history import History
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview
from shakedown.report.page.plots import LINES, Plot
from shakedown.report.page.svg import Chart
from shakedown.report.page.times import moment
from shakedown.runs.records import Evidence

JOBS = 4  # of which there are plots: nodes by themselves may be hundreds
BAND = 1.96
"""Standard deviations on either side of the centre: 95 % of runs lie there where they differ as a normal
distribution."""

Run = tuple[datetime, float]


def of(shown: Overview, evidence: Mapping[str, Evidence]) -> list[Plot]:
    """Return a plot for each figure that earlier runs have; of the job over all nodes first."""
    now = moment(shown.started)
    made = []
    for job in sorted(shown.jobs, key=lambda job: job.node is not None)[:JOBS]:
        past = evidence.get(job.name, Evidence()).past
        for name, metric in METRICS.items():
            figure = job.figures.get(name) if job.figures else None
            runs = [(run.at, run.figures[name]) for run in past.of_metric(name)] if past else []
            if figure is not None and runs and now is not None:
                where = f" of {job.node}" if job.node else ""
                title = f"earlier runs{where}: {name} [{metric.unit}]"
                expected = job.plan.expect.get(name) if job.plan else None
                known = job.baselines.get(name)
                made.append(history(printable(title, 200), runs, (now, figure.value), known, expected))
    return made


def history(
    title: str, runs: Sequence[Run], this: Run | None, baseline: Baseline | None = None, expected: float | None = None
) -> Plot:
    """Draw earlier runs as points over the days, this one as a mark of its own, the band of the baseline, and what is
    expected."""
    chart = Chart(days=True)
    if expected is not None:
        chart.bound(expected, f"expected {decimal(expected)}")
    if baseline is not None and baseline.centre is not None and baseline.spread is not None:
        low, high = (baseline.centre + sign * BAND * baseline.spread for sign in (-1, 1))
        chart.band(low, high, baseline.centre, "95 % of runs")
        if baseline.bound is not None:
            chart.bound(baseline.bound, f"{baseline.direction} {decimal(baseline.bound, 4)}")
    chart.points([(at.timestamp(), value) for at, value in runs], "earlier")
    if this is not None:
        worse = baseline is not None and bool(baseline.lost)
        chart.diamond((this[0].timestamp(), this[1]), "this run", worse)
    values = [value for _, value in runs]
    alt = f"{title}: {counted(len(runs), 'run')} from {decimal(min(values))} to {decimal(max(values))}"
    if this is not None:
        alt += f", this one {decimal(this[1])}"
    if baseline is not None:
        alt += f"; {baseline}"
    return Plot(title, printable(alt, 2000), chart.image())


def weeks(history: History | None) -> list[Plot]:
    """Return what a ledger's runs measured: for each figure the jobs over all nodes, those of one recipe on as many
    nodes as one line. Runs that did not pass are in it as well: that is what is looked for here."""
    made: list[Plot] = []
    for name, metric in METRICS.items() if history else ():
        assert history is not None
        lines: dict[str, list[Run]] = {}
        for row in reversed(history.runs):
            for job in row.jobs:
                if name in job.figures:
                    what = f"{printable(job.recipe, 60)}, {counted(job.nodes, 'node')}"
                    lines.setdefault(what, []).append((row.at, job.figures[name]))
        if lines:
            made.append(_over_weeks(f"{name} [{metric.unit}]", dict(list(lines.items())[:LINES])))
    return made


def _over_weeks(title: str, lines: Mapping[str, Sequence[Run]]) -> Plot:
    chart = Chart(days=True)
    for number, (name, runs) in enumerate(lines.items()):
        chart.line([(at.timestamp(), value) for at, value in runs], number, name, marked=len(runs) < 200)
    ends = [
        f"{name}: {counted(len(runs), 'run')}, {decimal(runs[0][1], 4)} to {decimal(runs[-1][1], 4)}"
        for name, runs in lines.items()
    ]
    return Plot(title, f"{title} over time; {'; '.join(ends)}", chart.image())
