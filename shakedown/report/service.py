"""The table of nodes and their service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from shakedown.common.text import counted, printable
from shakedown.hosts import few
from shakedown.report.terminal import table
from shakedown.service.marks import Board, step_line, when
from shakedown.service.model import NodeService

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"in service": "green", "suspect": "yellow", "being mended": "yellow", "out": "red", "unknown": "magenta"}
_WHY = 160  # characters


def board(found: Board, show_all: bool = False) -> Iterator[RenderableType]:
    """Yield the nodes that are not in service, those that are alike in one row; the others in one line. With
    `show_all` each node has a row."""
    well = [node for node in found.nodes if node.standing == "in service" and not show_all]
    rest = [node for node in found.nodes if node not in well]
    if rest:
        made = table("node", "service", "since (UTC)", "why", "passed last", "next")
        alike: dict[tuple[str, ...], list[NodeService]] = {}
        for node in rest:
            standing = f"{node.standing}: {node.rung}" if node.rung else node.standing
            passed = f"{node.passed.load} {when(node.passed.at)}" if node.passed else "never"
            row = (standing, when(node.since), printable(node.why, _WHY), passed, node.next)
            alike.setdefault((*row, node.node if show_all else ""), []).append(node)
        for (standing, *cells, _), nodes in alike.items():
            names = few(node.node for node in nodes)
            made.add_row(Text(names), Text(standing, style=_STYLES[nodes[0].standing]), *map(Text, cells))
        yield made
    if well:
        yield Text(f"in service: {few(node.node for node in well)}")
    for node in rest if show_all else ():
        yield from _history(node)
    for mark in found.marks:
        yield Text(printable(str(mark)))
    yield from (Text(printable(note)) for note in found.notes)
    numbers = Counter(node.standing for node in found.nodes)
    counts = ", ".join(f"{count} {standing}" for standing, count in numbers.items())
    yield Text(f"{counted(len(found.nodes), 'node')}: {counts}")


def _history(node: NodeService) -> Iterator[RenderableType]:
    if not (node.steps or node.parts or node.evidence):
        return
    yield Text(f"\n{node.node}")
    yield from (Text(f"  {step_line(step)}") for step in node.steps)
    yield from (Text(f"  part: {part}") for part in node.parts)
    if node.evidence:
        yield Text(f"  evidence: {', '.join(node.evidence)}")
