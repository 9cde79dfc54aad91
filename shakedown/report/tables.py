"""Every kind of document as tables and lines that rich renders."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from shakedown.report import formats, past, screen
from shakedown.report.formats import Findings, Judged, Run, Waivers


def _findings(document: Findings) -> Iterator[RenderableType]:
    view = screen.View(wide=document.wide, evidence=document.evidence, quiet=document.quiet, all=document.show_all)
    yield from screen.screen(document.findings, document.nodes, document.verdict, document.inventory, view)


def _judged(document: Judged | Run) -> Iterator[RenderableType]:
    from shakedown.report import outcomes  # gates and trials, 200 ms: a drift check has none

    if isinstance(document, Run):
        parts = outcomes.report(document.record, document.show_all, document.directory, document.seen)
    else:
        parts = outcomes.judged(document)
    for part in parts:
        made = Text.from_markup(part) if isinstance(part, str) else part  # a text alone would be written as it stands
        yield made if document.show_all or not isinstance(part, Table) else Constrain(made, screen.COLUMNS)


def _waivers(document: Waivers) -> Iterator[RenderableType]:
    if not document.rows:
        yield Text("the inventory has no waivers")
    for row in document.rows:
        yield Text(f"{row['name']}: {row['what']} on {row['where']}: {row['status']}")
        yield Text(f"    {row['reason']} ({row['owner']}); {row['rests'] or 'nothing rests on it'}")


_PARTS: dict[type, Callable[[Any], Iterator[RenderableType]]] = {
    Findings: _findings,
    Judged: _judged,
    Run: _judged,
    Waivers: _waivers,
    formats.Remembered: lambda document: past.history(document.history),
    formats.Compared: lambda document: past.comparison(document.comparison),
    formats.Calibrated: lambda document: past.calibration(document.rows, document.runs),
    formats.Reliable: lambda document: past.reliability(document.answer),
    formats.InService: lambda document: past.board(document.board, document.show_all),
}


def rendered(document: object) -> Iterator[RenderableType]:
    """Yield the parts of a document."""
    yield from _PARTS[type(document)](document)
