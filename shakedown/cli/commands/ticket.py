"""The text of a ticket to a vendor."""

import sys

import click

from shakedown import ledger as memory
from shakedown.cli.words import unusable, usable
from shakedown.common.text import complaint
from shakedown.hosts import few, select
from shakedown.report.markdown import candidates, text_of
from shakedown.runs.archive.read import opened_run
from shakedown.runs.archive.redact import Redactor
from shakedown.service.model import Step

PREPARE = ("stream",)
SECTION = "Find out"


@click.command()
@click.argument("run", default="latest")
@click.option("--node", help="of the nodes that the run names, or any other one of the run")
def ticket(run: str, node: str | None) -> None:
    """Write a ticket to a vendor about the node that a run names, as Markdown on standard output.

    RUN is its id, a part that only its id begins with, latest, its directory, or a bundle. The ticket has the machine
    and its parts with serial numbers, the diagnosis with its evidence, the findings, and what was tried: settings that
    were changed, trainings of a search, repairs in the ledger. Secrets are masked; names and serial numbers are not.

    \b
    shakedown ticket latest
    shakedown ticket 20261128 --node node17
    """
    with usable(), opened_run(run) as opened:
        record = opened.directory.load()
        named = select([node], [entry.name for entry in record.nodes]) if node else candidates(record)
        if not named:
            unusable(f"{record.run_id} names no node: give one with --node")
        if len(named) > 1:
            unusable(f"{record.run_id} names {few(named)}: choose one with --node")
        try:
            state = opened.directory.load_state(named[0])
        except FileNotFoundError:
            state = None
        steps = () if opened.messages or record.simulated else _steps(named[0])
        text = Redactor().text(text_of(record, named[0], state, steps))
    click.echo(text, nl=False)
    sys.exit(0)


def _steps(node: str) -> tuple[Step, ...]:
    """Return the repairs that the ledger knows of a node; none where there is no ledger."""
    try:
        return memory.claims.known_of(memory.store.open_ledger(), [node])[node].steps
    except memory.LedgerError as error:
        click.echo(complaint(f"earlier repairs are not in the ticket: {error}"), err=True)
        return ()
