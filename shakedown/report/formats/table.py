"""Tables for a terminal. What loads rich is imported where it is used: other formats do without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shakedown.common.text import counted
from shakedown.report.formats import Calibrated, Compared, Desired, Findings, InService, Judged, Remembered, Run, shows

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 60  # characters of a value that the others of its column are moved aside for


@shows(Findings)
def findings(document: Findings) -> Iterator[RenderableType]:
    from shakedown.report import terminal

    table = terminal.findings_table(document.findings, document.show_all)
    if table is not None:
        yield table
        yield ""
    yield _marked(terminal.findings_summary(document.findings, document.nodes))


@shows(Judged)
def judged(document: Judged) -> Iterator[RenderableType]:
    from rich.text import Text

    from shakedown.evidence.diagnosis import words
    from shakedown.report import terminal

    yield from (Text(line) for line in words.lines(document.diagnosis))
    yield from terminal.judgement(document.gates, show_all=document.show_all)
    for figure in document.recorded:
        why = f" ({figure.why})" if figure.why else ""
        yield Text(f"recorded, not judged: {figure.name} {figure.value:.6g} {figure.unit}{why}")
    yield from (Text(note) for note in document.notes)
    yield _marked(f"\n{terminal.verdict_text(document.verdict)}")


@shows(Run)
def run(document: Run) -> Iterator[RenderableType]:
    from shakedown.report import terminal

    yield from (
        _marked(part) if isinstance(part, str) else part for part in terminal.report(document.record, document.show_all)
    )


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = [(path, json.dumps(value), layer) for path, (value, layer) in document.values.items()]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for path, value, layer in rows:
        yield f"{path:<{widths[0]}}  {value:<{min(widths[1], WIDEST)}}  {layer}"


def _marked(text: str) -> RenderableType:
    """Return a text with rich's markup: as a text alone it would be written as it stands."""
    from rich.text import Text

    return Text.from_markup(text)


@shows(Remembered)
def remembered(document: Remembered) -> Iterator[RenderableType]:
    from shakedown.report import past

    yield from past.history(document.history)


@shows(Compared)
def compared(document: Compared) -> Iterator[RenderableType]:
    from shakedown.report import past

    yield from past.comparison(document.comparison)


@shows(Calibrated)
def calibrated(document: Calibrated) -> Iterator[RenderableType]:
    from rich.text import Text

    from shakedown.report import past

    yield from past.calibration(document.rows)
    yield Text(f"\n{counted(len(document.runs), 'run')}: {', '.join(document.runs)}")


@shows(InService)
def in_service(document: InService) -> Iterator[RenderableType]:
    from shakedown.report import service

    yield from service.board(document.board, document.show_all)
