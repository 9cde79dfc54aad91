"""The ledger: where it is, what is written at the end of a run, and what earlier runs are asked for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, NullPool, and_, create_engine, event, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoResultFound, NoSuchModuleError, SQLAlchemyError

from shakedown.common import private
from shakedown.common.lists import grouped
from shakedown.common.runs_folder import runs_folder
from shakedown.common.secret_file import SecretError, read_secret
from shakedown.common.text import name as kept_name
from shakedown.common.text import printable
from shakedown.ledger import LedgerError, schema
from shakedown.state.findings import Verdict

if TYPE_CHECKING:  # who only asks has no use for them
    from shakedown.gates.baselines.model import Earlier, Key
    from shakedown.ledger.entry import Entry
    from shakedown.runs.directory import RunDirectory, RunRecord


VARIABLE = "SHAKEDOWN_LEDGER"
FILE = "ledger.sqlite"
_MAGIC = b"SQLite format 3\0"
_EXPECTED = "expected the path of a file, or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Place:
    """A ledger's URL, and how it is called before people."""

    url: URL
    name: str
    path: Path | None = None  # of SQLite

    def plain(self, text: str) -> str:
        """Return what somebody said of it, as it may be shown: one line, without the password."""
        if self.url.password:
            text = text.replace(str(self.url.password), "***")
        return printable(" ".join(text.split()), 300)


def place_of(given: str | Path | None = None) -> Place:
    """Return the ledger that is meant: `given`, else $SHAKEDOWN_LEDGER, else ledger.sqlite in the folder of the runs.

    Either is a path, or a URL of PostgreSQL. A path of a file that is no database names one that holds the URL, for its
    owner alone. Raises LedgerError.
    """
    chosen = given or os.environ.get(VARIABLE) or runs_folder() / FILE
    if isinstance(chosen, Path) or "://" not in chosen:
        path = Path(chosen).expanduser()
        if not _is_text(path):
            return Place(URL.create("sqlite", database=str(path)), str(path), path)
        try:
            chosen = read_secret(path)
        except SecretError as error:
            raise LedgerError(f"ledger: {error}") from None
    return _by_url(chosen)


