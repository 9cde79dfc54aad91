"""From ranks' own times to the nodes that are slow. Pure: the same when a job ends and, offline, ever after."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from shakedown.common.text import counted, ranges, some
from shakedown.evidence import peers
from shakedown.evidence.stragglers.model import Level, Limits, Measured, Own, Slow, Stragglers, Window

LEAST_WINDOWS = 2
_SHARE = 0.75  # of the windows of most ranks: who leaves out others can choose those in which a peer was slow
LEAST_NODES = peers.LEAST_PEERS + 1
_LAST_WINDOWS = 6  # fewer say nothing: one of four equal nodes is last in two windows in every sixteenth run
_LAST_BY = 0.3  # at 0.2 one of 32 equal nodes of heavy tails (Student's t, 3 degrees) came out so in 1.3 % of runs
# How many times further from the middle than every other node, on either side: the largest of equal nodes is k times as
# far as the next with a probability of k**-3 where tails fall like Student's t of 3 degrees, whatever their number is;
# half of that on the slow side.
_TAIL = 6.0
_ALIKE = 1.15  # times: nodes of one stage need alike

_Role = tuple[int, int]  # pipeline stage, tensor rank
_Span = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Where the ranks of a job are, in Megatron's order: tensor ranks side by side, pipeline stages furthest apart."""

    nodes: Mapping[str, range]  # node -> its ranks
    tensor: int = 1
    pipeline: int = 1

    @property
    def world(self) -> int:
        return sum(len(ranks) for ranks in self.nodes.values())

    def role(self, rank: int) -> _Role:
        """Return the role of a rank: ranks of equal roles have equal work, each on its own part of the batch."""
        return rank // max(self.world // self.pipeline, 1), rank % self.tensor

    def words(self, role: _Role) -> str:
        """Describe the role, as far as there are several."""
        stage = f"stage {role[0]}" if self.pipeline > 1 else ""
        return ", ".join(filter(None, (stage, f"tensor rank {role[1]}" if self.tensor > 1 else "")))


def judged(measured: Mapping[str, Measured | None], layout: Layout, limits: Limits) -> Stragglers:
    """Compare every node's ranks with ranks of the same role on other nodes. A node reports its own ranks' times only;
    Megatron's reports come from the node of rank 0."""
    times = _own_times(measured, layout)
    if not times:
        return _only_extremes(measured, layout)
    if limits.unequal:
        windows = max(len(spans) for spans in times.values())
        why = f"the layout does not show that the ranks have equal work: {limits.unequal}"
        return Stragglers(ranks=len(times), windows=windows, unknown=why)
    silent = sorted({name for name, ranks in layout.nodes.items() if not times.keys() >= set(ranks)})
    slow: list[Slow] = []
    own: list[Own] = []
    unknown: list[str] = []
    for role, nodes in _roles(layout).items():
        found, beside, why = _of_role(role, nodes, times, layout, limits)
        slow += found
        own += beside
        unknown += [why] if why else []
    if not any(log and log.own for log in measured.values()):
        first = next(name for name, ranks in layout.nodes.items() if 0 in ranks)
        slow = [node.model_copy(update={"why": f"{node.why or 'in every one'}, as {first} reports"}) for node in slow]
    if silent:
        unknown.append(f"not every rank of {some(silent)} reported its own time")
    if cut := sorted(name for name, log in measured.items() if log and log.beyond):
        unknown.append(f"more windows than are kept in {some(cut)}")
    return Stragglers(
        ranks=len(times),
        windows=max(len(spans) for spans in times.values()),
        slow=_folded(slow),
        own=sorted(own, key=lambda node: -node.slower),
        unknown="; ".join(dict.fromkeys(unknown)),
    )


