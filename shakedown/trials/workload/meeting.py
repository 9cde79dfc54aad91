"""Where the nodes of a trial meet: numbers and texts under keys, kept on the first of them.

    meeting.py ADDRESS PORT NODES SECONDS     keep it, on the address that the others use

Each node has a secret of its own, made of the trial's, which the first node has. Both ends show that they know it
(HMAC-SHA256 over a fresh number of each) before anything else is read, so a stranger on the network can neither see nor
change what nodes tell each other; who connects and says nothing is let go after `SHAKE_S`. The secret comes by the
environment, which other users of a node cannot read.

What two nodes tell each other stands under keys that name them, `TRIAL/PASS/ROUND/A-B/...`, and no third node reads or
changes it. Under any other key nodes are counted, each once.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from typing import Any

SECRET = "SHAKEDOWN_MEETING_SECRET"
SHAKE_S = 10.0
STRANGERS = 256  # connections that have not shown yet that they belong here, at once
LINE = 1 << 20
KEPT = 512 << 20  # bytes of all that is kept, about: a node that is broken must not fill the first one's memory
SHARE = 2  # of that a single node gets the half: it must not take the room of all others either
ENTRY = 256  # bytes that a key costs besides its characters
ANSWER_S = 60.0  # no question takes long: what has to be waited for is asked for again


_OF_PAIR = re.compile(r"[^/]*/\d+/\d+/(\d+)-(\d+)/")


def secret_of(secret: str, place: int) -> str:
    """A node's own, made of the trial's."""
    return hmac.new(secret.encode(), f"place {place}".encode(), hashlib.sha256).hexdigest()


class MeetingError(RuntimeError):
    """No meeting there, or none that knows the secret; the text says where."""


def _proof(secret: bytes, who: str, first: str, second: str) -> str:
    return hmac.new(secret, f"{who} {first} {second}".encode(), hashlib.sha256).hexdigest()


def _line(connection: socket.socket, until: float, kept: bytearray, limit: int) -> str:
    """The next line, without its end. Raises OSError: none in time, too long, or none at all."""
    while b"\n" not in kept:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        more = connection.recv(65536)
        if not more or len(kept) > limit:
            raise OSError("the connection ended" if not more else "the line is too long")
        kept += more
    line, _, rest = bytes(kept).partition(b"\n")
    kept[:] = rest
    return line.decode("ascii", "replace")


class Keeper:
    """The table, and who may ask it."""

    def __init__(self, address: str, port: int, secret: str) -> None:
        self._secret, self._lock = secret, threading.Lock()
        self._table: dict[str, tuple[str, int]] = {}  # under keys of two nodes: what is told, and which node told it
        self._counted: dict[str, set[int]] = {}  # under other keys: the nodes that have come this far
        self._sizes = Counter[int]()  # what each node has told
        self._strangers: dict[socket.socket, None] = {}  # the oldest first
        self._listener = socket.create_server((address, port), backlog=1024)
        self.port: int = self._listener.getsockname()[1]

    def serve(self, nodes: int, seconds: float) -> None:
        """Until so many have said that they are through, or the time is over."""
        until = time.monotonic() + seconds
        self._listener.settimeout(0.2)
        while time.monotonic() < until and len(self._counted.get("through", ())) < nodes:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                continue
            with self._lock:
                if len(self._strangers) >= STRANGERS:
                    # Whoever belongs here shows it at once: who has not done so for the longest time makes room.
                    oldest = next(iter(self._strangers))
                    del self._strangers[oldest]
                    with contextlib.suppress(OSError):
                        oldest.shutdown(socket.SHUT_RDWR)
                self._strangers[connection] = None
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()
        time.sleep(1)  # for the last answer to arrive

    def _talk(self, connection: socket.socket) -> None:
        kept = bytearray()
        with connection:
            try:
                try:
                    place = self._belongs(connection, kept)
                finally:
                    with self._lock:
                        self._strangers.pop(connection, None)
                while place is not None:
                    asked = json.loads(_line(connection, time.monotonic() + 86400, kept, LINE))
                    connection.sendall(json.dumps(self._answer(place, *asked)).encode() + b"\n")
            except (OSError, ValueError, TypeError):
                return

    def _belongs(self, connection: socket.socket, kept: bytearray) -> int | None:
        """The place of the node at the other end; None: it is a stranger."""
        own = secrets.token_hex(16)
        connection.settimeout(SHAKE_S)
        connection.sendall(f"{own}\n".encode())
        place, other, proof = _line(connection, time.monotonic() + SHAKE_S, kept, 256).split(" ")
        secret = secret_of(self._secret, int(place)).encode()
        if not hmac.compare_digest(proof.encode(), _proof(secret, "node", own, other).encode()):
            return None
        connection.sendall(f"{_proof(secret, 'keeper', own, other)}\n".encode())
        return int(place)

    def _answer(self, place: int, what: str, key: str, value: Any = None) -> Any:
        pair = _OF_PAIR.match(key)
        if pair and str(place) not in pair.groups():
            raise ValueError(f"{key} is not node {place}'s")
        with self._lock:
            if not pair:
                return self._of_all(place, what, key)
            told = self._table.get(key, (None, place))[0]
            if what == "get":
                return told
            if what == "set":
                self._keep(place, key, str(value))
            elif what == "add":
                self._keep(place, key, str(int(told or "0") + int(value)))
                return int(self._table[key][0])
            elif what == "delete":
                self._forget(key)
                return told is not None
            return None

    def _of_all(self, place: int, what: str, key: str) -> Any:
        """Under a key that is no two nodes' own there are only nodes that are counted, each once."""
        if what == "count":
            return len(self._table) + len(self._counted)
        nodes = self._counted.get(key, set())
        if what == "get":
            return str(len(nodes)) if nodes else None
        if what != "add":
            raise ValueError(f"{key} is nobody's own")
        if place not in nodes:
            self._pay(place, key)
            self._counted.setdefault(key, set()).add(place)
        return len(self._counted[key])

    def _keep(self, place: int, key: str, value: str) -> None:
        self._forget(key)
        self._pay(place, key + value)
        self._table[key] = value, place

    def _pay(self, place: int, told: str) -> None:
        size = len(told) + ENTRY
        if self._sizes.total() + size > KEPT or self._sizes[place] + size > KEPT // SHARE:
            raise ValueError("too much is told")
        self._sizes[place] += size

    def _forget(self, key: str) -> None:
        if key in self._table:
            value, place = self._table.pop(key)
            self._sizes[place] -= len(key) + len(value) + ENTRY


