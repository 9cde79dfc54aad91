"""What stands out of the rounds between nodes: a row is a sender, a column a receiver, a cell a link, a block what
several nodes hang on.

A cell is slow when it is worse than the median of all by the fraction from which something is named, in every
repetition, and clear of the scatter. Whatever explains the most slow cells is named first: a node, what it sends, what
it receives, or what crosses the border of a block. Of its cells at least two thirds, and three, must be slow. A block
and a node together are never more than a third of the nodes: what slows so many is no node. Of what is left, a cell by
itself is a link, and anything else is told without a name.

A row is what one node reports, which may be too much. So no cause is named by other nodes' figures alone: a sender has
to be slower than the lower half of the other senders as well, as a part of a node (`peers.py`), and a receiver, a block
or a link has to be slow against what the same senders report towards others. That holds while no more than half of the
other nodes report too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from shakedown.common.text import counted
from shakedown.evidence.peers import PRIOR, Z, scatter_of, slower_than_others
from shakedown.trials.models import Named

Cell = tuple[str, str]  # sender, receiver
LEAST_CELLS = 6  # fewer cells than this say nothing of what is usual
SHARE = 2 / 3
LEAST_OF_A_ROW = 3


@dataclass(frozen=True)
class Read:
    """What the matrix says. `median` in the figure's unit."""

    median: float | None
    slow: list[Cell]
    unsure: list[Cell]  # worse by as much, but not always or not clear of the scatter
    named: list[Named]


@dataclass(frozen=True)
class _Cause:
    kind: str
    what: str
    nodes: tuple[str, ...]
    cells: frozenset[Cell]


@dataclass(frozen=True)
class _Rows:
    """What each node reports that it sends, as rates, and the bounds that hold whatever the others report."""

    rates: Mapping[Cell, Sequence[float]]
    slower: float
    sure: frozenset[Cell]  # lost, or below a floor: no comparison

    def backed(self, cause: _Cause, hit: frozenset[Cell]) -> bool:
        """Whether the cause stands when other nodes' figures are no measure for a node's own."""
        if cause.kind in ("sender", "node") and self._sends_slowly(cause.what, hit):
            return True
        if cause.kind == "sender":
            return False
        slow = [cell for cell in hit if self._slow_for_its_sender(cell, cause.cells)]
        return len(slow) >= SHARE * len(hit)

    def _sends_slowly(self, node: str, hit: frozenset[Cell]) -> bool:
        own = [cell for cell in hit if cell[0] == node]
        if own and all(cell in self.sure for cell in own):
            return True
        others = sorted(self._middle(sender) for sender in {cell[0] for cell in self.rates} - {node})
        slow = [cell in self.sure or slower_than_others(self.rates[cell], others, self.slower) for cell in own]
        return bool(slow) and sum(slow) >= SHARE * len(slow)

    def _slow_for_its_sender(self, cell: Cell, cause: frozenset[Cell]) -> bool:
        if cell in self.sure:
            return True
        usual = self._middle(cell[0], without=cause)
        return usual > 0 and max(self.rates[cell]) <= (1 - self.slower) * usual

    def _middle(self, sender: str, without: frozenset[Cell] = frozenset()) -> float:
        """The median of what a sender reports; 0: nothing beside what is left out."""
        its = [median(values) for cell, values in self.rates.items() if cell[0] == sender and cell not in without]
        return median(its) if its else 0.0


def read(
    cells: Mapping[Cell, Sequence[float]],
    *,
    figure: str,
    lower_is_better: bool,
    slower: float,
    nodes: Sequence[str],
    blocks: Mapping[str, str] | None = None,
    missing: Iterable[Cell] = (),
    floor: float | None = None,
) -> Read:
    """Read a matrix. A cell that is `missing` (asked, and nothing came) is slow without end; one that misses the
    `floor`, in the figure's unit, in every repetition is slow whatever the others are."""
    rates = {cell: [1 / v if lower_is_better else v for v in values if v > 0] for cell, values in cells.items()}
    centres = {cell: median(values) for cell, values in rates.items() if values}
    lost = [cell for cell in missing if cell not in centres]
    bound = None if floor is None else 1 / floor if lower_is_better else floor
    below = [cell for cell in centres if bound is not None and max(rates[cell]) < bound]
    if not centres or (len(centres) + len(lost) < LEAST_CELLS and bound is None):
        return Read(None, [], [], [])
    if len(centres) + len(lost) < LEAST_CELLS:
        middle = median(centres.values())
        rows = _Rows(rates, slower, frozenset([*lost, *below]))
        named = _explain([*lost, *below], [], [*centres, *lost], nodes, blocks or {}, figure, rows)
        return Read(1 / middle if lower_is_better else middle, [*lost, *below], [], named)
    centre, scale = _usual(list(centres.values()))
    scale = max(scale, scatter_of({cell: rates[cell] for cell in centres}, centres) * centre)
    worse = [cell for cell, each in centres.items() if each <= (1 - slower) * centre]
    sure = [c for c in worse if max(rates[c]) <= (1 - slower) * centre and (centre - centres[c]) / scale >= Z]
    # Where the scatter is wide, what is beyond any doubt is slow all the same: a third of what is usual, every time.
    sure = [c for c in worse if c in set(sure) or max(rates[c]) <= centre / 3]
    sure += [cell for cell in below if cell not in sure]
    slow = [*lost, *sure]
    unsure = [cell for cell in worse if cell not in sure]
    rows = _Rows({cell: rates[cell] for cell in centres}, slower, frozenset([*lost, *below]))
    named = _explain(slow, unsure, [*centres, *lost], nodes, blocks or {}, figure, rows)
    return Read(1 / centre if lower_is_better else centre, slow, unsure, named)


