"""The ledger's tables, the same in SQLite and PostgreSQL, and their versions. The tables are data: `schema.toml`."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    inspect,
    select,
    text,
)

from shakedown.common.data import read_toml
from shakedown.common.text import DIGEST, NAME, TEXT, VERDICT

metadata = MetaData()
_TABLES = read_toml("shakedown.ledger", "schema.toml")
_LENGTHS = {"id": NAME, "name": NAME, "text": TEXT, "line": 4 * TEXT, "verdict": VERDICT, "stage": VERDICT + 10}
_LENGTHS |= {"digest": DIGEST}
_NUMBERS: dict[str, Any] = {"number": Integer, "large": BigInteger, "time": BigInteger, "real": Double}


def _table(name: str) -> Table:
    described = _TABLES[name]
    columns: list[Column[Any]] = []
    for column, what in described["columns"].items():
        kind, is_key = what.removesuffix("?"), what == "id" or column in described.get("key", ())
        sort = String(_LENGTHS[kind]) if kind in _LENGTHS else _NUMBERS[kind]
        of_run = [ForeignKey("runs.run_id", ondelete="CASCADE")] if kind == "id" else []
        columns.append(Column(column, sort, *of_run, primary_key=is_key, nullable=what.endswith("?")))
    made = Table(name, metadata, *columns)
    for index, names in described.get("index", {}).items():
        Index(index, *(made.c[column] for column in names))
    return made


version, runs, jobs = _table("ledger_version"), _table("runs"), _table("jobs")
figures, nodes, recipes, findings = _table("figures"), _table("nodes"), _table("recipes"), _table("findings")
parts, accusations, proofs = _table("parts"), _table("accusations"), _table("proofs")
steps, claims = _table("steps"), _table("claims")

Migration = Callable[[Connection], None]
_LOCK = 0x5AAC  # PostgreSQL: of two that make the tables at once the second waits, and finds them


def _make(*tables: Table) -> Migration:
    return lambda connection: metadata.create_all(connection, tables=tables or None)


def _recipes(connection: Connection) -> None:
    metadata.create_all(connection, tables=[recipes])
    rows = select(nodes.c.run_id, nodes.c.node, jobs.c.recipe, nodes.c.started).distinct()
    connection.execute(recipes.delete())
    names = ["run_id", "node", "recipe", "started"]
    connection.execute(recipes.insert().from_select(names, rows.join(jobs, jobs.c.run_id == nodes.c.run_id)))


# One for each version. The next changes the tables with statements of its own; the tables above are what all of them
# together come to.
MIGRATIONS: Sequence[Migration] = (_make(), _make(accusations, proofs, steps), _make(claims), _recipes)


def version_of(connection: Connection) -> int:
    """Return the version of the tables that are there; 0: none are."""
    if not inspect(connection).has_table("ledger_version"):
        return 0
    return int(connection.execute(select(version.c.version)).scalar_one())


def migrate(connection: Connection, migrations: Sequence[Migration]) -> None:
    """Bring the tables to the last version, inside the caller's transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # a large ledger takes minutes, once
    there = version_of(connection)
    for migration in migrations[there:]:
        migration(connection)
    if there == 0:
        connection.execute(version.insert().values(version=len(migrations)))
    else:
        connection.execute(version.update().values(version=len(migrations)))
