"""What the ledger has of nodes' service, and the steps that are taken with them."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Table, func, select

from shakedown.ledger import schema
from shakedown.ledger.store import Ledger
from shakedown.ledger.words import name
from shakedown.service.model import Accusation, Known, Proof, Step

KEPT_S = 180 * 24 * 3600  # of a node's history that is looked at: what was not cleared for half a year is no news
_MOST = 5000  # rows of one node and kind, the newest


def known_of(ledger: Ledger, nodes: Iterable[str], now: int | None = None) -> dict[str, Known]:
    """The service of these nodes, each in the order of time; of one that the ledger does not know nothing. Where there
    is no ledger yet it knows none. Raises LedgerError."""
    wanted = list(dict.fromkeys(nodes))
    if not ledger.exists():
        return {node: Known() for node in wanted}
    since = (int(time.time()) if now is None else now) - KEPT_S
    with ledger.reading() as connection:
        return {
            node: Known(
                accusations=tuple(Accusation(**row) for row in _of(connection, schema.accusations, node, since)),
                proofs=tuple(Proof(**row) for row in _of(connection, schema.proofs, node, since)),
                steps=tuple(Step(**row) for row in _of(connection, schema.steps, node, since)),
            )
            for node in wanted
        }


def _of(connection: Connection, table: Table, node: str, since: int) -> list[dict[str, Any]]:
    order = table.c.number if table is schema.steps else table.c.run_id
    asked = select(table).where(table.c.node == name(node), table.c.at >= since)
    found = connection.execute(asked.order_by(table.c.at.desc(), order.desc()).limit(_MOST)).mappings()
    hidden = {"number"}
    return [{key: value for key, value in row.items() if key not in hidden} for row in reversed(list(found))]


def write(ledger: Ledger, step: Step) -> Step:
    """Keep a step, at once and by itself. Raises LedgerError: what cannot be written down is not to be done."""
    with ledger.writing() as connection:
        connection.execute(schema.steps.insert().values(**step.model_dump()))
    return step


def newest_run(ledger: Ledger, node: str, since: int) -> str:
    """The id of the last run that a node had a part in, of those that began at `since` or later; empty: none."""
    nodes = schema.nodes
    if not ledger.exists():
        return ""
    with ledger.reading() as connection:
        asked = select(nodes.c.run_id).where(nodes.c.node == name(node), nodes.c.started >= since)
        newest = asked.order_by(nodes.c.started.desc(), nodes.c.run_id.desc()).limit(1)
        return str(connection.execute(newest).scalar_one_or_none() or "")


def parts_of(ledger: Ledger, nodes: Iterable[str]) -> dict[str, list[str]]:
    """What of each node's parts has changed, the newest first: "2026-11-20 gpu 0000:04:00.0: A1 (was B2)"."""
    if not ledger.exists():
        return {}
    found: dict[str, list[str]] = {}
    with ledger.reading() as connection:
        for node in nodes:
            sets = _sets(connection, node)
            found[node] = [change for (at, new), (_, old) in pairwise(sets) for change in _changes(at, new, old)]
    return found


_SETS = 6  # of parts, the newest


def _sets(connection: Connection, node: str) -> list[tuple[int, Mapping[tuple[str, str], str]]]:
    """The sets of parts that a node had, the newest first, with when each was seen first."""
    nodes, parts = schema.nodes, schema.parts
    seen = select(nodes.c.equipment, func.min(nodes.c.started).label("first"), func.max(nodes.c.started).label("last"))
    seen = seen.where(nodes.c.node == name(node), nodes.c.equipment.is_not(None)).group_by(nodes.c.equipment)
    rows = connection.execute(seen.order_by(func.max(nodes.c.started).desc()).limit(_SETS)).all()
    found: list[tuple[int, Mapping[tuple[str, str], str]]] = []
    for equipment, first, _ in rows:
        held: dict[tuple[str, str], str] = defaultdict(str)
        asked = select(parts.c.kind, parts.c.slot, parts.c.serial, parts.c.firmware)
        for kind, slot, serial, firmware in connection.execute(asked.where(parts.c.equipment == equipment)):
            held[kind, slot] = f"{serial} ({firmware})" if firmware else serial
        found.append((int(first), held))
    return found


def _changes(at: int, new: Mapping[tuple[str, str], str], old: Mapping[tuple[str, str], str]) -> list[str]:
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
