"""Findings, runs and waivers as tables and lines that rich renders."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from shakedown.report import screen
from shakedown.report.formats import Findings, Judged, Run, Waivers


def findings(document: Findings) -> Iterator[RenderableType]:
    """Yield the findings of all nodes, by cause."""
    view = screen.View(wide=document.wide, evidence=document.evidence, quiet=document.quiet, all=document.show_all)
    yield from screen.screen(document.findings, document.nodes, document.verdict, document.inventory, view)


def judged(document: Judged | Run) -> Iterator[RenderableType]:
    """Yield what a run, or a log, came to."""
    from shakedown.report import outcomes  # gates and trials, 200 ms: a drift check has none

    if isinstance(document, Run):
        parts = outcomes.report(document.record, document.show_all, document.directory, document.seen)
    else:
        parts = outcomes.judged(document)
    for part in parts:
        made = Text.from_markup(part) if isinstance(part, str) else part  # a text alone would be written as it stands
        yield made if document.show_all or not isinstance(part, Table) else Constrain(made, screen.COLUMNS)


def waivers(document: Waivers) -> Iterator[RenderableType]:
    """Yield each waiver with what rests on it."""
    if not document.rows:
        yield Text("the inventory has no waivers")
    for row in document.rows:
        yield Text(f"{row['name']}: {row['what']} on {row['where']}: {row['status']}")
        yield Text(f"    {row['reason']} ({row['owner']}); {row['rests'] or 'nothing rests on it'}")