def _usual(values: list[float]) -> tuple[float, float]:
    """What is usual, and its scatter, by the better half alone: of four nodes a slow one has half of all cells.

    Of a normal distribution that half has its median 0.674 standard deviations above the centre, and a median absolute
    deviation of 0.40 of them about it."""
    middle = median(values)
    better = [each for each in values if each >= middle]
    high = median(better)
    scale = max(median(abs(each - high) for each in better) / 0.40, PRIOR * high)
    return high - 0.674 * scale, scale


def _explain(
    slow: list[Cell],
    unsure: Sequence[Cell],
    asked: Sequence[Cell],
    nodes: Sequence[str],
    blocks: Mapping[str, str],
    figure: str,
    rows: _Rows,
) -> list[Named]:
    left, named, used = set(slow), [], set[str]()
    causes = [*_of_nodes(asked, nodes), *_of_blocks(asked, nodes, blocks)]
    most = max(1, len(nodes) // 3)
    while left:
        found = [(cause, cause.cells & left) for cause in causes]
        fitting = [
            (cause, hit)
            for cause, hit in found
            if len(hit) >= LEAST_OF_A_ROW
            and len(hit) >= SHARE * len(cause.cells)
            and len(used | set(cause.nodes)) <= most
            and rows.backed(cause, frozenset(hit))
        ]
        if not fitting:
            break
        cause, hit = max(fitting, key=lambda pair: (len(pair[1]), len(pair[1]) / len(pair[0].cells)))
        used |= set(cause.nodes)
        named.append(_named(cause, len(hit), figure))
        left -= cause.cells
    return [*named, *_links(left, unsure, nodes, figure, rows)]


def _links(left: set[Cell], unsure: Sequence[Cell], nodes: Sequence[str], figure: str, rows: _Rows) -> list[Named]:
    """The cells that no node explains: links, as long as they are few and apart from each other, and nothing else of
    their ends is in doubt."""
    links = sorted({(min(cell), max(cell)) for cell in left})
    ends = [node for link in links for node in link]
    doubtful = any(set(cell) & set(ends) and (min(cell), max(cell)) not in links for cell in unsure)
    doubtful |= not all(
        rows.backed(_Cause("link", "", link, frozenset([cell])), frozenset([cell]))
        for link in links
        for cell in (link, link[::-1])
        if cell in left
    )
    if len(set(ends)) < len(ends) or len(links) > max(1, len(nodes) // 4) or doubtful:
        what = f"{counted(len(left), 'link')} of {counted(len(set(ends)), 'node')}"
        why = "slow, and no node, block or single link accounts for them"
        joined = sorted(set(ends))
        return [
            Named(kind="unnamed", what=what, nodes=joined, figure=figure, cells=len(left), of=len(left), evidence=why)
        ]
    return [_link(a, b, left, figure) for a, b in links]


def _link(a: str, b: str, left: set[Cell], figure: str) -> Named:
    ways = [way for way in ((a, b), (b, a)) if way in left]
    what = f"{a} <> {b}" if len(ways) == 2 else f"{ways[0][0]} > {ways[0][1]}"
    why = "slow, while both of its ends are as usual towards others"
    return Named(kind="link", what=what, nodes=[a, b], figure=figure, cells=len(ways), of=len(ways), evidence=why)


def _of_nodes(asked: Sequence[Cell], nodes: Sequence[str]) -> list[_Cause]:
    causes = []
    for node in nodes:
        row, column = ({cell for cell in asked if cell[end] == node} for end in (0, 1))
        causes += [
            _Cause("node", node, (node,), frozenset(row | column)),
            _Cause("sender", node, (node,), frozenset(row)),
            _Cause("receiver", node, (node,), frozenset(column)),
        ]
    return [cause for cause in causes if cause.cells]


def _of_blocks(asked: Sequence[Cell], nodes: Sequence[str], blocks: Mapping[str, str]) -> list[_Cause]:
    """What crosses the border of a block of at least two nodes: within it all may be well."""
    causes = []
    for block in dict.fromkeys(blocks.values()):
        inside = tuple(node for node in nodes if blocks.get(node) == block)
        crossing = frozenset(cell for cell in asked if (cell[0] in inside) != (cell[1] in inside))
        if 2 <= len(inside) < len(nodes) and crossing:
            causes.append(_Cause("block", block, inside, crossing))
    return causes


def _named(cause: _Cause, cells: int, figure: str) -> Named:
    what = {
        "node": "what it sends and what it receives",
        "sender": "what it sends",
        "receiver": "what it receives",
        "block": "what crosses its border",
    }[cause.kind]
    return Named(
        kind=cause.kind,
        what=cause.what,
        nodes=list(cause.nodes),
        figure=figure,
        cells=cells,
        of=len(cause.cells),
        evidence=f"{what} is slow: {cells} of {counted(len(cause.cells), 'cell')}",
    )
