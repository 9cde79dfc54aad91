"""What the nodes' samplers have written beside a job, and which of it is of the steady iterations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.samples import Series
from shakedown.evidence.telemetry.summary import NodeTelemetry, summary
from shakedown.evidence.telemetry.timing import Timing
from shakedown.logs.iterations import Iteration
from shakedown.logs.loss_scale import loss_scale


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
