"""From ranks' own times to the nodes that are slow. Pure: the same when a job ends and, offline, ever after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shakedown import peers
from shakedown.stragglers.model import Level, Limits, Measured, Slow, Stragglers, Window
from shakedown.text import counted

LEAST_WINDOWS = 2
LEAST_NODES = peers.LEAST_PEERS + 1
_ROWS = 8  # of nodes that are named in a sentence

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
        """What a rank does: those of equal roles have equal work, each on its own part of the batch."""
        return rank // max(self.world // self.pipeline, 1), rank % self.tensor

    def words(self, role: _Role) -> str:
        """The role, as far as there are several."""
        stage = f"stage {role[0]}" if self.pipeline > 1 else ""
        return ", ".join(filter(None, (stage, f"tensor rank {role[1]}" if self.tensor > 1 else "")))


def judged(measured: Mapping[str, Measured | None], layout: Layout, limits: Limits) -> Stragglers:
    """Hold every node's ranks against those of the same role on other nodes. A node says its own ranks' times and
    nobody else's; Megatron's reports come from the node of rank 0."""
    told = _told(measured, layout)
    if not told:
        return _untold(measured, layout)
    silent = sorted({name for name, ranks in layout.nodes.items() if not told.keys() >= set(ranks)})
    slow: list[Slow] = []
    unknown: list[str] = []
    for role, nodes in _roles(layout).items():
        found, why = _of_role(role, nodes, told, layout, limits)
        slow += found
        unknown += [why] if why else []
    if silent:
        unknown.append(f"not every rank of {_few(silent)} told its own time")
    if cut := sorted(name for name, each in measured.items() if each and each.beyond):
        unknown.append(f"more windows than are kept in {_few(cut)}")
    return Stragglers(
        ranks=len(told),
        windows=max(len(spans) for spans in told.values()),
        slow=_folded(slow),
        unknown="; ".join(dict.fromkeys(unknown)),
    )


def _told(measured: Mapping[str, Measured | None], layout: Layout) -> dict[int, dict[_Span, float]]:
    """Rank -> window -> own time."""
    told: dict[int, dict[_Span, float]] = defaultdict(dict)

    def take(windows: Sequence[Window], ranks: range) -> None:
        for each in windows:
            if each.rank in ranks:
                told[each.rank].setdefault((each.first, each.last), each.own)

    for name, ranks in layout.nodes.items():
        its = measured.get(name)
        if its is not None:
            take(its.own, ranks)
            if 0 in ranks:
                take(its.reported, range(layout.world))
    return dict(told)


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
    told: Mapping[int, Mapping[_Span, float]],
    layout: Layout,
    limits: Limits,
) -> tuple[list[Slow], str]:
    """The nodes that are slow in one role, and why nobody can say so."""
    whole = {name: ranks for name, ranks in nodes.items() if all(rank in told for rank in ranks)}
    words = layout.words(role)
    if len(whole) < LEAST_NODES:
        what = f" of {words}" if words else ""
        return (
            [],
            f"{counted(len(whole), 'node')} told of ranks{what} that do the same work, and {LEAST_NODES} are needed",
        )
    of_ranks = [told[rank].keys() for ranks in whole.values() for rank in ranks]
    spans = sorted(set(of_ranks[0]).intersection(*of_ranks[1:]))
    if len(spans) < LEAST_WINDOWS:
        return [], f"{counted(len(spans), 'window')} of all ranks, and {LEAST_WINDOWS} are needed"
    # Everybody's slowest rank: one slow GPU slows its node's every window, and equal nodes have equal ones.
    values = {name: [max(told[rank][span] for rank in ranks) for span in spans] for name, ranks in whole.items()}
    ladder: tuple[tuple[Level, float], ...] = (("fail", limits.fail), ("warn", limits.warn), ("notice", limits.notice))
    least = min(limit for _, limit in ladder)
    shortfall = least / (1 + least)  # of the speed, which is what places are of
    found: dict[str, Slow] = {}
    for name, place in peers.places(values, lower_is_better=True, slower=shortfall).items():
        standing, why = place.standing(shortfall)
        slower = 1 / (1 - place.shortfall) - 1
        level = next((level for level, limit in ladder if slower >= limit), None)
        if standing == "undecided":
            level = "undecided" if level == "fail" else None
        if level is None or standing not in ("named", "undecided"):
            continue
        found[name] = Slow(
            node=name,
            level=level,
            slower=slower,
            peers=place.peers,
            windows=_spans(spans),
            role=words,
            why="" if standing == "named" else why.partition(", ")[2] or why,
        )
    return list(found.values()), ""


def _folded(slow: Sequence[Slow]) -> list[Slow]:
    """One for each node: the worst of its roles. The worst nodes first."""
    order: tuple[Level, ...] = ("fail", "undecided", "warn", "notice")
    best: dict[str, Slow] = {}
    for each in sorted(slow, key=lambda one: (order.index(one.level), -one.slower)):
        best.setdefault(each.node, each)
    return list(best.values())


def _untold(measured: Mapping[str, Measured | None], layout: Layout) -> Stragglers:
    """Where no rank told: the extremes of Megatron's reports say who was slowest, and not beside whom."""
    first = next((name for name, ranks in layout.nodes.items() if 0 in ranks), "")
    its = measured.get(first)
    extremes = its.extremes if its else ()
    if not extremes:
        return Stragglers(unknown="no rank told its own time")
    count = counted(len(extremes), "report")
    return Stragglers(
        windows=len(extremes),
        unknown=f"{count} of Megatron give the lowest and the highest rank alone, at most"
        f" {max(each.slower for each in extremes):.0%} apart: --straggler-minmax-count makes them tell of all",
    )


def _spans(spans: Sequence[_Span]) -> str:
    """All windows, those that follow each other as one: "3-22"."""
    rows: list[list[int]] = []
    for first, last in spans:
        if rows and first == rows[-1][1] + 1:
            rows[-1][1] = last
        else:
            rows.append([first, last])
    text = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in rows[:_ROWS])
    return text + (" and more" if len(rows) > _ROWS else "")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_ROWS]) + (f" and {len(names) - _ROWS} more" if len(names) > _ROWS else "")
