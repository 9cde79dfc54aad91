"""The page's plots of a run: its jobs over their iterations, and nodes by findings or by nodes as coloured cells."""

from collections.abc import Sequence
from dataclasses import dataclass

from shakedown.common.text import counted
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview
from shakedown.report.page.svg import Chart, cells, heat_colour
from shakedown.runs.records import JobRecord
from shakedown.state.findings import Verdict

LINES = 8  # in one plot: more cannot be told apart
SERIES = {
    "lm_loss": "loss",
    "tflops_per_gpu": "TFLOP/s/GPU",
    "tokens_per_gpu_per_s": "tokens/s/GPU",
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
    metric = next((metric for metric in METRICS.values() if metric.source == field), None)
    chart = Chart("iteration")
    for number, (job, points) in enumerate(lines):
        chart.line(points, number, job.node or "all nodes", marked=len(points) == 1)
        planned = job.plan.iterations if job.plan else 0
        if job.name in failed and points[-1][0] < planned:
            chart.mark(points[-1][0], "the job ended here")
    expected = [job.plan.expect.get(metric.name) for job, _ in lines if job.plan and metric]
    for bound in sorted({bound for bound in expected if bound is not None}):
        chart.bound(bound, f"expected {bound:g}")
    ends = [
        f"{job.node or 'all nodes'}: {counted(len(p), 'iteration')}, {p[0][1]:.4g} to {p[-1][1]:.4g}"
        for job, p in lines
    ]
    return Plot(label, f"{label} by iteration; {'; '.join(ends)}", chart.image(legend=len(lines) > 1))


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
