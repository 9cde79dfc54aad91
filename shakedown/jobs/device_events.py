"""The events of a node's devices, as they come with the polls of a running job."""

from collections import deque

from shakedown.evidence.results import NodeClock
from shakedown.evidence.telemetry.kernel import timed
from shakedown.logs.lines import LineSplitter
from shakedown.node.telemetry.kernel import DEVICES_LIMIT

_DAY_S = 86400.0  # an event that claims to be older, or to come, has no time of its own


class DeviceEvents:
    """`waiting` holds Unix time and text of the newest events. `size`: bytes that were read of the node's file."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, str]] = deque()
        self.size = 0
        self._splitter = LineSplitter()

    def take(self, data: bytes, clock: NodeClock | None, now: float) -> None:
        """Take what came since the last poll. An honest node writes no more than the sampler's limit."""
        self.size += len(data)
        if self.size > DEVICES_LIMIT:
            return
        for record in filter(None, map(timed, self._splitter.feed(data))):
            at = clock.at(record[0]) if clock else now
            self.waiting.append((at if abs(at - now) < _DAY_S else now, record[1]))
