"""The page's plots: iterations, earlier runs, telemetry over time, and nodes by findings or by nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.results import Timing
from shakedown.evidence.telemetry.summary import channels, each_device
from shakedown.gates.baselines.model import Baseline
from shakedown.gates.registry import OF_THE_END
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview
from shakedown.report.page.squares import moment
from shakedown.report.page.svg import Chart, Point, cells, heat_colour
from shakedown.runs import copies
from shakedown.runs.directory import Evidence, JobRecord
from shakedown.state.findings import Verdict
from shakedown.trials.models import Matrix, TrialsRecord

if TYPE_CHECKING:
    from shakedown.ledger.history import History

LINES = 8  # in one plot: more cannot be told apart
SERIES = {
    "lm_loss": "loss",
    "tflops_per_gpu": "throughput [TFLOP/s/GPU]",
    "tokens_per_gpu_per_s": "throughput [tokens/s/GPU]",
    "elapsed_ms": "time of an iteration [ms]",
}
VERDICT_COLOURS = {
    None: bytes((128, 128, 128, 20)),
    Verdict.OK: bytes((46, 140, 87, 89)),
    Verdict.WARN: bytes((87, 181, 232, 255)),
    Verdict.DRIFT: bytes((230, 158, 0, 255)),
    Verdict.UNKNOWN: bytes((204, 120, 166, 255)),
    Verdict.FAIL: bytes((179, 38, 31, 255)),
}


@dataclass(frozen=True)
class Plot:
    """One plot: what it shows, in words too, for who does not see it."""

    title: str
    alt: str
    image: str  # data URI


def of_iterations(shown: Overview) -> list[Plot]:
    """Draw a run's jobs over their iterations."""
    jobs = [job for job in shown.jobs if job.iterations][:LINES]
    failed = {gate.job for gate in shown.gates if gate.verdict == Verdict.FAIL}
    made = [_over_iterations(jobs, field, label, failed) for field, label in SERIES.items()]
    return [plot for plot in made if plot is not None]


def _over_iterations(jobs: Sequence[JobRecord], field: str, label: str, failed: set[str]) -> Plot | None:
    lines = []
    for job in jobs:
        points = [(float(it.iteration), value) for it in job.iterations if (value := getattr(it, field)) is not None]
        if points:
            lines.append((job, points))
    if not lines:
        return None
    chart = Chart("iteration")
    for number, (job, points) in enumerate(lines):
        chart.line(points, number, job.node or "all nodes", marked=len(points) == 1)
        planned = job.plan.iterations if job.plan else 0
        if job.name in failed and points[-1][0] < planned:
            chart.mark(points[-1][0], "the job ended here")
    bounds = {bound for job, points in lines for bound in _expected(job, points, field)}
    for bound, words in sorted(bounds):
        chart.bound(bound, words)
    ends = [
        f"{job.node or 'all nodes'}: {counted(len(p), 'iteration')}, {decimal(p[0][1], 4)} to {decimal(p[-1][1], 4)}"
        for job, p in lines
    ]
    words = "; ".join(dict.fromkeys(words for _, words in sorted(bounds))) or "nothing is expected of it"
    alt = f"{label} by iteration; {words}; {'; '.join(ends)}"
    return Plot(label if bounds else f"{label}, of which nothing is expected", alt, chart.image(legend=True))


def _expected(job: JobRecord, points: Sequence[Point], field: str) -> Iterator[tuple[float, str]]:
    """Yield what is expected of a curve, with its words. Time and tokens follow from the expected TFLOP/s, where they
    have no bound of their own: a plan's iteration has a fixed number of operations."""
    if field == "lm_loss":
        yield points[0][1], "has to fall from its start"
    metric = next((metric for metric in METRICS.values() if metric.source == field), None)
    if metric is None or job.plan is None:
        return
    bound, expect = (job.plan.expect.get(name) for name in (metric.name, "throughput_per_gpu"))
    own, speed = (job.figures and job.figures.get(name) for name in (metric.name, "throughput_per_gpu"))
    if bound is not None:
        yield bound, f"expected {metric.direction} {decimal(bound)}"
    elif expect and own and speed and speed.value:
        share = expect / speed.value if metric.direction == "at least" else speed.value / expect
        derived = decimal(own.value * share, 4)
        yield own.value * share, f"{metric.direction} {derived}, from {decimal(expect)} TFLOP/s/GPU"