class Meeting:
    """A node's end. `secret`: the trial's on the first node, on others their own. Raises MeetingError where nobody who
    knows it answers in time."""

    def __init__(self, address: str, port: int, secret: str, place: int, seconds: float) -> None:
        self._lock, self._kept, self._place = threading.Lock(), bytearray(), place
        secret = secret if place else secret_of(secret, place)
        until, why = time.monotonic() + seconds, "no answer"
        while True:
            try:
                self._connection = self._join(address, port, secret.encode(), until)
                return
            except OSError as error:
                why = str(error)
            if time.monotonic() >= until:
                raise MeetingError(f"no meeting at {address}:{port} within {seconds:g} s: {why}")
            time.sleep(0.2)

    def _join(self, address: str, port: int, secret: bytes, until: float) -> socket.socket:
        until = min(until, time.monotonic() + SHAKE_S)
        connection = socket.create_connection((address, port), max(until - time.monotonic(), 0.1))
        self._kept.clear()
        try:
            other, own = _line(connection, until, self._kept, 256), secrets.token_hex(16)
            connection.sendall(f"{self._place} {own} {_proof(secret, 'node', other, own)}\n".encode())
            answer = _line(connection, until, self._kept, 256)
            if not hmac.compare_digest(answer.encode(), _proof(secret, "keeper", other, own).encode()):
                raise OSError("who listens there does not know the secret of this trial")
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, what: str, key: str, value: Any = None) -> Any:
        """One question. Raises MeetingError."""
        with self._lock:
            try:
                self._connection.settimeout(ANSWER_S)
                self._connection.sendall(json.dumps([what, key, value]).encode() + b"\n")
                return json.loads(_line(self._connection, time.monotonic() + ANSWER_S, self._kept, LINE))
            except (OSError, ValueError) as error:
                raise MeetingError(f"the meeting broke off: {error}") from None

    def wait(self, key: str, seconds: float) -> str | None:
        """What stands under a key, as soon as it does; None: nothing in time."""
        until, pause = time.monotonic() + seconds, 0.002
        while (found := self.ask("get", key)) is None and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return None if found is None else str(found)

    def together(self, name: str, nodes: int, seconds: float) -> None:
        """Wait until so many have come this far, so that no more pairs measure at once than were meant to; no longer
        than that for one that is missing."""
        self.ask("add", name)
        until = time.monotonic() + seconds
        while int(self.ask("get", name)) < nodes and time.monotonic() < until:
            time.sleep(0.02)


if __name__ == "__main__":
    Keeper(sys.argv[1], int(sys.argv[2]), os.environ[SECRET]).serve(int(sys.argv[3]), float(sys.argv[4]))
    os._exit(0)
