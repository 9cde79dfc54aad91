"""The ledger's tables, the same in SQLite and PostgreSQL, and their versions.

Times are seconds since 1970 UTC: numbers sort alike everywhere, texts by the database's collation. What a node has is
kept once per set of parts (`equipment`, a digest), and each run says which set it saw: 100,000 runs of a rack whose
parts stay where they are cost no row of parts.
"""

from collections.abc import Callable, Sequence

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

from shakedown.common.text import DIGEST, NAME, TEXT, VERDICT

metadata = MetaData()

version = Table("ledger_version", metadata, Column("version", Integer, nullable=False))

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(NAME), primary_key=True),
    Column("kind", String(VERDICT), nullable=False),  # "run", "drift"
    Column("started", BigInteger, nullable=False),
    Column("finished", BigInteger),  # none: still running, or killed
    Column("verdict", String(VERDICT), nullable=False),
    Column("inventory", String(TEXT), nullable=False),
    Column("desired", String(DIGEST), nullable=False),  # digest of the desired states
    Column("nodes", Integer, nullable=False),
    Column("not_ok", Integer, nullable=False),  # findings and gates; not all of them need be in `findings`
    Column("wrong", String(TEXT), nullable=False),  # the worst of them, in words
    Column("kept_at", String(TEXT), nullable=False),  # host:path of the run directory
)
Index("runs_by_time", runs.c.started, runs.c.run_id)


def _run_id() -> Column[str]:
    return Column("run_id", String(NAME), ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True)


jobs = Table(
    "jobs",
    metadata,
    _run_id(),
    Column("job", String(NAME), primary_key=True),
    Column("started", BigInteger, nullable=False),  # of the run
    Column("finished", BigInteger),
    Column("verdict", String(VERDICT), nullable=False),  # of the job's gates
    Column("identity", String(DIGEST), nullable=False),
    Column("epoch", String(4 * TEXT), nullable=False),
    Column("gpu", String(TEXT), nullable=False),
    Column("recipe", String(NAME), nullable=False),
    Column("parameters", String(DIGEST), nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("scope", String(NAME), nullable=False),
    Column("node", String(NAME)),
    Column("image", String(TEXT), nullable=False),
    Column("rocm", String(TEXT), nullable=False),
    Column("driver", String(TEXT), nullable=False),
)
Index("jobs_by_identity", jobs.c.identity, jobs.c.finished)
Index("jobs_by_recipe", jobs.c.recipe, jobs.c.started, jobs.c.run_id)

figures = Table(
    "figures",
    metadata,
    _run_id(),
    Column("job", String(NAME), primary_key=True),
    Column("metric", String(NAME), primary_key=True),
    Column("value", Double, nullable=False),
    Column("spread", Double),
    Column("count", Integer),
    Column("unit", String(NAME), nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    _run_id(),
    Column("node", String(NAME), primary_key=True),
    Column("started", BigInteger, nullable=False),
    Column("verdict", String(VERDICT), nullable=False),
    Column("part", String(VERDICT), nullable=False),  # "trained", "excluded", "unreached", "examined"
    Column("why", String(TEXT), nullable=False),
    Column("equipment", String(DIGEST)),  # none: its state was not read
)
Index("nodes_by_name", nodes.c.node, nodes.c.started, nodes.c.run_id)
Index("nodes_by_equipment", nodes.c.equipment, nodes.c.started, nodes.c.node)

# Of each node the recipes of its runs, in order of time: what a question about both would look through its runs for.
recipes = Table(
    "recipes",
    metadata,
    _run_id(),
    Column("node", String(NAME), primary_key=True),
    Column("recipe", String(NAME), primary_key=True),
    Column("started", BigInteger, nullable=False),
)
Index("recipes_by_node", recipes.c.node, recipes.c.recipe, recipes.c.started, recipes.c.run_id)

findings = Table(
    "findings",
    metadata,
    _run_id(),
    Column("number", Integer, primary_key=True),
    Column("kind", String(VERDICT), nullable=False),  # "finding", "gate"
    Column("node", String(NAME)),  # of a gate: the node that had the job for itself
    Column("name", String(NAME), nullable=False),
    Column("verdict", String(VERDICT), nullable=False),
    Column("wanted", String(TEXT), nullable=False),
    Column("actual", String(TEXT), nullable=False),
    Column("evidence", String(TEXT), nullable=False),
)

parts = Table(
    "parts",
    metadata,
    Column("equipment", String(DIGEST), primary_key=True),
    Column("kind", String(VERDICT), primary_key=True),  # "gpu", "nic", "board"
    Column("slot", String(NAME), primary_key=True),  # PCI address
    Column("serial", String(NAME), nullable=False),
    Column("number", String(NAME), nullable=False),  # the serial as it is looked for: shakedown.common.text.plain
    Column("model", String(NAME), nullable=False),
    Column("firmware", String(TEXT), nullable=False),
)
Index("parts_by_number", parts.c.number, parts.c.equipment)

# What runs say of their nodes' service (shakedown/service/evidence.py): who is named, and who has passed under load.
accusations = Table(
    "accusations",
    metadata,
    _run_id(),
    Column("number", Integer, primary_key=True),
    Column("node", String(NAME), nullable=False),
    Column("at", BigInteger, nullable=False),  # when the run began
    Column("source", String(VERDICT + 10), nullable=False),
    Column("name", String(NAME), nullable=False),
    Column("what", String(TEXT), nullable=False),
    Column("drift", Integer, nullable=False),  # 0, 1
    Column("drains", Integer, nullable=False),  # 0, 1
)
Index("accusations_by_node", accusations.c.node, accusations.c.at)

proofs = Table(
    "proofs",
    metadata,
    _run_id(),
    Column("node", String(NAME), primary_key=True),
    Column("load", String(NAME), primary_key=True),
    Column("at", BigInteger, nullable=False),  # when the run began
    Column("others", Integer, nullable=False),
)
Index("proofs_by_node", proofs.c.node, proofs.c.at)

# What was done with nodes, step by step: written as it happens, of no run, and never made anew from runs.
steps = Table(
    "steps",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("node", String(NAME), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("done", String(VERDICT + 10), nullable=False),
    Column("rung", String(VERDICT + 10), nullable=False),
    Column("name", String(NAME), nullable=False),
    Column("outcome", String(VERDICT + 10), nullable=False),
    Column("why", String(TEXT), nullable=False),
    Column("run_id", String(NAME), nullable=False),
    Column("who", String(NAME), nullable=False),
)
Index("steps_by_node", steps.c.node, steps.c.at)

# Who is at work on a node now (shakedown/ledger/claims.py). A row whose process is dead counts for nothing.
claims = Table(
    "claims",
    metadata,
    Column("node", String(NAME), primary_key=True),
    Column("who", String(NAME), nullable=False),
    Column("place", String(NAME), nullable=False),  # boot and pid namespace of the controller's machine
    Column("pid", BigInteger, nullable=False),
    Column("start", BigInteger, nullable=False),  # of the process, clock ticks since boot
    Column("lock", String(4 * TEXT), nullable=False),  # a file that the commands of the process hold locked
    Column("renewed", BigInteger, nullable=False),  # seconds since 1970 UTC
)

Migration = Callable[[Connection], None]
_LOCK = 0x5AAC  # PostgreSQL: of two that make the tables at once the second waits, and finds them


def _make(*tables: Table) -> Migration:
    return lambda connection: metadata.create_all(connection, tables=tables or None)


def _recipes(connection: Connection) -> None:
    """Fill in the recipes of each node's runs."""
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
