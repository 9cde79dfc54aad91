"""What a node's samples come to over a stretch of time: each channel's spread, and for how long which GPU was throttled
and why."""

import bisect
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.evidence.results import NodeClock, Timing
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.samples import Series
from shakedown.logs.figures import loss_scale
from shakedown.logs.iterations import Iteration

# As a desired state names them: gpu.no_throttling.
THROTTLE = "throttle_"


class Channel(Frozen):
    """One kind of channel. `name` has a `*` where a device's name stands."""

    name: str
    unit: str
    kind: Literal["gauge", "rate", "count"]
    source: str
    scale: float = 1.0
    odd: Literal["high", "low"] | None = None
    least: Annotated[float, Field(ge=0)] = 0.0
    column: str = ""
    plot: str = ""
    divisor: float = 1.0

    @property
    def odd_unit(self) -> str:
        """Return the unit that is compared between nodes: for throttling its share of the time."""
        return "% of the time" if self.reason is not None else self.unit

    @property
    def reason(self) -> str | None:
        """Return the reason of throttling that the channel counts, if it counts one."""
        last = self.name.rpartition("/")[2]
        return last.removeprefix(THROTTLE).removesuffix("_s") if last.startswith(THROTTLE) else None


@cache
def channels() -> dict[str, Channel]:
    """Return all kinds by their names."""
    entries = read_toml("shakedown.evidence.telemetry", "channels.toml")["channel"]
    found = [Channel.model_validate(entry) for entry in entries]
    return {channel.name: channel for channel in found}


def parts(name: str) -> tuple[str, str]:
    """Split a channel into its kind and its device: ("gpu/*/power_w", "0000:05:00.0"). Without a device: (name, "")."""
    kind, _, rest = name.partition("/")
    device, slash, what = rest.rpartition("/")
    return (f"{kind}/*/{what}", device) if slash else (name, "")


Point = tuple[float, float]  # when, value


class Spread(Frozen):
    """One kind of channel over all devices of a node. Of a count, each device's growth."""

    model_config = ConfigDict(allow_inf_nan=False)

    min: float
    median: float
    max: float
    at_min: str = ""  # the device that had it; empty: there is only one, or none
    at_max: str = ""


class NodeTelemetry(Frozen):
    """One node's samples of a job, summed up."""

    model_config = ConfigDict(allow_inf_nan=False)

    window: str  # over what: "steady iterations" or "the whole job"
    seconds: float  # of it
    samples: int  # in it
    channels: dict[str, Spread] = {}
    gpus: int = 0
    throttled: dict[str, dict[str, float]] = {}  # GPU -> reason -> seconds, where there were any
    throttle_unread: dict[str, list[str]] = {}  # reason -> the GPUs that do not tell
    risen: list[str] = []  # error counters that rose, the first few
    unreadable: dict[str, str] = {}  # kind of channel -> why no device of the node tells
    incomplete: str = ""  # why the samples are not all
    cpu_s: float | None = None  # what the sampler has used


RISEN = 20
STEADY, WHOLE = "steady iterations", "the whole job"


def summary(series: Series, clock: NodeClock | None, window: tuple[float, float] | None) -> NodeTelemetry:
    """Sum up the samples in a window of the controller's time; all samples where the window or the node's clock is
    unknown."""
    low, high = 0, len(series.times)
    inside: tuple[float, float] | None = None
    if clock is not None and window is not None:
        inside = (window[0] - clock.offset_s, window[1] - clock.offset_s)
        low = max(bisect.bisect_left(series.times, inside[0]) - 1, 0)
        high = min(bisect.bisect_right(series.times, inside[1]) + 1, len(series.times))
    times = series.times[low:high]
    begin, end = inside or (times[0], times[-1]) if times or inside else (0, 0)
    spreads: dict[str, Spread] = {}
    throttled: dict[str, dict[str, float]] = {}
    unread: dict[str, list[str]] = {}
    gpus = {parts(channel)[1] for channel in series.columns if channel.startswith("gpu/")}
    for kind, known in channels().items():
        values = {device: _points(series, column, low, high) for device, column in _columns(series, kind)}
        if known.reason is not None:
            seconds = {device: _grown(points, inside) for device, points in values.items()}
            for device, found in seconds.items():
                if found:
                    throttled.setdefault(device, {})[known.reason] = round(found, 3)
            if without := sorted(device for device, found in seconds.items() if found is None):
                unread[known.reason] = without
        elif (spread := _spread(known, values, inside)) is not None:
            spreads[kind] = spread
    return NodeTelemetry(
        window=STEADY if inside else WHOLE,
        seconds=round(end - begin, 3),
        samples=len(times),
        channels=spreads,
        gpus=len(gpus),
        throttled=throttled,
        throttle_unread=unread,
        risen=[f"{counter.counter} {counter.before:.0f} -> {counter.after:.0f}" for counter in series.risen[:RISEN]],
        unreadable=_unreadable(series),
        incomplete=series.incomplete,
        cpu_s=series.end.cpu_s if series.end else None,
    )


