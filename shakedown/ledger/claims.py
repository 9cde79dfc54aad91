"""Nodes' service, steps and claims. A claim belongs to a controller's process, is taken in the transaction of its step,
and ends with it. A dead holder is seen by pid, start time and lock on the same machine, elsewhere by a claim not
renewed for LEASE_S."""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, func, select, text

from shakedown.common.text import name
from shakedown.ledger import LedgerError, schema
from shakedown.ledger.store import Ledger
from shakedown.node.launcher import processes
from shakedown.service.model import LOAD, Incident, Known, PassedLoad, Step

KEPT_S = 180 * 24 * 3600  # of a node's history that is looked at: what was not cleared for half a year is no news
_MOST = 2000  # rows of one node and kind, the newest
_PAGE = 500  # nodes that are asked for at once


def known_of(ledger: Ledger, nodes: Iterable[str], now: int | None = None) -> dict[str, Known]:
    """Return these nodes' service in the order of time; unknown nodes have none. Raises LedgerError."""
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
    """Return nodes with the time of their last passed load (None: none), the longest ago first; of those
    without one, the last that was loaded comes last. Raises LedgerError."""
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
    """Return the nodes whose last step since then was no end: begun, or a repair without a passed load after it."""
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
    """Return the id of a node's last run (of this kind, if named) begun at `since` or later; empty: none."""
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
    """Return a node's sets of parts, the newest first, with their beginnings; a part may return."""
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


LEASE_S = 900  # more than the clocks of two machines that share a ledger are apart
BEAT_S = 60.0
_LOCK = 0x5AAD  # PostgreSQL: steps are begun one after the other


@dataclass(frozen=True)
class Holder:
    """A controller's process. `place`: boot and pid namespace; `lock`: a file that its commands also hold locked."""

    who: str
    place: str
    pid: int
    start: int
    lock: str = ""

    def lives(self, renewed: int, now: int, mine: Holder) -> bool:
        """Return whether the process, or a command of the process, may still be at work."""
        if not self.place or self.place != mine.place:
            return abs(now - renewed) <= LEASE_S  # a clock that was ahead by more has been set right since
        return _is_alive(self.pid, self.start) or (self.lock != mine.lock and _is_locked(self.lock))


@dataclass(frozen=True)
class Room:
    """What was known when the ledger was read: nodes out of service, how many may be, and the last step's number."""

    out: frozenset[str] = frozenset()
    at_once: int = 1
    seen: int = 0


def this_process(lock: str = "") -> Holder:
    """Return the holder that this process is."""
    found = processes.read(os.getpid())
    return Holder(who(), _place(), os.getpid(), found.started if found else 0, lock)


def newest_step(ledger: Ledger) -> int:
    """Return the number of the last step that the ledger has. Raises LedgerError."""
    if not ledger.exists():
        return 0
    with ledger.reading() as connection:
        return int(connection.execute(select(func.max(schema.steps.c.number))).scalar_one_or_none() or 0)


def holders(ledger: Ledger, mine: Holder | None = None) -> dict[str, str]:
    """Return who is at work, by node: processes other than this one. Raises LedgerError."""
    if not ledger.exists():
        return {}
    with ledger.reading() as connection:
        return _others(connection, mine or this_process())


def begin(ledger: Ledger, step: Step, room: Room, holder: Holder | None = None, also: Collection[str] = ()) -> str:
    """Write a step that begins something, with claims on its node and on `also` (none without a holder). Return why it
    was not written; one transaction looks again at older readings. Raises LedgerError."""
    mine = holder or this_process()
    nodes = list(dict.fromkeys(name(node) for node in (step.node, *also)))
    with ledger.writing() as connection:
        schema.serialise(connection, _LOCK)
        others = _others(connection, mine)
        if taken := [node for node in nodes if node in others]:
            return f"{taken[0]}: {others[taken[0]]} is at work there"
        if why := _meanwhile(connection, step, room, mine):
            return why
        connection.execute(schema.steps.insert().values(**step.model_dump()))
        if holder is not None:
            connection.execute(schema.claims.delete().where(schema.claims.c.node.in_(nodes)))
            row = {"renewed": _now(connection), **asdict(holder)}
            connection.execute(schema.claims.insert(), [{"node": node, **row} for node in nodes])
    return ""


