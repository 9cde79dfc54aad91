"""What is to be done, the gates and the nodes as the page shows them: what many nodes have in common stands once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shakedown.common.lists import grouped
from shakedown.common.text import printable
from shakedown.gates import Gate
from shakedown.hosts import folded
from shakedown.report.causes import fold_gates
from shakedown.report.overview import Action, Overview
from shakedown.report.page import plots
from shakedown.runs.directory import RunNode
from shakedown.state.findings import Verdict, worst

if TYPE_CHECKING:
    from shakedown.ledger.history import Seen


MOST = 500
"""Entries of one list. The others are counted, and run.json has them: a page with more takes seconds to open."""
TEXT = 1000  # characters of one name
PLACES = 2_000_000
"""Characters with which all entries together say which nodes they are about. The search shows the entries beyond."""


@dataclass(frozen=True)
class Nodes:
    """Nodes as an entry names them, and as the page's search finds them: by their places in the list of all names."""

    where: str  # node[001-127,129]
    places: str  # first place, then steps: 0-126,2; "*" where no search decides
    count: int


class Index:
    """The names of all nodes, in their order. Each stands on the page once, however many entries are about it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [printable(name, TEXT) for name in names]
        self._places = {name: place for place, name in enumerate(names)}
        self._known: dict[tuple[str, ...], Nodes] = {}
        self._left = PLACES

    def of(self, nodes: Sequence[str]) -> Nodes:
        """Return the nodes of an entry; those that are not in the list are found by its text."""
        key = tuple(nodes)
        if key not in self._known:
            steps = _steps(sorted({self._places[name] for name in nodes if name in self._places}))
            self._left -= len(steps)
            places = steps if self._left >= 0 else "*"
            self._known[key] = Nodes(printable(folded(nodes), 4 * TEXT) if nodes else "", places, len(nodes))
        return self._known[key]


def _steps(places: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    parts, before = [], 0
    for first, last in runs:
        parts.append(f"{first - before}{f'-{last - first}' if last > first else ''}")
        before = last
    return ",".join(parts)


def cards(actions: Sequence[Action], index: Index) -> list[tuple[str, Action, Nodes]]:
    """Return what is to be done, the worst first, each with its place on the page."""
    return [(f"c{number}", action, index.of(action.nodes)) for number, action in enumerate(actions[:MOST], 1)]


def fleet(shown: Overview, index: Index) -> dict[str, tuple[str, Nodes, Sequence[Seen]]]:
    """Return the rows of a ledger's nodes, the worst last verdict first; nodes with equal history share one."""
    alike = grouped((tuple((run.run_id, run.verdict, run.part, run.why) for run in seen), seen) for seen in shown.fleet)
    groups = sorted(alike.values(), key=lambda group: -group[0][0].verdict.severity)
    rows: dict[str, tuple[str, Nodes, Sequence[Seen]]] = {}
    for number, group in enumerate(groups[:MOST], 1):
        names = [seen[0].node for seen in group]
        rows |= dict.fromkeys(names, (f"n{number}", index.of(names), group[0]))
    return rows


def gates(shown: Overview, index: Index) -> dict[str, list[tuple[Gate, Nodes]]]:
    """Return the gates: failed on their own account, following from the early end of the job, and held."""
    following = {id(gate) for gate in shown.following}
    parts = {
        "own": [gate for gate in shown.gates if gate.verdict != Verdict.OK and id(gate) not in following],
        "following": shown.following,
        "held": [gate for gate in shown.gates if gate.verdict == Verdict.OK],
    }
    return {name: [(row.gate, index.of(row.nodes)) for row in fold_gates(part)[:MOST]] for name, part in parts.items()}


def nodes(shown: Overview, index: Index) -> list[tuple[RunNode, Nodes]]:
    """Return the nodes' parts in a run, the worst first; those that have the same part are one row."""
    alike = grouped(
        ((node.verdict, node.part, node.why, node.exit_code, tuple(node.changes)), node) for node in shown.nodes
    )
    groups = sorted(alike.values(), key=lambda group: -group[0].verdict.severity)
    return [(group[0], index.of([node.name for node in group])) for group in groups[:MOST]]


CELLS = 6000  # of a table that is still read
COLUMNS = 200  # more are one: names that nodes have for themselves, as of mounts, would make the cells nodes x nodes
MARKS = {Verdict.OK: "✓", Verdict.WARN: "i", Verdict.DRIFT: "≠", Verdict.FAIL: "✗", Verdict.UNKNOWN: "?"}
"""Of each verdict a mark of its own: colour is never the only sign."""


@dataclass(frozen=True)
class Grid:
    """The grid as a table, or as an image: a table of tens of thousands of cells opens slowly."""

    columns: Sequence[str]
    alike: Sequence[str]  # findings that are ok on every node that has them: named once, no column
    rows: Sequence[tuple[Nodes, Verdict, Sequence[Verdict | None]]]
    image: str = ""  # data URI


def of(shown: Overview, index: Index) -> Grid | None:
    """Return the grid of all findings; None where there are none."""
    by_node: dict[str, dict[str, list[Verdict]]] = {}
    names: dict[str, bool] = {}  # finding -> whether it is ok everywhere
    for finding in shown.findings:
        by_node.setdefault(finding.node, {}).setdefault(finding.name, []).append(finding.verdict)
        names[finding.name] = names.get(finding.name, True) and finding.verdict == Verdict.OK
    if not by_node:
        return None
    columns = [name for name, well in names.items() if not well]
    if len(columns) > COLUMNS:
        others = frozenset(columns[COLUMNS - 1 :])
        columns = [*columns[: COLUMNS - 1], f"{len(others)} others"]
        for by_name in by_node.values():
            rest = (verdict for name, verdicts in by_name.items() if name in others for verdict in verdicts)
            by_name[columns[-1]] = list(rest)
    cells_of = ((tuple(_of(by_name.get(name)) for name in columns), node) for node, by_name in by_node.items())
    alike = grouped(cells_of)
    well = [printable(name, 200) for name, good in names.items() if good]
    shown_columns = [printable(name, 200) for name in columns]
    order = sorted(alike.items(), key=lambda item: -worst([v for v in item[0] if v] or [Verdict.OK]).severity)
    if len(order) * len(columns) > CELLS:
        of_nodes = [[_of(by_name.get(name)) for name in columns] for by_name in by_node.values()]
        return Grid(shown_columns, well, (), plots.verdicts(of_nodes, list(by_node), shown_columns))
    rows = [(index.of(nodes), worst([v for v in cells if v] or [Verdict.OK]), cells) for cells, nodes in order]
    return Grid(shown_columns, well, rows)


def _of(verdicts: Sequence[Verdict] | None) -> Verdict | None:
    """Return a node's worst verdict on one name; advice is more than ok."""
    if not verdicts:
        return None
    return max(verdicts, key=lambda verdict: (verdict.severity, verdict == Verdict.WARN))
