"""The fleet as the ledger knows it: of each node the newest runs that saw it."""

from datetime import UTC, datetime

from sqlalchemy import and_, select

from shakedown.common.frozen import Frozen
from shakedown.ledger import schema
from shakedown.ledger.history import Line, every_node
from shakedown.ledger.store import Ledger
from shakedown.state.findings import Verdict

RUNS = 5  # of one node


class Seen(Frozen):
    """What one run saw of a node."""

    node: Line
    run_id: Line
    at: datetime
    inventory: Line
    verdict: Verdict
    part: Line
    why: Line


def fleet(ledger: Ledger, since: datetime | None = None) -> list[list[Seen]]:
    """Return what the newest runs saw of each node, the newest first. Raise LedgerError."""
    runs, nodes, newest, name = schema.runs, schema.nodes, schema.nodes.alias(), every_node().c.node
    columns = nodes.c.node, nodes.c.run_id, nodes.c.started, nodes.c.verdict, nodes.c.part, nodes.c.why
    times = newest.c.started.desc(), newest.c.run_id.desc()
    few = select(newest.c.run_id).where(newest.c.node == name).order_by(*times).limit(RUNS)
    if since is not None:
        few = few.where(newest.c.started >= int(since.timestamp()))
    of_it = and_(nodes.c.node == name, nodes.c.run_id.in_(few.correlate(name.table)))
    found = select(*columns, runs.c.inventory).select_from(name.table).join(nodes, of_it)
    found = found.join(runs, runs.c.run_id == nodes.c.run_id)
    found = found.order_by(nodes.c.started.desc(), nodes.c.run_id.desc())
    of_node: dict[str, list[Seen]] = {}
    with ledger.reading() as connection:
        for row in connection.execute(found).mappings():
            rest = {key: row[key] for key in ("node", "run_id", "inventory", "verdict", "part", "why")}
            seen = Seen(at=datetime.fromtimestamp(row["started"], UTC), **rest)
            of_node.setdefault(seen.node, []).append(seen)
    return sorted(of_node.values(), key=lambda seen: seen[0].node)
