"""What the ledger has of nodes' service, and the steps that are taken with them."""

import getpass
import os
import socket
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Table, func, select

from shakedown.common.one_line import name
from shakedown.ledger import schema
from shakedown.ledger.store import Ledger
from shakedown.service.model import LOAD, Incident, Known, PassedLoad, Step

KEPT_S = 180 * 24 * 3600  # of a node's history that is looked at: what was not cleared for half a year is no news
_MOST = 2000  # rows of one node and kind, the newest
_PAGE = 500  # nodes that are asked for at once


def known_of(ledger: Ledger, nodes: Iterable[str], now: int | None = None) -> dict[str, Known]:
    """Return the service of these nodes, each in the order of time; of one that the ledger does not know nothing. Where
    there is no ledger yet it knows none. Raises LedgerError."""
    wanted = {node: name(node) for node in nodes}
    if not ledger.exists():
        return {node: Known() for node in wanted}
    since = (int(time.time()) if now is None else now) - KEPT_S
    with ledger.reading() as connection:
        accusations, proofs, steps = (
            _of(connection, table, sorted(set(wanted.values())), since)
            for table in (schema.accusations, schema.proofs, schema.steps)
        )
        return {
            node: Known(
                incidents=tuple(Incident(**row) for row in accusations[kept]),
                passed_loads=tuple(PassedLoad(**row) for row in proofs[kept]),
                steps=tuple(Step(**row) for row in steps[kept]),
            )
            for node, kept in wanted.items()
        }


def _of(connection: Connection, table: Table, nodes: list[str], since: int) -> dict[str, deque[dict[str, Any]]]:
    """Return the rows of these nodes, by their names, the newest of each."""
    found: dict[str, deque[dict[str, Any]]] = defaultdict(lambda: deque(maxlen=_MOST))
    order = table.c.number if table is schema.steps else table.c.run_id
    for at in range(0, len(nodes), _PAGE):
        query = select(table).where(table.c.node.in_(nodes[at : at + _PAGE]), table.c.at >= since)
        for row in connection.execute(query.order_by(table.c.at, order)).mappings():
            found[row["node"]].append({key: value for key, value in row.items() if key != "number"})
    return found


def by_age(ledger: Ledger, nodes: Iterable[str]) -> list[tuple[str, int | None]]:
    """Return the nodes with the time of the last load that each passed (None: of none), the longest ago first; of
    nodes without one, the last that a run has loaded comes last. Raises LedgerError."""
    wanted = {node: name(node) for node in nodes}
    passed: dict[str, int] = {}
    tried: dict[str, int] = {}
    if ledger.exists():
        proofs, runs = schema.proofs, schema.nodes
        with ledger.reading() as connection:
            kept = sorted(set(wanted.values()))
            for at in range(0, len(kept), _PAGE):
                page = kept[at : at + _PAGE]
                query = select(proofs.c.node, func.max(proofs.c.at)).where(proofs.c.node.in_(page))
                passed |= {row[0]: int(row[1]) for row in connection.execute(query.group_by(proofs.c.node))}
                loaded = select(runs.c.node, func.max(runs.c.started)).where(runs.c.node.in_(page))
                loaded = loaded.where(runs.c.part.in_(("trained", "measured"))).group_by(runs.c.node)
                tried |= {row[0]: int(row[1]) for row in connection.execute(loaded)}
    order = sorted(wanted, key=lambda node: (passed.get(wanted[node], 0), tried.get(wanted[node], 0)))
    return [(node, passed.get(wanted[node])) for node in order]


def under_way(ledger: Ledger, since: int) -> set[str]:
    """Return the nodes of which the last step, since then, was no end: begun, or a rung after which no load was
    passed."""
    steps, last = schema.steps, dict[str, Any]()
    if not ledger.exists():
        return set()
    with ledger.reading() as connection:
        columns = (steps.c.node, steps.c.done, steps.c.rung, steps.c.outcome)
        query = select(*columns).where(steps.c.at >= since, steps.c.done.in_(("begun", "ended", "handed over")))
        for node, *rest in connection.execute(query.order_by(steps.c.at, steps.c.number)):
            last[node] = rest
    over = ("ended", LOAD, "done")
    return {node for node, step in last.items() if step[0] != "handed over" and tuple(step) != over}


def write(ledger: Ledger, step: Step) -> Step:
    """Keep a step, at once and by itself. Raises LedgerError: what cannot be written down is not to be done."""
    with ledger.writing() as connection:
        connection.execute(schema.steps.insert().values(**step.model_dump()))
    return step


def newest_run(ledger: Ledger, node: str, since: int, kind: str = "") -> str:
    """Return the id of the last run that a node had a part in, of those (of this kind, where one is named) that began
    at `since` or later; empty: none."""
    nodes, runs = schema.nodes, schema.runs
    if not ledger.exists():
        return ""
    with ledger.reading() as connection:
        query = select(nodes.c.run_id).where(nodes.c.node == name(node), nodes.c.started >= since)
        if kind:
            query = query.join(runs, runs.c.run_id == nodes.c.run_id).where(runs.c.kind == kind)
        newest = query.order_by(nodes.c.started.desc(), nodes.c.run_id.desc()).limit(1)
        return str(connection.execute(newest).scalar_one_or_none() or "")


def parts_of(ledger: Ledger, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Return what of each node's parts has changed, the newest first: "2026-11-20 gpu 0000:04:00.0: A1 (was B2)"."""
    if not ledger.exists():
        return {}
    found: dict[str, list[str]] = {}
    with ledger.reading() as connection:
        for node in nodes:
            found[node] = [change for changed in pairwise(_sets(connection, node)) for change in _changes(*changed)]
    return found


_SETS = 6  # of parts, the newest


def _sets(connection: Connection, node: str) -> list[tuple[int, Mapping[tuple[str, str], str]]]:
    """Return the sets of parts that a node had, the newest first, with when each was seen first after the one before
    it: a part may come back."""
    nodes, parts = schema.nodes, schema.parts
    last = func.max(nodes.c.started)
    seen = select(nodes.c.equipment, last).where(nodes.c.node == name(node), nodes.c.equipment.is_not(None))
    rows = connection.execute(seen.group_by(nodes.c.equipment).order_by(last.desc()).limit(_SETS)).all()
    found: list[tuple[int, Mapping[tuple[str, str], str]]] = []
    for at, (equipment, until) in enumerate(rows):
        before = rows[at + 1][1] if at + 1 < len(rows) else 0
        conditions = nodes.c.node == name(node), nodes.c.equipment == equipment, nodes.c.started > before
        first = connection.execute(select(func.min(nodes.c.started)).where(*conditions)).scalar_one_or_none() or until
        held: dict[tuple[str, str], str] = defaultdict(str)
        query = select(parts.c.kind, parts.c.slot, parts.c.serial, parts.c.firmware)
        for kind, slot, serial, firmware in connection.execute(query.where(parts.c.equipment == equipment)):
            held[kind, slot] = f"{serial} ({firmware})" if firmware else serial
        found.append((int(first), held))
    return found


def _changes(
    newer: tuple[int, Mapping[tuple[str, str], str]], older: tuple[int, Mapping[tuple[str, str], str]]
) -> list[str]:
    (at, new), (_, old) = newer, older
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    return [
        f"{day} {' '.join(filter(None, place))}: {new.get(place) or 'gone'} (was {old.get(place) or 'not there'})"
        for place in sorted({*new, *old})
        if new.get(place) != old.get(place)
    ]


def who() -> str:
    """Who acts: user@host:pid."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
