"""How a part stands among those that do the same work. Pure statistics.

The centre is the median of the peers and the scale the largest of three: the median absolute deviation between them,
the scatter of repetitions on one part, and a prior. With few peers the first may be nearly nothing by chance (Croux and
Rousseeuw, "Time-efficient algorithms for two highly robust estimators of scale", 1992, have the factors), and a fleet
that a busy host shares scatters as much within a part as between parts. `bench/trials.py` shows how often an innocent
part is named.

A node reports its own figures, and may report too much. So a part is named only where other parts of its own node show
that it is slow, or where it is slower by as much than the lower half of at least `LEAST_PEERS` other nodes. While no
more than half of them report too much, the highest of that half is no higher than what some honest node reports.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeVar

from shakedown.common.text import counted

LEAST_PEERS = 3
Z = 5.0  # scales below the centre
PRIOR = 0.02  # scale that equal parts have anyway, as a fraction of the centre
NOTICE = 0.5  # of the shortfall from which a part is named: told, and no more
DIFFER = "the nodes differ"
GAP = 1 / 3  # between all repetitions of a part and all of its peers: then their scatter does not matter
_CONSISTENT = 1.4826  # a normal distribution's standard deviation in median absolute deviations
_SMALL = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}

Part = TypeVar("Part", bound=Hashable)


@dataclass(frozen=True)
class Place:
    """Where a part stands: `shortfall` is the fraction by which it is worse than its peers' median, `scales` the same
    in units of their scatter, `always` whether every repetition of it is worse by what it is to be named for, `apart`
    whether its best repetition is worse than the worst of any peer, by `GAP` or what it is to be named for, `backed`
    whether its own node, or enough of the `nodes` beside it, show the same."""

    peers: int
    of_peers: float | None = None
    shortfall: float = 0.0
    scales: float = 0.0
    always: bool = False
    apart: bool = False
    nodes: int = 0
    backed: bool = False

    @property
    def clear(self) -> bool:
        """Return whether the part is worse in every repetition, and clear of the scatter."""
        return self.always and (self.scales >= Z or self.apart)

    def standing(self, slower: float) -> tuple[str, str]:
        """Return named, undecided, notice, ok or unknown, with the reason."""
        if self.of_peers is None:
            differs = abs(self.shortfall) >= slower
            text = f"differs by {self.shortfall:.0%} from {counted(self.peers, 'peer')}" if differs else ""
            text = text or counted(self.peers, "peer")
            return "unknown", f"{text}: at least {LEAST_PEERS} are needed to say what is usual"
        text = f"{self.shortfall:.0%} worse than the median of {counted(self.peers, 'peer')}"
        if self.shortfall < slower * NOTICE:
            return "ok", ""
        if self.shortfall < slower:
            return ("notice", text) if self.scales >= Z else ("ok", "")
        if self.clear and self.backed:
            return "named", f"{text}, in every repetition"
        if self.clear:
            others = counted(self.nodes, "other node")
            return "undecided", f"{text}: {DIFFER}, and {others} cannot show which of them is wrong"
        if not self.always:
            return "undecided", f"{text}, but not in every repetition"
        return "undecided", f"{text}, which is {self.scales:.1f} times their scatter"


def places(
    values: Mapping[Part, Sequence[float]],
    *,
    lower_is_better: bool,
    slower: float,
    owners: Mapping[Part, Hashable] | None = None,
) -> dict[Part, Place]:
    """Compare each part with all others, by the median of its repetitions. Values are above 0. `owners`: the node of
    each part. Each node has the same weight, however many parts it reports."""
    rates = {part: [1 / v if lower_is_better else v for v in own if v > 0] for part, own in values.items()}
    rates = {part: own for part, own in rates.items() if own}
    centres = {part: median(own) for part, own in rates.items()}
    scatter = scatter_of(rates, centres)
    counts = Counter(owners[part] for part in rates) if owners else Counter()
    weights = {part: 1 / counts[owners[part]] for part in rates} if owners and len({*counts.values()}) > 1 else None
    all_parts = {part: _place(part, rates, centres, scatter, lower_is_better, slower, weights) for part in rates}
    of_nodes: dict[Hashable, dict[Part, list[float]]] = defaultdict(dict)
    for part, values_of_part in rates.items():
        of_nodes[owners[part] if owners else part][part] = values_of_part
    middles = {node: median(centres[part] for part in parts) for node, parts in of_nodes.items()}
    ordered = sorted(middles.values())
    for node, parts in of_nodes.items():
        others = [*ordered]
        others.remove(middles[node])
        for part in parts:
            backed = all_parts[part].clear and (
                slower_than_others(rates[part], others, slower)
                or _place(part, parts, centres, scatter, lower_is_better, slower, None).clear
            )
            all_parts[part] = replace(all_parts[part], nodes=len(others), backed=backed)
    return all_parts


def slower_than_others(values: Sequence[float], others: Sequence[float], slower: float) -> bool:
    """Return whether every repetition is slower than the fastest of the lower half of the other nodes, in order."""
    if len(others) < LEAST_PEERS:
        return False
    return max(values) <= (1 - slower) * others[len(others) // 2 - 1]


def spread(values: Sequence[float], centre: float, weights: Sequence[float] | None = None) -> float:
    """Return the scale of values around a centre: their median absolute deviation, as a standard deviation."""
    deviation = _middle([abs(value - centre) for value in values], weights)
    return _CONSISTENT * _SMALL.get(len(values), 1.0) * deviation


def scatter_of(rates: Mapping[Part, Sequence[float]], centres: Mapping[Part, float]) -> float:
    """Return how far the repetitions on one part scatter, as a fraction of its centre."""
    deviations = [abs(v - centres[part]) / centres[part] for part, own in rates.items() if len(own) > 1 for v in own]
    deviations = sorted(deviations)[sum(len(own) > 1 for own in rates.values()) :]  # each part has one that is nothing
    return _CONSISTENT * median(deviations) if deviations else 0.0


def _place(
    part: Part,
    rates: Mapping[Part, Sequence[float]],
    centres: Mapping[Part, float],
    scatter: float,
    lower_is_better: bool,
    slower: float,
    weights: Mapping[Part, float] | None,
) -> Place:
    peers = [centres[other] for other in rates if other != part]
    if len(peers) < LEAST_PEERS:
        return Place(len(peers), shortfall=1 - centres[part] / median(peers) if peers else 0.0)
    of_peers = None if weights is None else [weights[other] for other in rates if other != part]
    centre = _middle(peers, of_peers)
    lowest = min(min(own) for other, own in rates.items() if other != part)
    between = spread(peers, centre, of_peers)
    scale = max(between, scatter * centre, PRIOR * centre)
    return Place(
        peers=len(peers),
        of_peers=1 / centre if lower_is_better else centre,
        shortfall=1 - centres[part] / centre,
        scales=(centre - centres[part]) / scale,
        always=max(rates[part]) <= (1 - slower) * centre,
        apart=max(rates[part]) <= (1 - max(slower, GAP)) * lowest,
    )


def _middle(values: Sequence[float], weights: Sequence[float] | None) -> float:
    """Return the median; the lower one of two where values have weights."""
    if weights is None:
        return median(values)
    half, come = sum(weights) / 2, 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        come += weight
        if come >= half:
            return value
    return max(values)
