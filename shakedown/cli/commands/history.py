"""Earlier runs."""

from typing import Any

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import Since, usable
from shakedown.common.nearest import nearest
from shakedown.common.text import complaint
from shakedown.ledger import LedgerError
from shakedown.ledger.history import Asked, fleet
from shakedown.ledger.history import history as read_history
from shakedown.ledger.store import open_ledger
from shakedown.recipes.recipe import recipes
from shakedown.report.formats import Remembered, write


@click.command()
@click.option("--node", metavar="HOSTS", help="runs of these nodes, node[01-08] or node03, with their part in each")
@click.option("--part", metavar="SERIAL", help="runs of this GPU, NIC or board wherever it sat, and where that was")
@click.option("--recipe", help="runs with a job of this recipe")
@click.option("--since", type=Since(), metavar="TIME", help="2026-11-01, 2026-11-01T06:00 (UTC), or 12h, 7d, 4w ago")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="runs at most")
@format_of(Remembered)
def history(limit: int, form: str, **filters: Any) -> None:
    """Show earlier runs from the ledger, the newest first.

    A part is given by its serial number, a NIC by its node GUID.

    \b
    shakedown history --node node03.rack7 --since 4w
    shakedown history --part b83f:d203:0012:3456
    shakedown history --recipe llama3.1-8b-fp8 --limit 100 --format json
    """
    with usable(LedgerError):
        ledger = open_ledger()
        answer = read_history(ledger, Asked(limit=limit, **filters))
        whole = form == "html" and not any(filters.values())
        nodes = fleet(ledger) if whole else ()
    if not answer.runs and (near := nearest(filters["recipe"] or "", recipes())):
        click.echo(complaint(f"did you mean --recipe {near}?"), err=True)
    write(Remembered(answer, nodes), form)
