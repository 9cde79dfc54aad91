"""The fleet as the ledger knows it: of each node the newest runs that saw it."""

from datetime import UTC, datetime

from sqlalchemy import select

from shakedown.common.frozen import Frozen
from shakedown.ledger import schema
from shakedown.ledger.history import Line
from shakedown.ledger.store import Ledger
from shakedown.state.findings import Verdict

RUNS = 5  # of one node
_ROWS = 200_000  # that are read, the newest: a node in none of them is not listed


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
    runs, nodes = schema.runs, schema.nodes
    columns = nodes.c.node, nodes.c.run_id, nodes.c.started, nodes.c.verdict, nodes.c.part, nodes.c.why
    found = select(*columns, runs.c.inventory).join(nodes, nodes.c.run_id == runs.c.run_id)
    if since is not None:
        found = found.where(runs.c.started >= int(since.timestamp()))
    found = found.order_by(runs.c.started.desc(), runs.c.run_id.desc()).limit(_ROWS)
    of_node: dict[str, list[Seen]] = {}
    with ledger.reading() as connection:
        for row in connection.execute(found).mappings():
            seen = of_node.setdefault(row["node"], [])
            if len(seen) < RUNS:
                rest = {key: row[key] for key in ("node", "run_id", "inventory", "verdict", "part", "why")}
                seen.append(Seen(at=datetime.fromtimestamp(row["started"], UTC), **rest))
    return sorted(of_node.values(), key=lambda seen: seen[0].node)
