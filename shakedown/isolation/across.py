"""Faults between nodes: every part passes by itself, and together they fail.

Two sides that pass are divided, and each part of one trains with each part of the other, two such at a time: a link
between two nodes is then in exactly one of the four. That goes on until two nodes are left. Where none of the four
fails, twice over, the failure shows only at size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from shakedown.hosts import folded
from shakedown.isolation.knowledge import SILENT, Knowledge
from shakedown.isolation.model import Group, Purpose

_Side = tuple[str, ...]
_DOUBTED = 7  # trainings of a pair that fails, and passes, by turns


@dataclass(frozen=True)
class Found:
    """What to try next, or why there is nothing more to try."""

    groups: tuple[Group, ...] = ()
    why: str = ""


def look(known: Knowledge, whole: frozenset[str], number: int) -> Found:
    """What to try where all nodes of `whole` are cleared and fail together: first whether a smaller group that failed
    does so again, then across the parts of the smallest that does."""
    smaller = {each.nodes for each in known.trainings if each.outcome == "fail" and each.nodes < whole}
    smaller -= {nodes for nodes in smaller if not nodes <= known.cleared}
    smaller -= {nodes for nodes in smaller if any(set(link.nodes) <= nodes for link in known.links)}
    pending = []
    for nodes in sorted(smaller, key=len):
        status = _status(known, nodes, 1)
        if status == "fail":
            return within(known, nodes, number)
        if status is None:
            pending.append(nodes)
    if pending:
        return Found(groups=_disjoint(known, pending, number, "again"))
    return within(known, whole, number)


def within(known: Knowledge, nodes: frozenset[str], number: int) -> Found:
    """The nodes fail together, and each is cleared: where between them?"""
    return _within(known, _ordered(known, nodes), number)


def _status(known: Knowledge, nodes: frozenset[str], need: int) -> Literal["pass", "fail", "unknown"] | None:
    """What a group has come to; None: try it (again), of three times two decide. A failure counts from the second on,
    `need` passes are asked. Unknown: its trainings came to nothing."""
    if len(nodes) < known.problem.smallest:
        return "pass"  # each of its nodes is cleared
    passes, fails = known.of(nodes)
    if fails >= 2 and fails > passes:
        return "fail"
    if passes >= need and passes > fails:
        return "pass"
    return "unknown" if len(known.came_to_nothing(nodes)) >= SILENT else None


def _within(known: Knowledge, nodes: _Side, number: int) -> Found:
    """The nodes fail together. Which half of them does, or is it between the halves?"""
    if len(nodes) <= known.problem.smallest:
        if silent := _silence(known, [frozenset(nodes)]):
            return Found(why=f"{folded(nodes)} fail together now and then: {silent}")
        if sum(known.of(frozenset(nodes))) < _DOUBTED:
            return Found(groups=_disjoint(known, [frozenset(nodes)], number, "again"))
        return Found(why=f"{folded(nodes)} fail together now and then")
    sides = _halves(known, nodes)
    status = [_status(known, frozenset(side), 1) for side in sides]
    for side, came_to in zip(sides, status, strict=True):
        if came_to == "fail":
            return _within(known, side, number)
    pending = [frozenset(side) for side, came_to in zip(sides, status, strict=True) if came_to is None]
    if pending:
        return Found(groups=_disjoint(known, pending, number, "across"))
    if silent := _silence(known, (frozenset(side) for side, it in zip(sides, status, strict=True) if it == "unknown")):
        return Found(why=f"{folded(nodes)} fail together, though each passes with others: {silent}")
    return _cross(known, sides[0], sides[1], number)


def _cross(known: Knowledge, one: _Side, other: _Side, number: int) -> Found:
    """Each side passes, and the two fail together."""
    if len(one) == 1 and len(other) == 1:
        pair = frozenset(one + other)
        if _status(known, pair, 2) is None:
            return Found(groups=_disjoint(known, [pair], number, "across"))
        if silent := _silence(known, [pair]):
            return Found(why=f"between {folded(one)} and {folded(other)}: {silent}")
        return Found(why=f"between {folded(one)} and {folded(other)}, and the two alone do not show it")
    mine, theirs = _halves(known, one), _halves(known, other)
    cells = [(a, b) for turn in range(2) for a, b in _turn(mine, theirs, turn)]
    for need in (1, 2):
        pending, unknown = [], []
        for a, b in cells:
            status = _status(known, frozenset(a + b), need)
            if status == "fail":
                return _cross(known, a, b, number)
            if status is None:
                pending.append(frozenset(a + b))
            elif status == "unknown":
                unknown.append(frozenset(a + b))
        if pending:
            return Found(groups=_disjoint(known, pending, number, "across"))
    if silent := _silence(known, unknown):
        return Found(why=f"between {folded(one)} and {folded(other)}: {silent}")
    count = len(one) + len(other)
    return Found(
        why=f"between {folded(one)} and {folded(other)}: each side passes, and so does every part across;"
        f" it fails only with all {count} (a link that needs more load, or the scale itself)"
    )


def _silence(known: Knowledge, groups: Iterable[frozenset[str]]) -> str:
    """Which of the groups it is that nothing can be said of, and why."""
    for nodes in groups:
        tries = known.came_to_nothing(nodes)
        if len(tries) >= SILENT:
            ids = ", ".join(each.group.id for each in tries)
            return f"the trainings of {folded(sorted(nodes))} came to nothing ({ids}: {tries[-1].why})"
    return ""


def _turn(mine: list[_Side], theirs: list[_Side], turn: int) -> Iterator[tuple[_Side, _Side]]:
    """Which parts train together in the first, and in the second turn: no node twice, if there are two on each side."""
    for index, a in enumerate(mine):
        for place, b in enumerate(theirs):
            if (index + place) % 2 == turn:
                yield a, b


def _halves(known: Knowledge, nodes: _Side) -> list[_Side]:
    """Two halves, along the racks where that comes out."""
    if len(nodes) == 1:
        return [nodes]
    ordered = sorted(nodes, key=lambda node: (known.problem.racks.get(node, ""), known.place[node]))
    middle = len(ordered) // 2
    return [tuple(ordered[:middle]), tuple(ordered[middle:])]


def _ordered(known: Knowledge, nodes: frozenset[str]) -> _Side:
    return tuple(sorted(nodes, key=known.place.__getitem__))


def _disjoint(known: Knowledge, wanted: Sequence[frozenset[str]], number: int, purpose: Purpose) -> tuple[Group, ...]:
    """As many of them as share no node, in their order; the others have to wait for the next round."""
    groups: list[Group] = []
    busy: set[str] = set()
    for nodes in wanted:
        if not nodes & busy:
            busy |= nodes
            parent = _smallest_failed(known, nodes)
            groups.append(
                Group(id=f"{number}.{len(groups) + 1}", nodes=_ordered(known, nodes), purpose=purpose, parent=parent)
            )
    return tuple(groups)


def _smallest_failed(known: Knowledge, nodes: frozenset[str]) -> str | None:
    around = [each for each in known.trainings if each.outcome == "fail" and nodes <= each.nodes]
    return min(around, key=lambda each: len(each.nodes)).group.id if around else None
