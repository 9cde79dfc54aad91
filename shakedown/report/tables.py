"""Every kind of document as tables and lines that rich renders."""

import functools
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from shakedown.common.text import counted, decimal
from shakedown.evidence.diagnosis.words import lines
from shakedown.report import past, screen, service, terminal
from shakedown.report.formats import Calibrated, Compared, Findings, InService, Judged, Remembered, Run, Waivers


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
        parts = outcomes.report(document.record, document.show_all, document.directory)
        yield from (_marked(part) if isinstance(part, str) else part for part in parts)
        return
    yield from (Text(line) for line in lines(document.diagnosis))
    yield from outcomes.judgement(document.gates, show_all=document.show_all)
    for figure in document.recorded:
        why = f" ({figure.why})" if figure.why else ""
        yield Text(f"recorded, not judged: {figure.name} {decimal(figure.value)} {figure.unit}{why}")
    yield from (Text(note) for note in document.notes)
    yield _marked(f"\n{terminal.verdict_text(document.verdict)}")


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
def _(document: Waivers) -> Iterator[RenderableType]:
    if not document.rows:
        yield Text("the inventory has no waivers")
    for row in document.rows:
        yield Text(f"{row['name']}: {row['what']} on {row['where']}: {row['status']}")
        yield Text(f"    {row['reason']} ({row['owner']}); {row['rests'] or 'nothing rests on it'}")


@rendered.register
def _(document: InService) -> Iterator[RenderableType]:
    yield from service.board(document.board, document.show_all)
