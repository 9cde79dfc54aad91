"""The watchdog's requests: a Unix socket in a folder that its owner alone can enter, made anew for each run under a
name that no user can take beforehand, in /run/shakedown for root and in /tmp for others: both are the node's own.

A request is one datagram, and so is its answer: no client can hold the watchdog up. Each side asks the kernel who sent
the other's: the watchdog hears its own user and root, a visit believes the process that the run folder names, by pid,
start time and user.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import tempfile
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Tuple

from ..owners import trusted
from ..safe_files import Unsafe, locks, who
from . import processes

REQUEST_LIMIT = 16 << 10  # bytes
ANSWER_LIMIT = 200 << 10  # bytes: what a socket takes as one datagram where nobody has lowered net.core.wmem_max
ANSWER_S = 3.0  # until the watchdog has answered
_SLICE_S = 0.2  # between two looks whether it still lives
_PREFIX = "shakedown."
_SOCKET = "control"

Answer = Callable[[Dict[str, Any]], Dict[str, Any]]


class Silent(Exception):
    """A watchdog is there and does not answer."""


class Dead(Silent):
    """No watchdog is there."""


def loads(text: bytes) -> Dict[str, Any]:
    """Parse the document of a message. Raises ValueError for anything else than an object."""
    try:
        message = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("not a message")
    return message


def parent() -> str:
    """Return the folder that holds the folders of the sockets."""
    return locks().path if os.geteuid() == 0 else "/tmp"


class RequestSocket:
    """The socket. It has no thread: `serve` does what there is to do."""

    def __init__(self) -> None:
        self._server, self.folder = _socket(), tempfile.mkdtemp(prefix=_PREFIX, dir=parent())
        try:
            self._listen()
        except OSError:
            self.close()
            raise

    def _listen(self) -> None:
        """Listen, in the place of an earlier socket. Raises OSError."""
        server, path = _socket(), os.path.join(self.folder, _SOCKET)
        with suppress(FileNotFoundError):
            os.unlink(path)  # before the other closes: `sweep` takes one that nobody listens at for a dead watchdog's
        server.bind(path)
        self._server.close()
        self._server = server

    def serve(self, seconds: float, answer: Answer) -> None:
        """Wait for at most `seconds` for a request, and answer it. One that is no message gets an error."""
        self._server.settimeout(seconds)
        try:
            request, _, uid, client = _receive(self._server, REQUEST_LIMIT)
        except OSError:  # no request came
            return
        if not trusted(uid) or client is None:  # one without an address waits for no answer
            return
        try:
            reply = answer(loads(request))
        except Exception as error:  # whatever a request makes of it: the run goes on
            reply = {"error": "%s: %s" % (type(error).__name__, error)}
        self._server.setblocking(False)
        with suppress(OSError):  # it has gone
            try:
                self._server.sendto(json.dumps(reply).encode(), client)
            except BlockingIOError:  # full of what others do not read: the next get theirs by a new socket
                self._listen()

    def close(self) -> None:
        """Leave nothing behind; the last client still gets its answer from the kernel."""
        self._server.close()
        _remove(self.folder)


def _socket() -> socket.socket:
    """Return a socket that learns who sent a datagram, and gets an address of its own for the answer (unix(7))."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ANSWER_LIMIT)  # whatever net.core.wmem_default is
    return made


def _receive(receiver: socket.socket, limit: int) -> Tuple[bytes, int, int, Any]:
    """Return a datagram with process id and user id of its sender, by the kernel's word, and the sender's address."""
    data, more, _, address = receiver.recvmsg(limit, socket.CMSG_LEN(struct.calcsize("3i")))
    pid, uid, _ = struct.unpack("3i", more[0][2])
    return data, pid, uid, address


def _connect(visit: socket.socket, folder: str) -> None:
    """Connect to the watchdog's socket, if its folder belongs to this user alone. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) != 0o700:
            raise PermissionError("%s can be changed by others" % folder)
        visit.connect("/proc/self/fd/%d/%s" % (descriptor, _SOCKET))
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    """Remove a socket and its folder; a folder that holds anything else stays."""
    for remove, name in ((os.unlink, os.path.join(path, _SOCKET)), (os.rmdir, path)):
        with suppress(OSError):
            remove(name)


def sweep() -> None:
    """Remove the folders of watchdogs of this user that were killed. Raises nothing."""
    try:
        paths = [os.path.join(parent(), name) for name in os.listdir(parent()) if name.startswith(_PREFIX)]
    except (OSError, Unsafe):
        return
    for path in paths:
        try:
            with _socket() as visit:
                _connect(visit, path)
        except ConnectionRefusedError:
            _remove(path)
        except OSError:
            continue  # another user's, no folder, or an empty one, which may be about to be used


def ask(place: Dict[str, Any], request: Dict[str, Any], timeout: float = ANSWER_S) -> Dict[str, Any]:
    """Send one request to the watchdog that `place` names, as the run folder has it: `socket` (its folder), `process`
    (pid and start time), `boot_id`. Returns its answer. Raises Silent, and Dead where it is gone."""
    path, process, boot = place.get("socket"), place.get("process"), place.get("boot_id")
    if not isinstance(path, str) or boot != processes.boot_id():
        raise Dead("the node has booted since, so its watchdog is gone")
    alive = processes.named(process)
    if not alive:
        raise Dead("the watchdog has ended")
    try:
        with _socket() as visit:
            visit.settimeout(timeout)
            _connect(visit, path)
            visit.send(json.dumps(request).encode())
            answer, pid, uid = _answer(visit, timeout, alive[0])
        if pid != alive[0].pid or not trusted(uid):
            raise ValueError("process %d of %s listens in place of the watchdog" % (pid, who(uid)))
        return loads(answer)
    except (OSError, ValueError) as error:
        if _ends(alive[0]):
            raise Dead("the watchdog has just ended") from None
        raise Silent("the watchdog (pid %d) does not answer: %s" % (alive[0].pid, error)) from None


def _answer(visit: socket.socket, timeout: float, watchdog: processes.Process) -> Tuple[bytes, int, int]:
    """Wait for the answer, with its sender's pid and user id, no longer than the watchdog lives: its end wakes nobody
    who waits for a datagram. Raise OSError."""
    until = time.monotonic() + timeout
    visit.settimeout(min(timeout, _SLICE_S))
    while True:
        try:
            return _receive(visit, ANSWER_LIMIT)[:3]
        except socket.timeout:
            if time.monotonic() > until or not processes.find(watchdog.pid, watchdog.started):
                raise


def _ends(watchdog: processes.Process) -> bool:
    """Return whether the watchdog was about to end, and has now."""
    for _ in range(4):
        if not processes.find(watchdog.pid, watchdog.started):
            return True
        time.sleep(0.1)
    return False