def verdicts(by_node: Sequence[Sequence[Verdict | None]], nodes: Sequence[str], columns: Sequence[str]) -> str:
    """Draw nodes by findings as one image: a row for each node, in inventory order."""
    rows = [b"".join(VERDICT_COLOURS[cell] for cell in row) for row in by_node]
    return cells(rows, nodes, columns, (max(440, 11 * len(columns)), max(150, 1.6 * len(nodes))))


def heat(pairs: Sequence[Sequence[float | None]], names: Sequence[str]) -> str:
    """Draw a value for every pair of nodes; a pair without one stays blank."""
    values = [value for row in pairs for value in row if value is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)
    scale = high - low or 1.0
    rows = [b"".join(bytes(4) if v is None else heat_colour((v - low) / scale) for v in row) for row in pairs]
    return cells(rows, names, names, (440, 380), (low, high))


def of_trials(record: TrialsRecord) -> list[Plot]:
    """Draw what every pair of nodes measured."""
    again = ", in a fresh run"
    which = [*((matrix, "") for matrix in record.matrices), *((matrix, again) for matrix in record.matrices_again)]
    return [_pairs(matrix, words) for matrix, words in which if matrix.cells]


def _pairs(matrix: Matrix, which: str) -> Plot:
    middle = {(a, b): median(values) for a, row in matrix.cells.items() for b, values in row.items() if values}
    rows = [[middle.get((sender, receiver)) for receiver in matrix.nodes] for sender in matrix.nodes]
    title = f"{matrix.trial}: {matrix.figure}{f' over {matrix.rail}' if matrix.rail else ''} [{matrix.unit}]{which}"
    slow = ", ".join(f"{a} to {b}" for a, b in matrix.slow[:8]) or "no pair"
    alt = f"{title}, sender by receiver, {counted(len(matrix.nodes), 'node')}; slow in every repetition: {slow}"
    alt += f"; nothing came from {counted(len(matrix.missing), 'pair')}" if matrix.missing else ""
    names = [printable(name, 40) for name in matrix.nodes]
    return Plot(printable(title, 200), printable(alt, 2000), heat(rows, names))


JOBS = 4  # of which there are plots: nodes by themselves may be hundreds
BAND = 1.96
"""Standard deviations on either side of the centre: 95 % of normally distributed runs."""

Run = tuple[datetime, float]


def of_earlier(shown: Overview, evidence: Mapping[str, Evidence]) -> list[Plot]:
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
    """Draw earlier runs over the days, this one, the baseline's band, and the bound."""
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
    """Plot a ledger's figures, failed runs too: jobs over all nodes, one line for each recipe and node count."""
    made: list[Plot] = []
    runs = reversed(history.runs) if history else ()
    jobs = [
        (f"{printable(job.recipe, 60)}, {counted(job.nodes, 'node')}", row.at, job) for row in runs for job in row.jobs
    ]
    for name, metric in METRICS.items():
        if lines := grouped((what, (at, job.figures[name])) for what, at, job in jobs if name in job.figures):
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


MARKS = 6  # iterations that are named above a plot of telemetry, which shows the mean of a node's devices


_Moment = tuple[float, str]  # seconds since the job began, and what happened


