"""The schema's versions: what is missing is made when a ledger is opened to be written, in one transaction."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Integer, inspect, select, text
from sqlalchemy.sql import column, table

from shakedown.ledger import schema

Migration = Callable[[Connection], None]
_VERSION = table("ledger_version", column("version", Integer))
_LOCK = 0x5AAC  # PostgreSQL: of two that make the tables at once the second waits, and finds them


def _first(connection: Connection) -> None:
    """Version 1. The next changes the tables with statements of its own, here behind it; schema.py has what all of
    them together come to."""
    schema.metadata.create_all(connection)


def _service(connection: Connection) -> None:
    """Version 2: who is suspect, and what was done with nodes."""
    schema.metadata.create_all(connection, tables=[schema.accusations, schema.proofs, schema.steps])


def _claims(connection: Connection) -> None:
    """Version 3: who is at work on which node."""
    schema.metadata.create_all(connection, tables=[schema.claims])


def _recipes(connection: Connection) -> None:
    """Version 4: of each node the recipes of its runs."""
    nodes, jobs, recipes = schema.nodes, schema.jobs, schema.recipes
    schema.metadata.create_all(connection, tables=[recipes])
    rows = select(nodes.c.run_id, nodes.c.node, jobs.c.recipe, nodes.c.started).distinct()
    connection.execute(recipes.delete())
    names = ["run_id", "node", "recipe", "started"]
    connection.execute(recipes.insert().from_select(names, rows.join(jobs, jobs.c.run_id == nodes.c.run_id)))


MIGRATIONS: Sequence[Migration] = (_first, _service, _claims, _recipes)


def version_of(connection: Connection) -> int:
    """Return the version of the tables that are there; 0: none are."""
    if not inspect(connection).has_table("ledger_version"):
        return 0
    return int(connection.execute(select(_VERSION.c.version)).scalar_one())


def migrate(connection: Connection, migrations: Sequence[Migration]) -> None:
    """Bring the tables to the last version, inside the caller's transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # a large ledger takes minutes, once
    there = version_of(connection)
    for migration in migrations[there:]:
        migration(connection)
    if there == 0:
        connection.execute(_VERSION.insert().values(version=len(migrations)))
    else:
        connection.execute(_VERSION.update().values(version=len(migrations)))
