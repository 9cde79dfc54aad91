"""What one node's samples show and those of its peers in the same job do not: no verdict, a place to look first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shakedown.common.text import counted
from shakedown.evidence import peers
from shakedown.evidence.telemetry.channels import Channel, channels
from shakedown.evidence.telemetry.summary import NodeTelemetry

_APART = 0.1  # of what is usual: the least difference that counts, whatever the scatter is


@dataclass(frozen=True)
class Odd:
    """One kind of channel on one node, in its unit, and the median of the others."""

    node: str
    channel: str
    value: float
    usual: float
    unit: str
    peers: int

    def __str__(self) -> str:
        others = counted(self.peers, "other")
        return f"{self.channel}: {self.value:.4g} {self.unit}, the median of {others} is {self.usual:.4g}"


def odd(telemetry: Mapping[str, NodeTelemetry]) -> Iterator[Odd]:
    """Yield the nodes that differ from their peers, by the channels whose bad direction `channels.toml` names. The
    nodes are of one job, and at least four."""
    for channel in channels().values():
        if channel.odd is None:
            continue
        values = {node: value for node, samples in telemetry.items() if (value := _value(channel, samples)) is not None}
        shifted = {node: [value + channel.least] for node, value in values.items()}
        for node, place in peers.places(shifted, lower_is_better=channel.odd == "high", slower=_APART).items():
            if place.of_peers is not None and place.standing(_APART)[0] == "named":
                usual = place.of_peers - channel.least
                yield Odd(node, channel.name, values[node], max(usual, 0.0), channel.odd_unit, place.peers)


def _value(channel: Channel, node: NodeTelemetry) -> float | None:
    """Return the median of gauges and rates, the highest device of counts, the share of the time of throttling."""
    if channel.reason is not None:
        if node.seconds <= 0 or len(node.throttle_unread.get(channel.reason, ())) >= node.gpus:
            return None
        throttled = [seconds.get(channel.reason, 0.0) for seconds in node.throttled.values()]
        return 100 * max(throttled, default=0.0) / node.seconds
    spread = node.channels.get(channel.name)
    if spread is None:
        return None
    return spread.max if channel.kind == "count" else spread.median
