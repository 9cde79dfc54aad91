"""Who is at work on which node: rows of the ledger, taken in the transaction that writes what is begun.

A claim belongs to one process of a controller, and ends with the step. Where the process dies first, the next
controller sees that: on the same machine by pid and start time, and by the lock that the commands of the process hold,
too; on another machine by a claim that was not renewed for LEASE_S.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, select, text

from shakedown.common.one_line import name
from shakedown.ledger import schema
from shakedown.ledger.place import LedgerError
from shakedown.ledger.service import who
from shakedown.ledger.store import Ledger
from shakedown.node.launcher import processes
from shakedown.service.model import Step

LEASE_S = 900  # more than the clocks of two machines that share a ledger are apart
BEAT_S = 60.0
_LOCK = 0x5AAD  # PostgreSQL: steps are begun one after the other


@dataclass(frozen=True)
class Holder:
    """A process of a controller. `place`: boot and pid namespace of its machine; `lock`: a file that the commands of
    the process hold locked, too."""

    who: str
    place: str
    pid: int
    start: int
    lock: str = ""

    def lives(self, renewed: int, now: int, mine: Holder) -> bool:
        """Return whether the process, or a command of the process, may still be at work."""
        if not self.place or self.place != mine.place:
            return now - renewed <= LEASE_S
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
    """Write a step that begins something, with claims on its node and on `also`. Return why the step was not written;
    empty: the step stands.

    One transaction: what was decided from an older reading is looked at again in it. Without a holder no node is
    claimed. Raises LedgerError.
    """
    mine = holder or this_process()
    nodes = list(dict.fromkeys(name(node) for node in (step.node, *also)))
    with ledger.writing() as connection:
        _serialise(connection)
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
        _serialise(connection)
        nodes = [name(node) for node in (step.node, *also)]
        held = set(
            connection.execute(select(claims.c.node).where(_is_mine(holder), claims.c.node.in_(nodes))).scalars()
        )
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


def _serialise(connection: Connection) -> None:
    """Have whoever begins something at this moment wait. SQLite's transactions do that anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


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
