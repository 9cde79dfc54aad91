"""Every kind of document as tables and lines that rich renders."""

import functools
from collections.abc import Iterator

from rich.console import RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from shakedown.common.text import counted
from shakedown.report import past, screen, service
from shakedown.report.formats import (
    Calibrated,
    Compared,
    Findings,
    InService,
    Judged,
    Reliable,
    Remembered,
    Run,
    Waivers,
)


@functools.singledispatch
def rendered(document: object) -> Iterator[RenderableType]:
    """Yield the parts of a document."""
    raise TypeError(type(document).__name__)


@rendered.register
def _(document: Findings) -> Iterator[RenderableType]:
    view = screen.View(wide=document.wide, evidence=document.evidence, quiet=document.quiet, all=document.show_all)
    yield from screen.screen(document.findings, document.nodes, document.verdict, document.inventory, view)


@rendered.register
def _(document: Judged | Run) -> Iterator[RenderableType]:
    from shakedown.report import outcomes  # gates and trials, 200 ms: a drift check has none

    if isinstance(document, Run):
        parts = outcomes.report(document.record, document.show_all, document.directory, document.seen)
    else:
        parts = outcomes.judged(document)
    for part in parts:
        made = _marked(part) if isinstance(part, str) else part
        yield made if document.show_all or not isinstance(part, Table) else Constrain(made, screen.COLUMNS)


def _marked(text: str) -> RenderableType:
    """Return a text with rich's markup: as a text alone it would be written as it stands."""
    return Text.from_markup(text)


@rendered.register
def _(document: Remembered) -> Iterator[RenderableType]:
    yield from past.history(document.history)


@rendered.register
def _(document: Compared) -> Iterator[RenderableType]:
    yield from past.comparison(document.comparison)


@rendered.register
def _(document: Calibrated) -> Iterator[RenderableType]:
    yield from past.calibration(document.rows)
    yield Text(f"\n{counted(len(document.runs), 'run')}: {', '.join(document.runs)}")


@rendered.register
def _(document: Reliable) -> Iterator[RenderableType]:
    yield from past.reliability(document.answer)


@rendered.register
def _(document: Waivers) -> Iterator[RenderableType]:
    if not document.rows:
        yield Text("the inventory has no waivers")
    for row in document.rows:
        yield Text(f"{row['name']}: {row['what']} on {row['where']}: {row['status']}")
        yield Text(f"    {row['reason']} ({row['owner']}); {row['rests'] or 'nothing rests on it'}")


@rendered.register
def _(document: InService) -> Iterator[RenderableType]:
    yield from service.board(document.board, document.show_all)
