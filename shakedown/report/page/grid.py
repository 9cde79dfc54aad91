"""Nodes by findings. Nodes of which every finding came to the same are one row, so that 509 of 512 are one line and
the odd ones stand out; where nearly every node is odd the grid is an image, for a table of tens of thousands of cells
cannot be read and opens slowly."""

from collections.abc import Sequence
from dataclasses import dataclass

from shakedown.common.text import printable
from shakedown.report.overview import Overview
from shakedown.report.page import plots
from shakedown.report.page.rows import Index, Nodes
from shakedown.state.findings import Verdict, worst

CELLS = 6000  # of a table that is still read
MARKS = {Verdict.OK: "✓", Verdict.WARN: "i", Verdict.DRIFT: "≠", Verdict.FAIL: "✗", Verdict.UNKNOWN: "?"}
"""Of each verdict a mark of its own: colour is never the only sign."""


@dataclass(frozen=True)
class Grid:
    """The grid as a table, or as an image with the rest of what the table would say."""

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
    alike: dict[tuple[Verdict | None, ...], list[str]] = {}
    for node, by_name in by_node.items():
        alike.setdefault(tuple(_of(by_name.get(name)) for name in columns), []).append(node)
    well = [printable(name, 200) for name, good in names.items() if good]
    shown_columns = [printable(name, 200) for name in columns]
    order = sorted(alike.items(), key=lambda item: -worst([v for v in item[0] if v] or [Verdict.OK]).severity)
    if len(order) * len(columns) > CELLS:
        of_nodes = [[_of(by_name.get(name)) for name in columns] for by_name in by_node.values()]
        return Grid(shown_columns, well, (), plots.verdicts(of_nodes, list(by_node), shown_columns))
    rows = [(index.of(nodes), worst([v for v in cells if v] or [Verdict.OK]), cells) for cells, nodes in order]
    return Grid(shown_columns, well, rows)


def _of(verdicts: Sequence[Verdict] | None) -> Verdict | None:
    """Return a node's verdict on one name; the worst, where it has several findings of that name; advice is more than
    ok."""
    if not verdicts:
        return None
    return max(verdicts, key=lambda verdict: (verdict.severity, verdict == Verdict.WARN))