def _is_text(path: Path) -> bool:
    """Whether the file is none of SQLite's. One that is missing, or empty, becomes a database; one that cannot be read
    says so when it is opened, and so does what is no file: a FIFO would be waited for."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MAGIC))
    except OSError:
        return False
    return begin not in (b"", _MAGIC) and b"://" in begin


def _by_url(text: str) -> Place:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # whose words hold the URL, and maybe a password
        raise LedgerError(f"ledger: no usable URL: {_EXPECTED}") from None
    name = url.get_backend_name()
    if name == "sqlite" and url.database:
        return place_of(Path(url.database))
    if name not in ("postgresql", "postgres"):
        raise LedgerError(f"ledger: {printable(name, 40)}: no such database is known: {_EXPECTED}")
    hidden = [key for key in url.query if "password" in key.lower()]
    if hidden:
        raise LedgerError(f"ledger: {', '.join(hidden)} in the URL: the password's place is $PGPASSWORD or ~/.pgpass")
    url = url.set(drivername="postgresql+psycopg")
    return Place(url, url.set(drivername="postgresql").render_as_string(hide_password=True))


WAIT_S = 30.0  # for another writer, or for a server that does not answer
_TRIES = 5
_ANEW = "put it aside (move the file, or name an empty database), then `shakedown ledger add --all` makes a new one"
_OF_A_RUN = (  # children before parents
    *(schema.figures, schema.findings, schema.recipes, schema.jobs, schema.nodes, schema.accusations, schema.proofs),
    schema.runs,
)


def open_ledger(given: str | Path | None = None, wait_s: float = WAIT_S) -> Ledger:
    """Return the ledger at a path or URL; None: at $SHAKEDOWN_LEDGER, or beside the runs. Nothing is opened yet. Raises
    LedgerError for what names none."""
    return Ledger(place_of(given), wait_s)


_MEASURED = (Verdict.OK.value, Verdict.FAIL.value)
_BASELINE = "baseline."  # what the names of a figure's gates begin with


class Ledger:
    """One ledger. Every method opens it for itself and raises LedgerError where that cannot be done.

    SQLite keeps its rollback journal: it is safe with several writers on one host, who wait for each other, and unlike
    a write-ahead log it needs no second file to be read where nothing may be written, nor a file system that is local.
    A run is one transaction, so readers see it whole or not at all.
    """

    def __init__(self, place: Place, wait_s: float = WAIT_S) -> None:
        self.place = place
        self._wait_s = wait_s
        self._known_engine: Engine | None = None

    def add(self, run: RunDirectory, record: RunRecord | None = None, origin: str = "") -> list[str]:
        """Keep a run, by its directory; one that is there already is replaced. `record` stands for the one in run.json
        where it was judged again. `origin`: whose evidence the run is; empty: this site's own. Returns what
        could not be read. Raises ValueError and OSError for a record that cannot be."""
        from shakedown.ledger.compared import states_of
        from shakedown.ledger.entry import entry_of, kept_apart  # gates and trials, 200 ms: only who writes needs them

        record = record or run.load()
        if record.simulated:
            raise ValueError(f"{run.path}: the run is simulated, and no ledger of a site keeps it")
        evidence = run.load_evidence() if any(job.plan and job.plan.has_report for job in record.jobs) else {}
        states, lacking = states_of(run, record)
        entry = entry_of(record, states, run, evidence)
        self.put(kept_apart(entry, origin) if origin else entry)
        return lacking

    def put(self, entry: Entry) -> None:
        """Write the rows of a run in the place of those that it had."""
        for attempt in range(_TRIES):
            try:
                with self.writing() as connection:
                    _replace(connection, entry)
                return
            except _Clash as clash:  # another writer kept the same run, or the same equipment, at this moment
                if attempt == _TRIES - 1:
                    raise LedgerError(str(clash)) from None

    def knows(self, run_id: str) -> bool:
        """Return whether a run of that id is kept. Raises LedgerError."""
        if not self.exists():
            return False
        with self.reading() as connection:
            found = select(schema.runs.c.run_id).where(schema.runs.c.run_id == kept_name(run_id))
            return connection.execute(found).scalar_one_or_none() is not None

    def earlier(self, key: Key, before: str | None = None, limit: int = 1000) -> list[Earlier]:
        """Return the jobs of the same identity that passed, or of which only baselines did not hold, of every epoch,
        the newest `limit`, the oldest of them first. `before` is a run's id: only what had ended when that run began.
        None where there is no ledger yet."""
        from shakedown.gates.baselines.model import Earlier  # likewise: history and parts are read without gates

        jobs, figures = schema.jobs, schema.figures
        if not self.exists():
            return []
        passed = [jobs.c.identity == key.identity, jobs.c.verdict.in_(_MEASURED), jobs.c.finished.is_not(None)]
        with self.reading() as connection:
            if before is not None:
                known = select(schema.runs.c.started).where(schema.runs.c.run_id == kept_name(before))
                began = connection.execute(known).scalar_one_or_none()
                passed.append(jobs.c.run_id != kept_name(before))
                began = _began(before) if began is None else began
                passed += [] if began is None else [jobs.c.finished <= began]
            newest = select(jobs).where(*passed).order_by(jobs.c.finished.desc()).limit(limit).subquery()
            same = and_(figures.c.run_id == newest.c.run_id, figures.c.job == newest.c.job)
            row = newest.c
            columns = (row.run_id, row.started, row.epoch, row.verdict, figures.c.metric, figures.c.value)
            gates = _gates_not_ok(connection, newest)
            ordered = select(*columns).join(figures, same).order_by(newest.c.started, newest.c.run_id)
            found: dict[str, tuple[int, str, str, dict[str, float]]] = {}
            for run_id, started, epoch, verdict, metric, value in connection.execute(ordered):
                found.setdefault(run_id, (started, epoch, verdict, {}))[3][metric] = value
        return [
            Earlier(
                run_id=run_id,
                at=datetime.fromtimestamp(started, UTC),
                figures=measured,
                epoch=epoch,
                worse=[name.removeprefix(_BASELINE) for name, _ in gates.get(run_id, ()) if name.startswith(_BASELINE)],
            )
            for run_id, (started, epoch, verdict, measured) in found.items()
            if verdict == Verdict.OK.value or _only_baselines(gates.get(run_id, ()))
        ]

    def exists(self) -> bool:
        """Whether there is a file, or a server is named."""
        return self.place.path is None or self.place.path.exists()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes, over tables that are there and up to date."""
        path = self.place.path
        if path is not None:
            try:
                private.create(path).close()
            except FileExistsError:
                pass
            except OSError as error:
                remedy = f"set ${VARIABLE} to a file in a folder that can be written"
                raise LedgerError(f"ledger {self.place.name}: {error.strerror}: {remedy}") from None
        with self._transaction(writes=True) as connection:
            if not self._version(connection):
                schema.make_tables(connection)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads."""
        if not self.exists():
            remedy = "runs write it at their end, and `shakedown ledger add --all` makes it from the runs that are kept"
            raise LedgerError(f"ledger {self.place.name}: there is none yet: {remedy}")
        with self._transaction(writes=False) as connection:
            if not self._version(connection):
                raise LedgerError(
                    f"ledger {self.place.name}: it is empty: the next run, or `shakedown ledger add`, does it"
                )
            yield connection

    def _version(self, connection: Connection) -> int:
        version, known = schema.version_of(connection), schema.VERSION
        if version not in (0, known):
            remedy = "update shakedown here" if version > known else _ANEW
            why = f"its tables are of version {version}, and this shakedown knows {known}"
            raise LedgerError(f"ledger {self.place.name}: {why}: {remedy}")
        return version

    @contextmanager
    def _transaction(self, writes: bool) -> Iterator[Connection]:
        if file := self.place.path:
            real = file.resolve()  # SQLite looks for a journal beside the file, and not beside a link
            for place in dict.fromkeys((file, file.parent, real, *real.parents)):
                mode = place.stat().st_mode if place.exists() else 0
                if mode & stat.S_IWOTH and not (mode & stat.S_ISVTX and place in real.parents[1:]):
                    why = f"every user may write {place}, and so decide what it says"
                    raise LedgerError(f"ledger {self.place.name}: {why}: chmod o-w {place}, then look at what is in it")
        try:
            with self._engine().connect().execution_options(writes=writes) as connection, connection.begin():
                yield connection
        except IntegrityError as error:
            raise _Clash(self._words(error)) from None
        except SQLAlchemyError as error:
            raise LedgerError(self._words(error)) from None
        except LedgerError:
            raise
        except (TypeError, ValueError, OverflowError, OSError) as error:  # SQLite holds anything in any column
            why = f"there is a value that no ledger has ({type(error).__name__})"
            raise LedgerError(f"ledger {self.place.name}: {why}: {_ANEW}") from None

    def _words(self, error: SQLAlchemyError) -> str:
        """Never the statement or its values."""
        message = str(error.orig) if isinstance(error, DBAPIError) and error.orig else ""
        if isinstance(error, NoResultFound):
            message = "ledger_version has no row: these tables are not a ledger's"
        if "locked" in message:
            message += f": another program has been writing for {self._wait_s:g} s"
        if "unable to open" in message or "not a database" in message:
            message += (
                f": set ${VARIABLE} to the ledger's file, or move this one away and run `shakedown ledger add --all`"
            )
        return f"ledger {self.place.name}: {self.place.plain(message or type(error).__name__)}"

    def _engine(self) -> Engine:
        if self._known_engine is None:
            sqlite = self.place.path is not None
            patience = max(2, round(self._wait_s))
            server = {
                "connect_timeout": patience,
                "options": f"-c lock_timeout={patience}s -c statement_timeout={4 * patience}s",
                "application_name": "shakedown",
            }
            arguments: dict[str, Any] = {"timeout": self._wait_s} if sqlite else server
            try:
                engine = create_engine(self.place.url, poolclass=NullPool, connect_args=arguments)
            except (ModuleNotFoundError, NoSuchModuleError):
                remedy = "pip install 'shakedown[postgresql]'"
                raise LedgerError(f"ledger {self.place.name}: no driver for PostgreSQL: {remedy}") from None
            if sqlite:
                event.listen(engine, "connect", _plain_transactions)
                event.listen(engine, "begin", _begin)
            self._known_engine = engine
        return self._known_engine


class _Clash(LedgerError):
    """A row was there: another writer was faster."""


def _plain_transactions(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # sqlite3 begins none by itself: _begin does


def _begin(connection: Connection) -> None:
    """Who will write waits at the beginning: two that have read and then want to write could only fail."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _only_baselines(gates: Sequence[tuple[str, str]]) -> bool:
    failed = [name for name, verdict in gates if not Verdict(verdict).passes]
    return bool(failed) and all(name.startswith(_BASELINE) for name in failed)


