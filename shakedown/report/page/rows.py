"""The rows of the page's tables: what is the same of many nodes is one row, and its nodes are ranges."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shakedown.common.text import printable
from shakedown.hosts import folded
from shakedown.report.fold import fold
from shakedown.report.overview import Action, Overview
from shakedown.report.terminal import shown_values
from shakedown.runs.records import RunNode
from shakedown.state.findings import Finding, Verdict

MOST = 2000
"""Rows of one table. A page with more takes seconds to open; what is left out is counted, and run.json has it."""
TEXT = 1000  # characters of one cell


@dataclass(frozen=True)
class Nodes:
    """Nodes as a row names them, and as the page's search finds them: by their places in the list of all names."""

    where: str  # node[001-127,129]
    places: str  # 0-126,128
    count: int


class Index:
    """The names of all nodes, in their order. Each stands on the page once, however many rows are about it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [printable(name, TEXT) for name in names]
        self._places = {name: place for place, name in enumerate(names)}
        self._known: dict[tuple[str, ...], Nodes] = {}

    def of(self, nodes: Sequence[str]) -> Nodes:
        """Nodes that are named in a row; those that are not in the list are found by what the row says."""
        key = tuple(nodes)
        if key not in self._known:
            places = sorted({self._places[name] for name in nodes if name in self._places})
            self._known[key] = Nodes(printable(folded(nodes), 4 * TEXT) if nodes else "", _ranges(places), len(nodes))
        return self._known[key]


def _ranges(places: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@dataclass(frozen=True)
class FindingRow:
    """A finding of one node or more."""

    nodes: Nodes
    name: str
    verdict: Verdict
    pending: str
    wanted: str
    actual: str
    evidence: str
    remedy: str
    risk: str


@dataclass(frozen=True)
class Rows:
    """Those of a table that are shown, and how many are not."""

    shown: Sequence[FindingRow]
    beyond: int


def findings(shown: Overview, index: Index) -> Rows:
    """Return what differs, the worst first; then advice. What is as it should be is in the grid."""
    different = [finding for finding in shown.findings if finding.verdict != Verdict.OK]
    alike = sorted(fold(different), key=lambda row: -row.finding.verdict.severity)
    made = [_row(row.finding, index.of(row.nodes)) for row in alike[:MOST]]
    return Rows(made, max(len(alike) - MOST, 0))


def _row(finding: Finding, nodes: Nodes) -> FindingRow:
    wanted, actual = shown_values(finding)
    remedy = finding.remedy
    return FindingRow(
        nodes=nodes,
        name=printable(finding.name, TEXT),
        verdict=finding.verdict,
        pending=finding.pending,
        wanted=printable(wanted, TEXT),
        actual=printable(actual, TEXT),
        evidence=printable(finding.evidence, TEXT),
        remedy=printable(remedy.text, TEXT) if remedy else "",
        risk=remedy.risk.value if remedy and remedy.risk != "safe" else "",
    )


def actions(shown: Overview, index: Index) -> list[tuple[Action, Nodes]]:
    """Return what is to be done, in its order."""
    return [(action, index.of(action.nodes)) for action in shown.actions]


def nodes(shown: Overview, index: Index) -> list[tuple[RunNode, Nodes]]:
    """Return the nodes' parts in a run; those of which the same is to be said are one row."""
    alike: dict[tuple[object, ...], list[RunNode]] = {}
    for node in shown.nodes:
        content = (node.verdict, node.part, node.why, node.exit_code, tuple(node.changes))
        alike.setdefault(content, []).append(node)
    return [(group[0], index.of([node.name for node in group])) for group in alike.values()]


def some(items: Sequence[str], most: int) -> Iterator[str]:
    """Yield the first few, and how many more there are."""
    yield from items[:most]
    if len(items) > most:
        yield f"and {len(items) - most} more"
