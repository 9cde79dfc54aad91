"""What the nodes did while a job ran, over time: their telemetry joined to the iterations, and where the job failed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.results import Timing
from shakedown.evidence.telemetry.summary import Point, each_device
from shakedown.gates.registry import OF_THE_END
from shakedown.report.overview import Overview
from shakedown.report.page.plots import LINES, Plot
from shakedown.report.page.svg import Chart
from shakedown.runs import copies
from shakedown.runs.records import Evidence, JobRecord
from shakedown.state.findings import Verdict

# Channel -> title and scale: what people look at first. Of a node with several devices the mean of them.
CHANNELS = {
    "gpu/*/power_w": ("GPU power [W]", 1.0),
    "gpu/*/temperature_c": ("GPU temperature [°C]", 1.0),
    "gpu/*/gfx_clock_mhz": ("GPU clock [MHz]", 1.0),
    "gpu/*/vram_used_bytes": ("GPU memory in use [GiB]", 2.0**-30),
    "rdma/*/tx_bytes": ("RDMA, sent [Gb/s]", 1.0),
    "cpu/busy_s": ("CPUs busy", 1.0),
    "memory/available_bytes": ("memory available [GiB]", 2.0**-30),
    "pressure/cpu_some_s": ("waiting for a CPU [%]", 1.0),
}
MARKS = 6  # iterations that are named above a plot


@dataclass(frozen=True)
class _Moment:
    at: float  # seconds since the job began
    words: str


def of(shown: Overview, evidence: Mapping[str, Evidence]) -> list[Plot]:
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
                for kind in CHANNELS:
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
    for kind in CHANNELS:
        known = sorted(
            (node.channels[kind].median, name) for name, node in job.telemetry.items() if kind in node.channels
        )
        names += [name for _, name in (known[:1] + known[-1:])]
    return [name for name in dict.fromkeys([*names, *job.telemetry]) if name][:LINES]


def _mean(devices: Sequence[Sequence[Point]]) -> list[Point]:
    """Over the devices of a node, at the times at which all of them told."""
    values: dict[float, list[float]] = {}
    for points in devices:
        for when, value in points:
            values.setdefault(when, []).append(value)
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
        yield _Moment(first.at.timestamp() - timing.started_at, f"{printable(first.name, 40)}{where}")
    elif timing.finished_at is not None and any(
        gate.verdict == Verdict.FAIL and gate.name in OF_THE_END for gate in shown.gates if gate.job == job.name
    ):
        yield _Moment(timing.finished_at - timing.started_at, "the job ended")


def _plot(
    kind: str, lines: Mapping[str, Sequence[Point]], moments: Sequence[_Moment], timing: Timing, few: str
) -> Plot:
    title, scale = CHANNELS[kind]
    zero = timing.started_at or 0.0
    chart = Chart("seconds since the job began")
    for number, (name, points) in enumerate(lines.items()):
        chart.line([(when, value * scale) for when, value in points], number, name, marked=len(points) == 1)
    for moment in moments:
        chart.mark(moment.at, moment.words)
    if timing.iterations:
        step = max(len(timing.iterations) // MARKS, 1)
        chart.above = [(when - zero, str(number)) for number, when in timing.iterations[step - 1 :: step]]
        chart.above_label = "iteration"
    ends = [f"{name} {_range([value * scale for _, value in points])}" for name, points in lines.items()]
    alt = f"{title} over time{few}: {'; '.join(ends)}"
    alt += "".join(f"; {moment.words} at {moment.at:.0f} s" for moment in moments)
    return Plot(f"{title}{few}", printable(alt, 2000), chart.image(legend=len(lines) > 1))


def _range(values: Sequence[float]) -> str:
    return f"{decimal(min(values), 4)} to {decimal(max(values), 4)}"
