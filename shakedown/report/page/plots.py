"""The page's plots of a run: its jobs over their iterations, and nodes by findings or by nodes as coloured cells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shakedown.common.text import counted, decimal
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview
from shakedown.report.page.svg import Chart, Point, cells, heat_colour
from shakedown.runs.records import JobRecord
from shakedown.state.findings import Verdict

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


def of(shown: Overview) -> list[Plot]:
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
