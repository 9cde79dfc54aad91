"""The node's lock and the watchdog's ear: one abstract Unix socket.

Binding its name is the lock: one run per node whatever user it belongs to, no file that could be left behind, be
unwritable or be owned by another user, and the kernel lets go of it when the last holder has ended. Connecting to it
tells who holds it, and is how the owner's commands reach the watchdog. The name belongs to the network namespace, so
containers with a network of their own are nodes of their own.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from typing import Any, Dict, Tuple

NAME_VARIABLE = "SHAKEDOWN_NODE"  # tells apart several nodes that share one network namespace (tests)
_LIMIT = 1 << 20  # bytes of one message


class Busy(Exception):
    """Another run holds the node; the text says whose, and since when."""


class Silent(Exception):
    """A watchdog is there and does not answer."""


class Dead(Silent):
    """No watchdog is there."""


def _address() -> bytes:
    return b"\0shakedown/" + os.environ.get(NAME_VARIABLE, "node").encode()


def peer(connection: socket.socket) -> Tuple[int, int]:
    """Process id and user id of the other end, by the kernel's word."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def take() -> socket.socket:
    """Take the node's lock. Raises Busy when it is held."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(_address())
    except OSError as error:
        server.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise Busy(_holder()) from None
    server.listen(16)
    return server


def _holder() -> str:
    try:
        answer = ask({"command": "who"}, timeout=3)
        return "run %(run_id)s of user %(user)s holds this node since %(since)s UTC (watchdog pid %(pid)s)" % answer
    except (Silent, KeyError):
        return "another run holds this node and does not say whose it is (ss -xlp shows the holder of @shakedown/node)"


def ask(request: Dict[str, Any], timeout: float = 3) -> Dict[str, Any]:
    """Send one request to the watchdog and return its answer. Raises Silent, and Dead where nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        with connection:
            connection.connect(_address())
            send(connection, request)
            answer = receive(connection)
    except ConnectionRefusedError as error:
        raise Dead("no watchdog: %s" % error.strerror) from None
    except (OSError, ValueError) as error:
        raise Silent("the watchdog does not answer: %s" % error) from None
    return answer


def send(connection: socket.socket, message: Dict[str, Any]) -> None:
    """Write one message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> Dict[str, Any]:
    """Read one message. Raises ValueError for anything else."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(65536)
        if not chunk or len(data) > _LIMIT:
            raise ValueError("the other end closed the connection")
        data += chunk
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("not a message")
    return message
