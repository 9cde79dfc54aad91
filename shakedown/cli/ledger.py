"""Commands over what earlier runs have left: ledger, history, compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from shakedown.cli import format_of, unusable
from shakedown.common.text import printable
from shakedown.report.formats import Compared, Remembered, write

if TYPE_CHECKING:
    from shakedown.ledger.store import Ledger
    from shakedown.runs.archive.run import OpenedRun

APART = "is kept as evidence of {origin}: it changes no node's service and no baseline (shakedown ledger import)"
_AGO = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Since(click.ParamType[datetime]):
    """A day, a time, or how long ago."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(str(value)):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither 2026-11-22 or 2026-11-22T06:00 (UTC) nor 12h, 7d or 4w ago", param, ctx)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


@click.group()
def ledger() -> None:
    """What every run has left: ledger.sqlite beside the runs, or where $SHAKEDOWN_LEDGER says (a path, a URL of
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
    from shakedown.runs.directory import run_ids

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
        click.echo(f"shakedown: {record.run_id} {APART.format(origin=origin)}", err=True)
    return book.add(run.directory, record, origin)


def _import(book: Ledger, run: OpenedRun) -> list[str]:
    record = run.directory.load()
    if book.knows(record.run_id):
        raise ValueError(f"{printable(record.run_id, 100)}: a run of that id is in the ledger already: not imported")
    if run.altered:
        raise ValueError(f"{printable(record.run_id, 100)}: not imported: {'; '.join(run.altered)}")
    return book.add(run.directory, record)


def _add(runs: Iterable[str], keep: Callable[[Ledger, OpenedRun], list[str]]) -> None:
    """Keep runs in the ledger, and say what could not be."""
    from shakedown.ledger.place import LedgerError
    from shakedown.ledger.store import open_ledger
    from shakedown.runs.archive.run import opened_run

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
    click.echo(f"{book.place.name}: {kept} run{'' if kept == 1 else 's'} kept", err=True)
    if wrong:
        unusable("\n".join(wrong))


@ledger.command()
def export() -> None:
    """The whole ledger on standard output, one JSON object for each run, the oldest first.

    \b
    shakedown ledger export > ledger.jsonl
    """
    from shakedown.ledger.export import export as lines
    from shakedown.ledger.place import LedgerError
    from shakedown.ledger.store import open_ledger

    try:
        for line in lines(open_ledger()):
            click.echo(line)
    except LedgerError as error:
        unusable(error)


@click.command()
@click.option("--node", help="runs of this node, with its part in each")
@click.option("--part", metavar="SERIAL", help="runs of this GPU, NIC or board wherever it sat, and where that was")
@click.option("--recipe", help="runs with a job of this recipe")
@click.option("--since", type=Since(), metavar="TIME", help="2026-11-01, 2026-11-01T06:00 (UTC), or 12h, 7d, 4w ago")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="runs at most")
@format_of(Remembered)
def history(limit: int, form: str, **asked: Any) -> None:
    """Earlier runs from the ledger, the newest first. A part is given by its serial number, a NIC by its node GUID.

    \b
    shakedown history --node node03.rack7 --since 4w
    shakedown history --part b83f:d203:0012:3456
    shakedown history --recipe llama3.1-8b-fp8 --limit 100 --format json
    """
    from shakedown.ledger.history import Asked
    from shakedown.ledger.history import history as ask
    from shakedown.ledger.place import LedgerError
    from shakedown.ledger.store import open_ledger

    try:
        found = ask(open_ledger(), Asked(limit=limit, **asked))
    except LedgerError as error:
        unusable(error)
    write(Remembered(found), form)


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@format_of(Compared)
def compare(first: str, second: str, form: str) -> None:
    """What differs between two runs: verdicts first, then figures, versions, the nodes' states, the plans, and the
    rest. RUN is an id, a part that only its id begins with, latest, a directory, or the file that `shakedown bundle`
    made of it.

    \b
    shakedown compare 20261121T0600 latest
    shakedown compare theirs.shakedown.tar.gz latest
    """
    from shakedown.ledger.compare import compare as beside
    from shakedown.runs.archive.run import opened_run

    try:
        with opened_run(first) as one, opened_run(second) as other:
            for line in (*one.told, *one.altered, *other.told, *other.altered):
                click.echo(f"shakedown: {printable(line)}", err=True)
            found = beside(one.directory, other.directory)
    except (OSError, ValueError) as error:
        unusable(error)
    write(Compared(found), form)
