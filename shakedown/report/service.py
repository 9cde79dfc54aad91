"""The table of nodes and their service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from shakedown.common.text import counted, printable
from shakedown.hosts import named
from shakedown.report.terminal import table
from shakedown.service.board import Board, count_by_status, step_line, when
from shakedown.service.model import NodeService

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"in service": "green", "suspect": "yellow", "being mended": "yellow", "out": "red", "unknown": "magenta"}
_WHY = 160  # characters


def board(found: Board, show_all: bool = False) -> Iterator[RenderableType]:
    """Nodes that are not in service, one by one; the others in one line, but with `show_all`."""
    well = [node for node in found.nodes if node.standing == "in service" and not show_all]
    rest = [node for node in found.nodes if node not in well]
    if rest:
        made = table("node", "service", "since (UTC)", "why", "passed last", "next")
        for node in rest:
            standing = Text(_standing(node), style=_STYLES[node.standing])
            why = printable(node.why, _WHY)
            made.add_row(Text(node.node), standing, when(node.since), Text(why), Text(_passed(node)), Text(node.next))
        yield made
    if well:
        yield Text(f"in service: {named(node.node for node in well)}")
    for node in rest if show_all else ():
        yield from _history(node)
    for mark in found.marks:
        yield Text(printable(str(mark)))
    yield from (Text(printable(note)) for note in found.notes)
    counts = ", ".join(f"{count} {standing}" for standing, count in count_by_status(found.nodes).items())
    yield Text(f"{counted(len(found.nodes), 'node')}: {counts}")


def _standing(node: NodeService) -> str:
    return f"{node.standing}: {node.rung}" if node.rung else node.standing


def _passed(node: NodeService) -> str:
    return f"{node.passed.load} {when(node.passed.at)}" if node.passed else "never"


def _history(node: NodeService) -> Iterator[RenderableType]:
    if not (node.steps or node.parts or node.evidence):
        return
    yield Text(f"\n{node.node}")
    yield from (Text(f"  {step_line(step)}") for step in node.steps)
    yield from (Text(f"  part: {part}") for part in node.parts)
    if node.evidence:
        yield Text(f"  evidence: {', '.join(node.evidence)}")
