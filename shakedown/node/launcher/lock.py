"""The node's lock: one run per node, and only a user with rights over a run can refuse it the node.

Root's lock is a file in `/run/shakedown`, where only root can write, held with flock(2). Any user reads in /proc/locks
that it is held, and whose run it is in the record beside it.

Ordinary users have no folder that they share and trust. Their lock is an abstract Unix socket: binding its name is
atomic, and a connection shows the holder's uid and pid. Any user can bind a name, and what runs for another user cannot
be distinguished from what only holds it: so a user is refused by it, and root gets a note. A user who finds root's lock
held is refused always.

The kernel releases both when the last process that has the descriptor is gone. The watchdog hands it to the leader: a
node stays locked while a leader lives. The socket's name belongs to the network namespace and /run to the mount
namespace: containers with both of their own are nodes of their own.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from typing import BinaryIO, Optional, Set, Tuple, Union

from .. import safe_files
from ..safe_files import Busy, holder_pid, locks, who
from . import folder, processes
from .processes import kernel_text

NAME_VARIABLE = "SHAKEDOWN_NODE"  # separates several nodes that share their namespaces (tests)
_DRAIN = 128  # connections of people who look, taken from the queue in one turn
_LOOK_S = 0.5  # for a connection to a holder's socket whose queue is full


class Lock:
    """The node, as long as what is held is open. `note` is what the run's owner should know of it."""

    def __init__(self, held: Union[socket.socket, BinaryIO], note: str = "") -> None:
        self._held = held
        self.note = note

    def fileno(self) -> int:
        """Return the descriptor that is the lock."""
        return self._held.fileno()

    def drain(self) -> None:
        """Let go of who has looked at an ordinary user's lock, so that the next who looks finds room in the queue."""
        if isinstance(self._held, socket.socket):
            with suppress(OSError):
                for _ in range(_DRAIN):
                    self._held.accept()[0].close()

    def release(self) -> None:
        """Let go of the node; twice is once."""
        self._held.close()


def take(run_id: str) -> Lock:
    """Take the node. Raises Busy, whose text says who holds the node and since when, Unsafe, OSError."""
    return _take_as_root(run_id) if os.geteuid() == 0 else _take_as_user()


# -- root ------------------------------------------------------------------------------------------------------------


def _take_as_root(run_id: str) -> Lock:
    place, (path, record) = locks(), _roots_files()
    try:
        held = os.fdopen(place.lock(os.path.basename(path), 0), "rb")
    except Busy:
        raise Busy(_roots_run(record) + _remedy(path, record)) from None
    about = {"run_id": run_id, "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())}
    place.write(os.path.basename(record), json.dumps(about).encode())
    other = _bound_by()
    return Lock(held, "%s holds this node too, which disturbs what both measure" % other if other else "")


def _roots_files() -> Tuple[str, str]:
    """Return the lock and the record of its holder."""
    variable = os.environ.get(NAME_VARIABLE)
    name = "node-" + hashlib.sha256(variable.encode()).hexdigest()[:16] if variable else "node"
    return "{}/{}.lock".format(safe_files.ROOTS_LOCKS, name), "{}/{}.json".format(safe_files.ROOTS_LOCKS, name)


def _roots_run(record: str) -> str:
    about = folder.read_document(record)
    if not all(isinstance(about.get(key), (str, int)) for key in ("run_id", "since", "pid")):
        return "a run of root holds this node"
    return "run %(run_id)s of user root holds this node since %(since)s UTC (watchdog pid %(pid)s)" % about


def _remedy(path: str, record: str) -> str:
    """Return what frees a node whose watchdog was stopped or killed, and so was its guardian."""
    watchdog = folder.read_document(record).get("pid")
    process = processes.read(watchdog) if isinstance(watchdog, int) else None
    if process is not None and process.state not in "ZX":
        return ", which is stopped: kill -CONT %d lets it end the run" % process.pid if process.state == "T" else ""
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _has_open(pid, {path})]
    return ", which is gone: kill -9 %s ends what the run has left" % " ".join(left) if left else ""


def _root_holds() -> Optional[str]:
    """Return root's run, for users who may not open its lock."""
    path, record = _roots_files()
    with suppress(OSError):
        about = os.lstat(path)
        place = "%02x:%02x:%d" % (os.major(about.st_dev), os.minor(about.st_dev), about.st_ino)
        if about.st_uid == 0 and stat.S_ISREG(about.st_mode) and holder_pid(place):
            return _roots_run(record)
    return None


# -- ordinary users --------------------------------------------------------------------------------------------------


def _address() -> bytes:
    return b"\0shakedown/" + os.environ.get(NAME_VARIABLE, "node").encode()


def _take_as_user() -> Lock:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(_address())
        server.listen(_DRAIN)
        server.setblocking(False)
    except OSError as error:
        server.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise Busy("%s holds this node" % (_bound_by() or "a process that has just released it")) from None
    root = _root_holds()  # after binding: root, who takes its own lock first and then looks here, sees it or is seen
    if root:
        server.close()
        raise Busy(root)
    return Lock(server)


def _bound_by() -> Optional[str]:
    """Return the holder of the ordinary users' lock, in words; None where there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as looking:
        looking.settimeout(_LOOK_S)
        try:
            looking.connect(_address())
            credentials = looking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", credentials)  # by the kernel's word
        except OSError:
            # No listener: it is not bound, or its holder hides. /proc/net/unix knows the name, not whose it is.
            return _hidden_holder()
    process = processes.read(pid)
    run_id = folder.run_of_watchdog(pid) if uid == os.geteuid() else None
    what = "run %s" % run_id if run_id else "process %d%s" % (pid, " (%s)" % process.command if process else "")
    return "%s of user %s%s" % (what, who(uid), " (watchdog pid %d)" % pid if run_id else "")


def _hidden_holder() -> Optional[str]:
    name = "@" + _address()[1:].decode()
    found = [line.split() for line in kernel_text("/proc/net/unix").split("\n") if line.endswith(" " + name)]
    if not found:
        return None
    sockets = {"socket:[%s]" % words[6] for words in found}  # who waits in the queue is listed by the same name
    holders = [pid for pid in os.listdir("/proc") if pid.isdigit() and _has_open(pid, sockets)]
    if not holders:
        return "a process that does not listen (as root: ss -xap | grep %s shows the process)" % name
    return "process %s%s" % (holders[0], _of_user(holders[0]))


def _of_user(pid: str) -> str:
    try:
        return " of user %s" % who(os.stat("/proc/" + pid).st_uid)
    except OSError:
        return ""


def _has_open(pid: str, files: Set[str]) -> bool:
    try:
        return any(os.readlink("/proc/%s/fd/%s" % (pid, name)) in files for name in os.listdir("/proc/%s/fd" % pid))
    except OSError:
        return False  # gone, or another user's