def _gates_not_ok(connection: Connection, chosen: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the gates that were not ok, with their verdicts, of each of the chosen jobs' runs."""
    wrong = schema.findings
    same = and_(wrong.c.run_id == chosen.c.run_id, wrong.c.node.is_not_distinct_from(chosen.c.node))
    query = select(wrong.c.run_id, wrong.c.name, wrong.c.verdict).join(chosen, same).where(wrong.c.kind == "gate")
    return grouped((run_id, (name, verdict)) for run_id, name, verdict in connection.execute(query))


def _replace(connection: Connection, entry: Entry) -> None:
    run_id = entry.run["run_id"]
    for table in _OF_A_RUN:
        connection.execute(table.delete().where(table.c.run_id == run_id))
    known: set[str] = set()
    digests = sorted(entry.equipment)
    for at in range(0, len(digests), 500):
        in_batch = schema.parts.c.equipment.in_(digests[at : at + 500])
        known.update(connection.execute(select(schema.parts.c.equipment).where(in_batch).distinct()).scalars())
    new = [
        {"equipment": digest, **part._asdict(), "number": part.number}
        for digest in digests
        if digest not in known
        for part in entry.equipment[digest]
    ]
    recipes = {job["recipe"] for job in entry.jobs}
    of_nodes = [{key: node[key] for key in ("run_id", "node", "started")} for node in entry.nodes]
    recipe_rows = [{**node, "recipe": recipe} for recipe in sorted(recipes) for node in of_nodes]
    made = {"runs": [entry.run], "recipes": recipe_rows, "parts": new}
    for table in (*reversed(_OF_A_RUN), schema.parts):
        if values := made.get(table.name) or getattr(entry, table.name, []):
            connection.execute(table.insert(), values)


def _began(run_id: str) -> int | None:
    """When a run began that is not in the ledger yet, by its id."""
    try:
        return int(datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
