"""The watchdog's requests: a Unix socket in a folder that its owner alone can enter, made anew for each run under a
name that no user can take beforehand, in /run/shakedown for root and in /tmp for others: both are the node's own.

Each side asks the kernel who the other one is: the watchdog hears its own user and root, a visit believes the process
that the run folder names, by pid, start time and user. No call in here waits for a client, and each connection ends
after a few seconds, so that nothing that a client does stops the watchdog.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import stat
import tempfile
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional

from ..owners import trusted
from ..safe_files import Unsafe, locks, who
from . import lock, processes

REQUEST_LIMIT = 16 << 10  # bytes
ANSWER_LIMIT = 2 << 20  # bytes: the times of 10,000 growths of a log are a quarter of it
CONNECTION_S = 3.0  # from the first byte to the last one of the answer
_CONNECTIONS = 32  # at once; the oldest has to go
_PREFIX = "shakedown-"
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


class _Connection:
    """One client: what it has sent by now, and what it has still to be sent."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.until = time.monotonic() + CONNECTION_S
        self.inbox = b""
        self.outbox: Optional[bytes] = None

    def fileno(self) -> int:
        return self.client.fileno()


class RequestSocket:
    """The socket, with what listens on it. It has no thread: `serve` does what there is to do."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent())
        self._claim = _open_folder(self.folder)
        fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `sweep` sees by it that a watchdog is here
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connections: List[_Connection] = []
        try:
            self._server.bind(os.path.join(self.folder, _SOCKET))
            self._server.listen(64)
        except OSError:
            self.close()
            raise
        self._server.setblocking(False)

    def serve(self, seconds: float, answer: Answer) -> None:
        """Wait for at most `seconds` for something to do, and do it. A request that is no message gets an error."""
        writers = [connection for connection in self._connections if connection.outbox is not None]
        readers = [connection for connection in self._connections if connection.outbox is None]
        try:
            listening: List[Any] = [self._server, *readers]
            readable, writable, _ = select.select(listening, writers, [], seconds)
        except (OSError, ValueError):
            self._drop(self._connections)  # a descriptor that select cannot take: begin anew
            time.sleep(min(seconds, 0.1))
            return
        for connection in [connection for connection in readers if connection in readable]:
            self._receive_request(connection, answer)
        for connection in [connection for connection in writers if connection in writable]:
            self._say(connection)
        if self._server in readable:
            self._accept(seconds)
        now = time.monotonic()
        self._drop([connection for connection in self._connections if now > connection.until])

    def _accept(self, seconds: float) -> None:
        try:
            client, _ = self._server.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            time.sleep(min(seconds, 0.1))  # no descriptor is free: the caller must not spin until one is
            return
        self._connections.append(_Connection(client))
        try:
            client.setblocking(False)
            is_own = trusted(lock.peer(client)[1])
        except OSError:
            is_own = False
        self._drop(self._connections[:-_CONNECTIONS] if is_own else self._connections[-1:])

    def _receive_request(self, connection: _Connection, answer: Answer) -> None:
        try:
            chunk = connection.client.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        connection.inbox += chunk
        if not chunk or len(connection.inbox) > REQUEST_LIMIT:
            self._drop([connection])
        elif connection.inbox.endswith(b"\n"):
            connection.outbox = json.dumps(_answered(connection.inbox, answer)).encode() + b"\n"
            self._say(connection)

    def _say(self, connection: _Connection) -> None:
        try:
            sent = connection.client.send(connection.outbox or b"")
        except BlockingIOError:
            return
        except OSError:
            self._drop([connection])
            return
        connection.outbox = (connection.outbox or b"")[sent:]
        if not connection.outbox:
            self._drop([connection])

    def _drop(self, gone: List[_Connection]) -> None:
        for connection in gone:
            connection.client.close()
        self._connections = [connection for connection in self._connections if connection.fileno() >= 0]

    def close(self) -> None:
        """Leave nothing behind; the last client still gets the end of it from the kernel."""
        self._server.close()
        self._drop(self._connections)
        _remove(self.folder)
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1


def _answered(request: bytes, answer: Answer) -> Dict[str, Any]:
    try:
        return answer(loads(request))
    except Exception as error:  # whatever a request makes of it: the run goes on
        return {"error": "%s: %s" % (type(error).__name__, error)}


def _open_folder(path: str) -> int:
    """Open the folder, if it belongs to this user alone. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) != 0o700:
        os.close(descriptor)
        raise PermissionError("%s can be changed by others" % path)
    return descriptor


def _remove(path: str) -> None:
    """Remove a socket and its folder; a folder that holds anything else stays."""
    for remove, name in ((os.unlink, os.path.join(path, _SOCKET)), (os.rmdir, path)):
        with suppress(OSError):
            remove(name)


def sweep() -> None:
    """Remove the folders of watchdogs of this user that were killed. Raises nothing."""
    try:
        names = [name for name in os.listdir(parent()) if name.startswith(_PREFIX)]
    except (OSError, Unsafe):
        return
    for name in names:
        path = os.path.join(parent(), name)
        try:
            claim = _open_folder(path)
        except OSError:
            continue  # another user's, or no folder
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.listdir(claim) == [_SOCKET]:  # an empty one may be about to be used
                _remove(path)
        except OSError:
            pass  # a watchdog listens there
        finally:
            os.close(claim)


def ask(place: Dict[str, Any], request: Dict[str, Any], timeout: float = CONNECTION_S) -> Dict[str, Any]:
    """Send one request to the watchdog that `place` names, as the run folder has it: `socket` (its folder), `process`
    (pid and start time), `boot_id`. Returns its answer. Raises Silent, and Dead where it is gone."""
    path, process, boot = place.get("socket"), place.get("process"), place.get("boot_id")
    if not isinstance(path, str) or boot != processes.boot_id():
        raise Dead("the node has booted since, so its watchdog is gone")
    alive = processes.named(process)
    if not alive:
        raise Dead("the watchdog has ended")
    until = time.monotonic() + timeout
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim = _open_folder(path)
        try:
            connection.settimeout(timeout)
            connection.connect("/proc/self/fd/%d/%s" % (claim, _SOCKET))
        finally:
            os.close(claim)
        pid, uid = lock.peer(connection)
        if pid != alive[0].pid or not trusted(uid):
            raise ValueError("process %d of %s listens in place of the watchdog" % (pid, who(uid)))
        connection.sendall(json.dumps(request).encode() + b"\n")
        return _receive(connection, until)
    except (OSError, ValueError) as error:
        if _ends(alive[0]):
            raise Dead("the watchdog has just ended") from None
        raise Silent("the watchdog (pid %d) does not answer: %s" % (alive[0].pid, error)) from None
    finally:
        connection.close()


def _ends(watchdog: processes.Process) -> bool:
    """Return whether the watchdog was about to end, and has now."""
    for _ in range(4):
        if not processes.find(watchdog.pid, watchdog.started):
            return True
        time.sleep(0.1)
    return False


def _receive(connection: socket.socket, until: float) -> Dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or len(data) > ANSWER_LIMIT:
            raise ValueError("the answer did not arrive in time")
        connection.settimeout(left)
        chunk = connection.recv(65536)
        if not chunk:
            raise ValueError("the watchdog closed the connection")
        data += chunk
    return loads(data)
