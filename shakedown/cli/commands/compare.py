"""Two runs side by side."""

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import usable
from shakedown.common.text import complaint, printable
from shakedown.ledger.compare import compare as compare_runs
from shakedown.report.formats import Compared, write
from shakedown.runs.archive.read import opened_run


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@format_of(Compared)
def compare(first: str, second: str, form: str) -> None:
    """Show what differs between two runs: verdicts first, then figures, versions, the nodes' states, the plans, and the
    rest. RUN is an id, a part that only its id begins with, latest, a directory, or the file that `shakedown bundle`
    made of it.

    \b
    shakedown compare 20261121T0600 latest
    shakedown compare theirs.shakedown.tar.gz latest
    """
    with usable(), opened_run(first) as one, opened_run(second) as other:
        for line in (*one.messages, *one.altered, *other.messages, *other.altered):
            click.echo(complaint(printable(line)), err=True)
        differences = compare_runs(one.directory, other.directory)
    write(Compared(differences), form)