def each_device(series: Series, kind: str) -> dict[str, list[Point]]:
    """Return the points of every device of a kind of channel, by the node's monotonic clock; rates as rates."""
    known = channels()[kind]
    found = {device: _points(series, column, 0, len(series.times)) for device, column in _columns(series, kind)}
    return {device: _rates(points, known.scale) if known.kind == "rate" else points for device, points in found.items()}


def _columns(series: Series, kind: str) -> Iterator[tuple[str, list[float | None]]]:
    for name, column in series.columns.items():
        of_kind, device = parts(name)
        if of_kind == kind:
            yield device, column


def _points(series: Series, column: Sequence[float | None], low: int, high: int) -> list[Point]:
    return [
        (when, value) for when, value in zip(series.times[low:high], column[low:high], strict=True) if value is not None
    ]


def _rates(points: Sequence[Point], scale: float) -> list[Point]:
    """Return the growth each second between two readings; a count that fell was reset, and is left out."""
    pairs = pairwise(points)
    return [(b[0], (b[1] - a[1]) / (b[0] - a[0]) * scale) for a, b in pairs if b[1] >= a[1]]


def _grown(points: Sequence[Point], inside: tuple[float, float] | None) -> float | None:
    """Return by how much a count grew; of a stretch between two readings the part that is inside. None: the count was
    not read twice."""
    if len(points) < 2:
        return None
    total = 0.0
    for (begin, before), (end, after) in pairwise(points):
        low, high = (max(begin, inside[0]), min(end, inside[1])) if inside else (begin, end)
        if high > low and after > before:
            total += (after - before) * (high - low) / (end - begin)
    return total


def _spread(known: Channel, values: dict[str, list[Point]], inside: tuple[float, float] | None) -> Spread | None:
    of_device = {}
    for device, points in values.items():
        if known.kind == "count":
            grown = _grown(points, None)  # what was counted beside the window may belong to it: it is read seldom
            found = [] if grown is None else [grown * known.scale]
        else:
            chosen = _rates(points, known.scale) if known.kind == "rate" else points
            kept = [value for when, value in chosen if inside is None or inside[0] <= when <= inside[1]]
            found = kept or [value for _, value in chosen]  # a window between two samples: those beside it
        if found:
            of_device[device] = found
    if not of_device:
        return None
    lowest = min(of_device, key=lambda device: min(of_device[device]))
    highest = max(of_device, key=lambda device: max(of_device[device]))
    several = len(of_device) > 1
    return Spread(
        min=min(of_device[lowest]),
        median=statistics.median(value for found in of_device.values() for value in found),
        max=max(of_device[highest]),
        at_min=lowest if several else "",
        at_max=highest if several else "",
    )


def _unreadable(series: Series) -> dict[str, str]:
    """Return the kinds that no device reports. A kind that some devices report is seen in the file."""
    readable = {parts(name)[0] for name, column in series.columns.items() if any(value is not None for value in column)}
    found: dict[str, str] = {}
    for name, why in series.unreadable.items():
        kind = parts(name)[0]
        if kind not in readable:
            found.setdefault(kind, why)
    return found


@dataclass(frozen=True)
class Watched:
    """What was written down beside the job on each node, and when things happened. None: a node has no such file."""

    timing: Timing = field(default_factory=Timing)
    series: Mapping[str, Series | None] = field(default_factory=dict)
    kernel: Mapping[str, KernelWindow | None] = field(default_factory=dict)
    devices: Mapping[str, KernelWindow | None] = field(default_factory=dict)

    def telemetry(self, iterations: Sequence[Iteration], warmup: int) -> dict[str, NodeTelemetry]:
        """Sum up each node's samples in the steady iterations."""
        window = steady_window(self.timing, iterations, warmup)
        return {
            node: summary(series, self.timing.clocks.get(node), window)
            for node, series in self.series.items()
            if series is not None
        }


def steady_window(timing: Timing, iterations: Sequence[Iteration], warmup: int) -> tuple[float, float] | None:
    """Return the window of the steady iterations, by the controller's clock: from the last line before them to their
    last line, as the figures are measured (`figures.measure`). None: there are none, or the times of the lines are
    unknown."""
    first = loss_scale(iterations).lines + warmup
    steady = iterations[first:-1]
    if not steady:
        return None
    when = dict(timing.iterations)
    begin = when.get(iterations[first - 1].iteration) if first else timing.started_at
    end = when.get(steady[-1].iteration)
    return (begin, end) if begin is not None and end is not None and begin < end else None