def of_telemetry(shown: Overview, evidence: Mapping[str, Evidence]) -> list[Plot]:
    """Return the plots of the job over all nodes, or else of the first that was sampled."""
    if shown.directory is None:
        return []
    for job in sorted(shown.jobs, key=lambda job: job.node is not None):
        kept = evidence.get(job.name)
        if kept is not None and job.telemetry:
            names = _chosen(shown, job)
            logs = {name: kept.logs.get(name, []) for name in names}
            found = copies.watched(shown.directory, logs, kept.timing)
            series = {name: samples for name, samples in found.series.items() if samples is not None and samples.times}
            zero = kept.timing.started_at
            lines: dict[str, dict[str, list[Point]]] = {}
            for name, samples in series.items():
                clock = kept.timing.clocks.get(name)
                for kind in (channel.name for channel in channels().values() if channel.plot):
                    points = _mean(list(each_device(samples, kind).values()))
                    if points and clock is not None and zero is not None:
                        lines.setdefault(kind, {})[name] = [(clock.at(when) - zero, value) for when, value in points]
            moments = list(_moments(shown, job, kept.timing))
            few = "" if len(job.telemetry) <= len(names) else f", {len(names)} of {counted(len(job.telemetry), 'node')}"
            return [_plot(kind, points, moments, kept.timing, few) for kind, points in lines.items()]
    return []


def _chosen(shown: Overview, job: JobRecord) -> list[str]:
    """Return the nodes that have a line: those of a diagnosis, and those that are furthest from the others."""
    names = [sign.node for sign in shown.signs if sign.node in job.telemetry]
    for kind in (channel.name for channel in channels().values() if channel.plot):
        known = sorted(
            (node.channels[kind].median, name) for name, node in job.telemetry.items() if kind in node.channels
        )
        names += [name for _, name in (known[:1] + known[-1:])]
    return [name for name in dict.fromkeys([*names, *job.telemetry]) if name][:LINES]


def _mean(devices: Sequence[Sequence[Point]]) -> list[Point]:
    """Over the devices of a node, at the times at which all of them told."""
    values = grouped(point for points in devices for point in points)
    return [
        (when, sum(readings) / len(readings))
        for when, readings in sorted(values.items())
        if len(readings) == len(devices)
    ]


def _moments(shown: Overview, job: JobRecord, timing: Timing) -> Iterator[_Moment]:
    """Where the job failed: when the first sign of it was seen, and when it ended."""
    if timing.started_at is None:
        return
    first = next((sign for sign in shown.signs if sign.at is not None), None)
    if first is not None and isinstance(first.at, datetime):
        where = f" on {printable(first.node, 60)}" if first.node else ""
        yield first.at.timestamp() - timing.started_at, f"{printable(first.name, 40)}{where}"
    elif timing.finished_at is not None and any(
        gate.verdict == Verdict.FAIL and gate.name in OF_THE_END for gate in shown.gates if gate.job == job.name
    ):
        yield timing.finished_at - timing.started_at, "the job ended"


def _plot(
    kind: str, lines: Mapping[str, Sequence[Point]], moments: Sequence[_Moment], timing: Timing, few: str
) -> Plot:
    channel = channels()[kind]
    zero = timing.started_at or 0.0
    chart = Chart("seconds since the job began")
    for number, (name, points) in enumerate(lines.items()):
        chart.line([(when, value / channel.divisor) for when, value in points], number, name, marked=len(points) == 1)
    for at, words in moments:
        chart.mark(at, words)
    if timing.iterations:
        step = max(len(timing.iterations) // MARKS, 1)
        chart.above = [(when - zero, str(number)) for number, when in timing.iterations[step - 1 :: step]]
        chart.above_label = "iteration"
    spans = {name: [value / channel.divisor for _, value in points] for name, points in lines.items()}
    ends = [f"{name} {decimal(min(span), 4)} to {decimal(max(span), 4)}" for name, span in spans.items()]
    alt = f"{channel.plot} over time{few}: {'; '.join(ends)}"
    alt += "".join(f"; {words} at {at:.0f} s" for at, words in moments)
    return Plot(f"{channel.plot}{few}", printable(alt, 2000), chart.image(legend=len(lines) > 1))
