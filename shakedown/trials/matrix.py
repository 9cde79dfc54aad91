"""The slow causes in the rounds between nodes: a row is a sender, a column a receiver, a cell a link, a block a rack.

A cell is slow when it is worse than the median by the naming fraction, in every repetition, and clear of the scatter.
The cause of the most slow cells (a node, its sends, its receives, a block's border) is named first, if two thirds of
its cells, and three, are slow. At most a third of the nodes is named. A single slow cell that is left is a link.

A row is what one node reports, perhaps too high. So a sender must also be slower than the lower half of the others
(`peers.py`), and a receiver, block or link slow against its senders' other reports. That holds while no more than half
of the other nodes report too much.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from shakedown.common.text import counted
from shakedown.evidence.peers import PRIOR, Z, scatter_of, slower_than_others
from shakedown.trials.models import Named

Cell = tuple[str, str]  # sender, receiver
LEAST_CELLS = 6  # fewer cells do not show what is usual
SHARE = 2 / 3
LEAST_OF_A_ROW = 3


@dataclass(frozen=True)
class Read:
    """The result for a matrix. `median` is in the figure's unit."""

    median: float | None
    slow: list[Cell]
    named: list[Named]


@dataclass(frozen=True)
class _Cause:
    kind: str
    what: str
    nodes: tuple[str, ...]
    cells: frozenset[Cell]


@dataclass(frozen=True)
class _Rows:
    """The rates that each node reports as a sender, and the cells that are slow whatever other nodes report."""

    rates: Mapping[Cell, Sequence[float]]
    slower: float
    sure: frozenset[Cell]  # lost, or below a floor: no comparison

    def backed(self, cause: _Cause, hit: frozenset[Cell]) -> bool:
        """Return whether the cause stands without comparing different senders."""
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
        """Return the median of a sender's rates; 0: there are none beside those left out."""
        medians = [median(values) for cell, values in self.rates.items() if cell[0] == sender and cell not in without]
        return median(medians) if medians else 0.0


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
    """Find slow cells and their causes. A `missing` cell (tried, without a value) is infinitely slow; one that misses
    the `floor`, in the figure's unit, in every repetition is slow whatever the others are."""
    rates = {cell: [1 / v if lower_is_better else v for v in values if v > 0] for cell, values in cells.items()}
    rates = {cell: values for cell, values in rates.items() if values}
    centres = {cell: median(values) for cell, values in rates.items()}
    lost = [cell for cell in missing if cell not in centres]
    bound = None if floor is None else 1 / floor if lower_is_better else floor
    below = [cell for cell in centres if bound is not None and max(rates[cell]) < bound]
    few = len(centres) + len(lost) < LEAST_CELLS
    if not centres or (few and bound is None):
        return Read(None, [], [])
    centre, worse, sure = (median(centres.values()), [], []) if few else _worse(rates, centres, slower)
    sure += [cell for cell in below if cell not in sure]
    slow = [*lost, *sure]
    unsure = [cell for cell in worse if cell not in sure]  # not always, or not clear of the scatter
    rows = _Rows(rates, slower, frozenset([*lost, *below]))
    named = _explain(slow, unsure, [*centres, *lost], nodes, blocks or {}, figure, rows)
    return Read(1 / centre if lower_is_better else centre, slow, named)


def _worse(
    rates: Mapping[Cell, Sequence[float]], centres: Mapping[Cell, float], slower: float
) -> tuple[float, list[Cell], list[Cell]]:
    """Return the usual rate, the cells that are worse by the naming fraction, and those that are surely slow."""
    centre, scale = _usual(list(centres.values()))
    scale = max(scale, scatter_of(rates, centres) * centre)
    bound = (1 - slower) * centre
    worse = [cell for cell, rate in centres.items() if rate <= bound]
    clear = {cell for cell in worse if max(rates[cell]) <= bound and (centre - centres[cell]) / scale >= Z}
    return centre, worse, [cell for cell in worse if cell in clear or max(rates[cell]) <= centre / 3]


def _usual(values: list[float]) -> tuple[float, float]:
    """Estimate the usual rate and its scatter by the better half alone: of four nodes a slow one has half of the cells.
    That half of a normal distribution has its median at 0.674, and a median absolute deviation of 0.40 deviations."""
    middle = median(values)
    better = [value for value in values if value >= middle]
    high = median(better)
    scale = max(median(abs(value - high) for value in better) / 0.40, PRIOR * high)
    return high - 0.674 * scale, scale


def _explain(
    slow: list[Cell],
    unsure: Sequence[Cell],
    tried: Sequence[Cell],
    nodes: Sequence[str],
    blocks: Mapping[str, str],
    figure: str,
    rows: _Rows,
) -> list[Named]:
    left, named, used = set(slow), [], set[str]()
    causes = [*_node_causes(tried, nodes), *_block_causes(tried, nodes, blocks)]
    most = max(1, len(nodes) // 3)
    while left:
        fitting = [
            (cause, hit)
            for cause, hit in ((cause, cause.cells & left) for cause in causes)
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
    """Name the cells that no node explains as links, if these are few and apart, and their ends are not in doubt."""
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
        evidence = "slow, and no node, block or single link accounts for them"
        counts: dict[str, int] = {"cells": len(left), "of": len(left)}
        return [Named(kind="unnamed", what=what, nodes=sorted(set(ends)), figure=figure, evidence=evidence, **counts)]
    return [_link(a, b, left, figure) for a, b in links]


def _link(a: str, b: str, left: set[Cell], figure: str) -> Named:
    ways = [way for way in ((a, b), (b, a)) if way in left]
    what = f"{a} <> {b}" if len(ways) == 2 else f"{ways[0][0]} > {ways[0][1]}"
    evidence = "slow, while both of its ends are as usual towards others"
    return Named(kind="link", what=what, nodes=[a, b], figure=figure, cells=len(ways), of=len(ways), evidence=evidence)


def _node_causes(tried: Sequence[Cell], nodes: Sequence[str]) -> list[_Cause]:
    causes = []
    for node in nodes:
        row, column = ({cell for cell in tried if cell[end] == node} for end in (0, 1))
        causes += [
            _Cause("node", node, (node,), frozenset(row | column)),
            _Cause("sender", node, (node,), frozenset(row)),
            _Cause("receiver", node, (node,), frozenset(column)),
        ]
    return [cause for cause in causes if cause.cells]


def _block_causes(tried: Sequence[Cell], nodes: Sequence[str], blocks: Mapping[str, str]) -> list[_Cause]:
    """Make a cause of each block of at least two nodes: the cells that cross its border."""
    causes = []
    for block in dict.fromkeys(blocks.values()):
        inside = tuple(node for node in nodes if blocks.get(node) == block)
        crossing = frozenset(cell for cell in tried if (cell[0] in inside) != (cell[1] in inside))
        if 2 <= len(inside) < len(nodes) and crossing:
            causes.append(_Cause("block", block, inside, crossing))
    return causes


def _named(cause: _Cause, cells: int, figure: str) -> Named:
    direction = {
        "node": "sending and receiving",
        "sender": "sending",
        "receiver": "receiving",
        "block": "traffic across its border",
    }[cause.kind]
    return Named(
        kind=cause.kind,
        what=cause.what,
        nodes=list(cause.nodes),
        figure=figure,
        cells=cells,
        of=len(cause.cells),
        evidence=f"{direction} is slow: {cells} of {counted(len(cause.cells), 'cell')}",
    )
