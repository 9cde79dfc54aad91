"""The ledger as JSON lines, one run on each, the oldest first: for other programs, and for whoever leaves this one."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, select, tuple_

from shakedown.ledger import schema
from shakedown.ledger.store import Ledger

_PAGE = 200  # runs that are read at once: a writer waits for no more than that


def export(ledger: Ledger) -> Iterator[str]:
    """One JSON object for each run, with its jobs and their figures, its nodes and their parts, what was not ok, who is
    named, and who has passed under load. Raises LedgerError."""
    after: tuple[int, str] | None = None
    while True:
        with ledger.reading() as connection:
            page = _page(connection, after)
        yield from (json.dumps(run, default=str) for run in page)
        if len(page) < _PAGE:
            return
        after = (page[-1]["started"], page[-1]["run_id"])


def _page(connection: Connection, after: tuple[int, str] | None) -> list[dict[str, Any]]:
    runs = schema.runs
    place = tuple_(runs.c.started, runs.c.run_id)
    query = select(runs).order_by(runs.c.started, runs.c.run_id).limit(_PAGE)
    query = query if after is None else query.where(place > tuple_(*after))
    found = [dict(row) for row in connection.execute(query).mappings()]
    ids = [run["run_id"] for run in found]
    tables = (schema.jobs, schema.nodes, schema.figures, schema.findings, schema.accusations, schema.proofs)
    jobs, nodes, figures, findings, accusations, proofs = (_of(connection, table, ids) for table in tables)
    equipment = {node["equipment"] for of_run in nodes.values() for node in of_run if node["equipment"]}
    parts = _parts(connection, sorted(equipment))
    for run in found:
        run_id = run["run_id"]
        measured: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for figure in figures[run_id]:
            measured[figure.pop("job")].append(figure)
        run["jobs"] = [{**job, "figures": measured[job["job"]]} for job in jobs[run_id]]
        run["nodes_of_run"] = [{**node, "parts": parts[node.pop("equipment")]} for node in nodes[run_id]]
        run["findings"] = findings[run_id]
        run["accusations"] = accusations[run_id]
        run["proofs"] = proofs[run_id]
    return found


def _of(connection: Connection, table: Table, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of these runs by their ids, in the order of the table's key."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    query = select(table).where(table.c.run_id.in_(ids)).order_by(*table.primary_key.columns)
    for row in connection.execute(query).mappings():
        found[row["run_id"]].append({key: value for key, value in row.items() if key != "run_id"})
    return found


def _parts(connection: Connection, equipment: list[str]) -> dict[str | None, list[dict[str, Any]]]:
    table = schema.parts
    found: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for at in range(0, len(equipment), 500):
        query = (
            select(table).where(table.c.equipment.in_(equipment[at : at + 500])).order_by(table.c.kind, table.c.slot)
        )
        for row in connection.execute(query).mappings():
            kept = {key: value for key, value in row.items() if key not in ("equipment", "number")}
            found[row["equipment"]].append(kept)
    return found
