"""What the ledger holds: add, import, stale, export."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from shakedown.cli.completion import Group
from shakedown.cli.words import Since, unusable, usable
from shakedown.common.text import complaint, counted, printable
from shakedown.hosts import nodes
from shakedown.ledger import LedgerError
from shakedown.ledger.claims import by_age
from shakedown.ledger.history import export as lines
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.runs.archive.read import APART, OpenedRun, opened_run
from shakedown.runs.folder import run_ids

PREPARE = ("stream",)
SECTION = "Operate"


@click.group(cls=Group)
def ledger() -> None:
    """Keep what every run has left: ledger.sqlite beside the runs, or where $SHAKEDOWN_LEDGER says (a path, a URL of
    PostgreSQL, or a file of one's own with that URL). Runs write it at their end.

    \b
    shakedown ledger add --all
    shakedown ledger export | jq .verdict
    """


@ledger.command()
@click.argument("runs", nargs=-1)
@click.option("--all", "every", is_flag=True, help="all runs of the folder that holds them ($SHAKEDOWN_RUNS)")
def add(runs: tuple[str, ...], every: bool) -> None:
    """Keep RUNS, by their directories; one that is there already is replaced, so that a ledger can be made anew. What
    cannot be read is named, the others are kept, and the exit code is 2.

    A run out of an archive, or from outside the folder of the runs, is kept under the name of its origin: what it says
    of nodes changes no node's service, and enters no baseline.

    \b
    shakedown ledger add 20261122T014456-4dc983
    shakedown ledger add --all
    """
    if bool(runs) == every:
        unusable("ledger add takes RUNS, or --all")
    _add(run_ids() if every else runs, _keep)


@ledger.command("import")
@click.argument("runs", nargs=-1, required=True)
def import_(runs: tuple[str, ...]) -> None:
    """Keep RUNS of others (archives, or directories from elsewhere) as evidence about this site's own nodes: what they
    say may have nodes drained and cleared, and enters baselines.

    \b
    shakedown ledger import controller2/20261122T014456-4dc983
    shakedown ledger import rack7.shakedown.tar.gz
    """
    _add(runs, _import)


def _keep(book: Ledger, run: OpenedRun) -> list[str]:
    record = run.directory.load()
    if origin := run.origin(record.run_id):
        click.echo(complaint(f"{record.run_id} {APART.format(origin=origin)}"), err=True)
    return book.add(run.directory, record, origin)


def _import(book: Ledger, run: OpenedRun) -> list[str]:
    record = run.directory.load()
    if book.knows(record.run_id):
        raise ValueError(f"{printable(record.run_id, 100)}: a run of that id is in the ledger already: not imported")
    if run.altered:
        raise ValueError(f"{printable(record.run_id, 100)}: not imported: {'; '.join(run.altered)}")
    return book.add(run.directory, record)


def _add(runs: Iterable[str], keep: Callable[[Ledger, OpenedRun], list[str]]) -> None:
    wrong: list[str] = []
    kept = 0
    try:
        book = open_ledger()
        for name in runs:
            try:
                with opened_run(name) as run:
                    wrong += keep(book, run)
                kept += 1
            except LedgerError:
                raise
            except (OSError, ValueError) as error:
                wrong.append(str(error))
    except LedgerError as error:
        unusable("\n".join([*wrong, str(error)]))
    click.echo(f"{book.place.name}: {counted(kept, 'run')} kept", err=True)
    if wrong:
        unusable("\n".join(wrong))


@ledger.command()
@click.argument("hosts", nargs=-1, required=True)
@click.option("--after", type=Since(), default="7d", show_default=True, metavar="TIME", help="no load since")
@click.option("--one-in", type=click.IntRange(1), default=1, metavar="NODES", help="one of so many, and at least one")
def stale(hosts: tuple[str, ...], after: datetime, one_in: int) -> None:
    """Name the nodes of HOSTS that have passed no load for a while, the longest ago first, each with its last time:
    for a job that validates idle nodes (contrib/slurm/revalidate.sh).

    \b
    shakedown ledger stale 'node[01-64].rack7' --after 7d --one-in 20
    """
    if files := [words for words in hosts if Path(words).is_file()]:
        unusable(f"{files[0]}: a file: give the names of nodes, as 'node[01-64].rack7'")
    try:
        names = list(dict.fromkeys(node for words in hosts for node in nodes(words)))
        aged = by_age(open_ledger(), names)
    except (ValueError, LedgerError) as error:
        unusable(error)
    old = [(node, at) for node, at in aged if at is None or at < after.timestamp()]
    for node, at in old[: -(-len(names) // one_in)]:
        click.echo(f"{node} {datetime.fromtimestamp(at, UTC).isoformat() if at is not None else 'never'}")


@ledger.command()
def export() -> None:
    """Write the whole ledger to standard output, one JSON object for each run, the oldest first.

    \b
    shakedown ledger export > ledger.jsonl
    """
    with usable(LedgerError):
        for line in lines(open_ledger()):
            click.echo(line)