def _own_times(measured: Mapping[str, Measured | None], layout: Layout) -> dict[int, dict[_Span, float]]:
    """Rank -> window -> own time. Where ranks report their own times, the node of rank 0 reports of no others."""
    times: dict[int, dict[_Span, float]] = defaultdict(dict)

    def take(windows: Sequence[Window], ranks: range) -> None:
        for window in windows:
            if window.rank in ranks:
                times[window.rank].setdefault((window.first, window.last), window.own)

    logs = [(ranks, log) for name, ranks in layout.nodes.items() if (log := measured.get(name))]
    for ranks, log in logs:
        take(log.own, ranks)
    for ranks, log in logs if not times else ():
        take(log.reported if 0 in ranks else (), range(layout.world))
    return dict(times)


def _roles(layout: Layout) -> dict[_Role, dict[str, list[int]]]:
    """Role -> node -> its ranks of that role."""
    roles: dict[_Role, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, ranks in layout.nodes.items():
        for rank in ranks:
            roles[layout.role(rank)][name].append(rank)
    return roles


def _of_role(
    role: _Role,
    nodes: Mapping[str, Sequence[int]],
    times: Mapping[int, Mapping[_Span, float]],
    layout: Layout,
    limits: Limits,
) -> tuple[list[Slow], list[Own], str]:
    """Return the slow nodes of one role, the times of all its nodes, and the reason where no node can be named."""
    whole = {name: ranks for name, ranks in nodes.items() if all(rank in times for rank in ranks)}
    words = layout.words(role)
    if len(whole) < LEAST_NODES:
        what = f" of {words}" if words else ""
        reported = f"{counted(len(whole), 'node')} reported ranks{what} that do the same work"
        return [], [], f"{reported}, and {LEAST_NODES} are needed"
    of_ranks = [times[rank].keys() for ranks in whole.values() for rank in ranks]
    spans = sorted(set(of_ranks[0]).intersection(*of_ranks[1:]))
    usual = sum(count * 2 >= len(of_ranks) for count in Counter(span for own in of_ranks for span in own).values())
    needed = max(LEAST_WINDOWS, math.ceil(_SHARE * usual))
    if len(spans) < needed:
        return [], [], f"{counted(len(spans), 'window')} of all ranks, and {needed} are needed"
    # Everybody's slowest rank: one slow GPU slows its node's every window, and equal nodes have equal ones.
    values = {name: [max(times[rank][span] for rank in ranks) for span in spans] for name, ranks in whole.items()}
    ladder: tuple[tuple[Level, float], ...] = (("fail", limits.fail), ("warn", limits.warn), ("notice", limits.notice))
    least = min(limit for _, limit in ladder)
    shortfall = least / (1 + least)  # of the speed, which is what places are of
    found: dict[str, Slow] = {}
    own: list[Own] = []
    doubt = ""
    clear = _beyond_the_tail(values)
    middles = [median(window) for window in zip(*values.values(), strict=True)]
    for name, place in peers.places(values, lower_is_better=True, slower=shortfall).items():
        standing, text = place.standing(shortfall)
        why = "" if standing == "named" else text.partition(", ")[2] or text
        slower = 1 / (1 - place.shortfall) - 1
        beside = [value / middle - 1 for value, middle in zip(values[name], middles, strict=True)]
        own.append(Own(node=name, role=words, slower=slower, least=min(beside), most=max(beside)))
        level = next((level for level, limit in ladder if slower >= limit), None)
        last = _is_last_in_each(name, values)
        if last and standing == "undecided":
            standing, why = "named", f"slower than every peer in each window by {_LAST_BY:.0%} or more"
        if level is not None and (standing == "undecided" or not (last or name in clear)):
            if level == "fail":
                doubt = f"nodes differ by {limits.fail:.0%} and more, and none is apart from the others' scatter"
            level = None
        if level is None:
            continue
        found[name] = Slow(
            node=name,
            level=level,
            slower=slower,
            peers=place.peers,
            windows=ranges(number for first, last in spans for number in range(first, last + 1)),
            role=words,
            why=why,
        )
    if block := _like_a_stage(found, list(whole)):
        return [], own, block
    return list(found.values()), own, doubt if not found else ""


def _beyond_the_tail(values: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the slow nodes that are further from the middle than chance takes one of equal nodes, also where their
    scatter has heavy tails: `_TAIL` times as far as any other node. A scatter that is known from the middle of the
    nodes (as a median absolute deviation is) says nothing of that."""
    usual = {name: median(own) for name, own in values.items()}
    middle = median(usual.values())
    away = {name: math.log(value / middle) for name, value in usual.items()}
    order = sorted(away, key=lambda name: -away[name])
    for count in range((len(order) - 1) // 2, 0, -1):
        rest = max(abs(away[name]) for name in order[count:])
        if away[order[count - 1]] > 0 and away[order[count - 1]] >= _TAIL * rest:
            return set(order[:count])
    return set()


def _like_a_stage(slow: Mapping[str, Slow], order: Sequence[str]) -> str:
    """Return what several slow nodes have in common with pipeline stages that the layout does not show. Empty: nothing.

    The nodes of a stage need alike. They lie side by side in the order of ranks, as one of equally large parts, or at
    equal distances, where the stages of each replica lie side by side. The first and the last node may hold the
    embedding and the loss."""
    places = sorted(order.index(name) for name in slow)
    count, nodes = len(places), len(order)
    if count < 2:
        return ""
    factors = [1 + node.slower for node in slow.values()]
    alike = max(factors) <= _ALIKE * min(factors) and nodes % count == 0
    steps = {after - before for before, after in pairwise(places)}
    longer = f"{min(factors) - 1:.0%} longer than the others: so would a pipeline stage with more work"
    if alike and steps == {1} and places[0] % count == 0:
        return f"{count} of {counted(nodes, 'node')} side by side in the order of ranks need alike and {longer}"
    if alike and steps == {nodes // count}:
        return f"{count} of {counted(nodes, 'node')} at equal distances in the order of ranks need alike and {longer}"
    if places == [0, nodes - 1]:
        return f"the first and the last of {counted(nodes, 'node')} need {longer}, as of the embedding and the loss"
    return ""


def _is_last_in_each(name: str, values: Mapping[str, Sequence[float]]) -> bool:
    """Return whether a node is slower than every peer in each window by `_LAST_BY`. All of a window are of the same
    time, so what slows all of them together does not count, and with few peers this says more than their scatter, of
    which so few know little: equal nodes do not come out so, however much they scatter (bench/stragglers.py)."""
    peers_of = list(zip(*(own_times for other, own_times in values.items() if other != name), strict=True))
    if len(peers_of) < _LAST_WINDOWS:
        return False
    return all(own >= (1 + _LAST_BY) * max(window) for own, window in zip(values[name], peers_of, strict=True))


def _folded(slow: Sequence[Slow]) -> list[Slow]:
    """Keep the worst role of each node. The worst nodes come first."""
    order: tuple[Level, ...] = ("fail", "undecided", "warn", "notice")
    best: dict[str, Slow] = {}
    for node in sorted(slow, key=lambda node: (order.index(node.level), -node.slower)):
        best.setdefault(node.node, node)
    return list(best.values())


def _only_extremes(measured: Mapping[str, Measured | None], layout: Layout) -> Stragglers:
    """Report that ranks are not known to be slow: Megatron's extremes show the slowest rank, but not its peers."""
    first = next((name for name, ranks in layout.nodes.items() if 0 in ranks), "")
    log = measured.get(first)
    extremes = log.extremes if log else ()
    if not extremes:
        return Stragglers(unknown="no rank reported its own time")
    count = counted(len(extremes), "report")
    return Stragglers(
        windows=len(extremes),
        unknown=f"{count} of Megatron give the lowest and the highest rank alone, at most"
        f" {max(report.slower for report in extremes):.0%} apart: --straggler-minmax-count makes them report all ranks",
    )
