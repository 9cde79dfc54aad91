"""Travels with give.py and take.py: how two nodes that were brought together by the controller know each other.

Both have a random token that was made for this one transfer, and came over their standard input. Each proves that it
has it, over random bytes of both, before anything else is said; the token itself never goes over the wire. What follows
is not encrypted: an image that the fabric must not see is no image for this.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import time

NONCE = 32  # bytes
CHUNK = 1 << 20
GIVES, TAKES = b"shakedown gives", b"shakedown takes"
HANDSHAKE_S = 10.0  # for all of it: who says a byte now and then would keep everybody else waiting


class Stranger(Exception):
    """The other end does not have the token."""


def proof(token: str, role: bytes, *nonces: bytes) -> bytes:
    """What only the holder of the token can say, in one role, in answer to these random bytes."""
    return hmac.new(bytes.fromhex(token), role + b"".join(nonces), hashlib.sha256).digest()


def exactly(connection: socket.socket, count: int, until: float) -> bytes:
    """So many bytes, by then (of time.monotonic); fewer are a Stranger's."""
    taken = b""
    while len(taken) < count:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        more = connection.recv(count - len(taken))
        if not more:
            raise Stranger("the connection was closed before it said who it is")
        taken += more
    return taken


def greet(connection: socket.socket, token: str) -> None:
    """The giver's side. Raises Stranger, OSError."""
    until = time.monotonic() + HANDSHAKE_S
    mine = os.urandom(NONCE)
    connection.settimeout(HANDSHAKE_S)
    connection.sendall(mine)
    theirs, said = exactly(connection, NONCE, until), exactly(connection, NONCE, until)
    if not hmac.compare_digest(said, proof(token, TAKES, mine, theirs)):
        raise Stranger("it has not the token of this transfer")
    connection.sendall(proof(token, GIVES, mine, theirs))


def answer(connection: socket.socket, token: str) -> None:
    """The receiver's side. Raises Stranger, OSError."""
    until = time.monotonic() + HANDSHAKE_S
    theirs = exactly(connection, NONCE, until)
    mine = os.urandom(NONCE)
    connection.sendall(mine + proof(token, TAKES, theirs, mine))
    if not hmac.compare_digest(exactly(connection, NONCE, until), proof(token, GIVES, theirs, mine)):
        raise Stranger("it has not the token of this transfer")
