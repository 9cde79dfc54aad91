"""The ledger's tables, the same in SQLite and PostgreSQL, and their versions. The tables are data: `schema.toml`."""

from typing import Any

import sqlalchemy as sa

from shakedown.common.data import read_toml
from shakedown.common.text import DIGEST, NAME, TEXT, VERDICT

metadata = sa.MetaData()
_TABLES = read_toml("shakedown.ledger", "schema.toml")
_LENGTHS = {"id": NAME, "name": NAME, "text": TEXT, "line": 4 * TEXT, "verdict": VERDICT, "stage": VERDICT + 10}
_LENGTHS |= {"digest": DIGEST}
_NUMBERS: dict[str, Any] = {"number": sa.Integer, "large": sa.BigInteger, "time": sa.BigInteger, "real": sa.Double}


def _table(name: str) -> sa.Table:
    described = _TABLES[name]
    columns: list[sa.Column[Any]] = []
    for column, what in described["columns"].items():
        kind, is_key = what.removesuffix("?"), what == "id" or column in described.get("key", ())
        sort = sa.String(_LENGTHS[kind]) if kind in _LENGTHS else _NUMBERS[kind]
        of_run = [sa.ForeignKey("runs.run_id", ondelete="CASCADE")] if kind == "id" else []
        columns.append(sa.Column(column, sort, *of_run, primary_key=is_key, nullable=what.endswith("?")))
    made = sa.Table(name, metadata, *columns)
    for index, names in described.get("index", {}).items():
        sa.Index(index, *(made.c[column] for column in names))
    return made


version, runs, jobs = _table("ledger_version"), _table("runs"), _table("jobs")
figures, nodes, recipes, findings = _table("figures"), _table("nodes"), _table("recipes"), _table("findings")
parts, accusations, proofs = _table("parts"), _table("accusations"), _table("proofs")
steps, claims = _table("steps"), _table("claims")

VERSION = 4  # of the tables; a ledger of another version is made again from the runs
_LOCK = 0x5AAC  # PostgreSQL: of two that make the tables at once the second waits, and finds them


def version_of(connection: sa.Connection) -> int:
    """Return the version of the tables that are there; 0: none are."""
    if not sa.inspect(connection).has_table("ledger_version"):
        return 0
    return int(connection.execute(sa.select(version.c.version)).scalar_one())


def serialise(connection: sa.Connection, key: int) -> None:
    """Have whoever begins the same at this moment wait. SQLite's transactions do that anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def make_tables(connection: sa.Connection) -> None:
    """Make the tables where there are none, inside the caller's transaction."""
    serialise(connection, _LOCK)
    if version_of(connection) == 0:
        metadata.create_all(connection)
        connection.execute(version.insert().values(version=VERSION))