def end(ledger: Ledger, step: Step, holder: Holder, also: Collection[str] = ()) -> bool:
    """Write the end of a step, and give up the claims on its node and on `also`. Return False, with nothing written,
    where another controller has taken the node over. Raises LedgerError."""
    claims = schema.claims
    with ledger.writing() as connection:
        schema.serialise(connection, _LOCK)
        nodes = [name(node) for node in (step.node, *also)]
        held = set(connection.scalars(select(claims.c.node).where(_is_mine(holder), claims.c.node.in_(nodes))))
        if name(step.node) not in held:
            return False
        connection.execute(claims.delete().where(claims.c.node.in_(held)))
        connection.execute(schema.steps.insert().values(**step.model_dump()))
    return True


def renew(ledger: Ledger, holder: Holder) -> set[str]:
    """Renew all claims of a process. Return their nodes. Raises LedgerError."""
    claims = schema.claims
    with ledger.writing() as connection:
        connection.execute(claims.update().where(_is_mine(holder)).values(renewed=_now(connection)))
        return set(connection.execute(select(claims.c.node).where(_is_mine(holder))).scalars())


@contextmanager
def kept(ledger: Ledger, holder: Holder, beat_s: float = BEAT_S) -> Iterator[None]:
    """Renew the claims of a process until the block ends, and give them up then."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(beat_s):
            with suppress(LedgerError):  # the next step cannot be written either, and says so
                renew(ledger, holder)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(LedgerError), ledger.writing() as connection:
            connection.execute(schema.claims.delete().where(_is_mine(holder)))


def _meanwhile(connection: Connection, step: Step, room: Room, mine: Holder) -> str:
    """Return what was begun since the room was read, where that leaves none for this step."""
    steps, out = schema.steps, set(room.out)
    newer = select(steps.c.node, steps.c.done, steps.c.rung, steps.c.who).where(steps.c.number > room.seen)
    for node, done, rung, by in connection.execute(newer.order_by(steps.c.number)):
        if node == name(step.node) and by != mine.who:
            return f"{step.node}: meanwhile {' '.join(filter(None, (done, rung)))} by {by}"
        if done in ("begun", "drained"):
            out.add(node)
        elif done == "resumed":
            out.discard(node)
    if name(step.node) not in out and len(out) >= room.at_once:
        return f"{step.node}: {len(out)} out of service already, and service.at_once allows {room.at_once}"
    return ""


def _others(connection: Connection, mine: Holder) -> dict[str, str]:
    claims, now = schema.claims, _now(connection)
    found = {}
    for row in connection.execute(select(claims)).mappings():
        holder = Holder(row["who"], row["place"], row["pid"], row["start"], row["lock"])
        is_mine = (holder.place, holder.pid, holder.start) == (mine.place, mine.pid, mine.start)
        if not is_mine and holder.lives(row["renewed"], now, mine):
            found[str(row["node"])] = holder.who
    return found


def _is_mine(holder: Holder) -> ColumnElement[bool]:
    claims = schema.claims.c
    return (claims.place == holder.place) & (claims.pid == holder.pid) & (claims.start == holder.start)


def _now(connection: Connection) -> int:
    """Return seconds since 1970 UTC by the server's clock, which all controllers share, where there is a server."""
    if connection.dialect.name == "postgresql":
        return int(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return int(time.time())


def _place() -> str:
    """Return boot and pid namespace of this process: within them a pid and its start time name a process."""
    try:
        return f"{processes.boot_id()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _is_alive(pid: int, start: int) -> bool:
    if processes.read(pid) is not None:
        return bool(processes.find(pid, start))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # /proc hides other users' processes here
        return True
    return bool(processes.find(pid, start))


def _is_locked(path: str) -> bool:
    """Return whether a process holds the lock, or nobody can say. A process that was orphaned holds the lock on."""
    if not path:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
