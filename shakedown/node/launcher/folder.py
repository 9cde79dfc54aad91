"""The run folder: `~/.cache/shakedown/runs/<run id>`, for its owner alone. Of folders that a controller left behind the
newest few stay; any other goes once nothing in it has changed for a day, and each after two weeks. Only this user's
own are touched, never one whose watchdog lives."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import time
import zlib
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

from ..owners import closed
from ..safe_files import FOLDER, Folder, sticky
from . import processes

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
OWN = ".launcher"  # what belongs to the launcher and not to the job: status, job description, its own sources
LEADER_LOG = "leader.log"
DEVICE_LOG = OWN + "/devices.log"  # of the sampler
_DOCUMENT_LIMIT = 16 << 20  # bytes of one of the launcher's own documents: a job description holds whole plans


class Unusable(Exception):
    """The folder cannot be made or used; the text says why and what to do."""


def path_of(run_id: str) -> str:
    """Return the folder of a run of this user."""
    if not _RUN_ID.fullmatch(run_id):
        raise Unusable("not a run id: %r" % run_id)
    return os.path.join(parent(), run_id)


def parent() -> str:
    """Return the folder that holds this user's run folders. Root takes $HOME only where no other user can write: sudo
    may leave it at the home of its caller."""
    home = os.environ.get("HOME")
    if not home or (os.geteuid() == 0 and stranger(home)):
        home = pwd.getpwuid(os.geteuid()).pw_dir
    return os.path.join(home, ".cache", "shakedown", "runs")


def stranger(path: str) -> Optional[str]:
    """Return the part of a path that another user than root could exchange, and its owner; None where there is none."""
    path = os.path.realpath(path)
    while True:
        about = os.lstat(path) if os.path.lexists(path) else None
        if about and not closed(about) and not sticky(about):
            return "%s (owner %d, mode %04o)" % (path, about.st_uid, stat.S_IMODE(about.st_mode))
        if path == "/":
            return None
        path = os.path.dirname(path)


def _make_parent() -> str:
    """Make `parent` where it is missing. Files in there are executed, so no other user may write there."""
    path = parent()
    exchanged = stranger(path) if os.geteuid() == 0 else None
    if exchanged:
        raise Unusable("root's runs cannot be kept in %s: others can exchange %s" % (path, exchanged))
    before = os.umask(0o077)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    finally:
        os.umask(before)
    for place in (os.path.dirname(path), path):
        about = os.stat(place)
        if about.st_uid != os.geteuid():
            raise Unusable("%s belongs to uid %d: move it away" % (place, about.st_uid))
        if about.st_mode & 0o022:
            os.chmod(place, stat.S_IMODE(about.st_mode) & ~0o022)
    return path


def create(run_id: str, files: Dict[str, str], folders: List[str]) -> str:
    """Make the folder with its files (path inside it -> base64 of the zlib-compressed content) and empty folders.
    Raises Unusable when it is there already, or cannot be made or filled; nothing is left behind then."""
    path = path_of(run_id)
    try:
        path = os.path.join(_make_parent(), os.path.basename(path))
        os.mkdir(path, 0o700)
    except FileExistsError:
        raise Unusable("%s is there already: a run id is used once" % path) from None
    except OSError as error:
        raise Unusable("cannot make the run folder %s: %s" % (path, error.strerror)) from None
    try:
        os.mkdir(os.path.join(path, OWN), 0o700)
        for name, content in files.items():
            write(inside(path, name), zlib.decompress(base64.b64decode(content)))
        for name in folders:
            os.makedirs(inside(path, name), mode=0o700, exist_ok=True)
    except (OSError, Unusable) as error:
        shutil.rmtree(path, ignore_errors=True)
        words = "cannot fill the run folder %s: %s" % (path, getattr(error, "strerror", error))
        raise Unusable(words) from None
    return path


def inside(path: str, name: str) -> str:
    """Return `name` below `path`; Unusable where it would lead out of it."""
    full = os.path.normpath(os.path.join(path, name))
    if not full.startswith(path + os.sep):
        raise Unusable("%r does not stay inside the run folder" % name)
    return full


def write(path: str, content: bytes) -> None:
    """Write a file of mode 0600 (0700 where it names its interpreter), whole or not at all."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    partial, mode = path + ".partial", 0o700 if content.startswith(b"#!") else 0o600
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(partial, path)


def write_json(path: str, name: str, document: Dict[str, Any]) -> None:
    write(os.path.join(path, OWN, name), json.dumps(document, indent=1, sort_keys=True).encode())


def read_json(path: str, name: str) -> Dict[str, Any]:
    """Read one of the launcher's own documents; empty when it is not there or cut."""
    return read_document(os.path.join(path, OWN, name))


def read_document(path: str) -> Dict[str, Any]:
    """Read a document; empty when it is not there, cut, or anything else than an object."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            document = json.loads(file.read(_DOCUMENT_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def open_below(path: str, name: str, flags: int) -> int:
    """Open what lies below a run folder, following no link: the job may have laid one. Raises OSError."""
    here, last = _folder_of(path, name)
    try:
        return os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=here.fd)
    except OSError as error:
        raise _plainly(error) from None


def remove_below(path: str, name: str) -> None:
    """Remove a file below a run folder; the same errors."""
    here, last = _folder_of(path, name)
    here.remove(last)


def _folder_of(path: str, name: str) -> Tuple[Folder, str]:
    """Open the folder of a file, and return it with the file's name there."""
    if name.startswith(path + os.sep):
        name = name[len(path) + 1 :]
    parts = name.split(os.sep)
    if os.path.isabs(name) or os.pardir in parts:
        raise PermissionError("it is not inside the run folder")
    here = Folder(os.open(path, FOLDER), path, "")
    try:
        for part in filter(None, parts[:-1]):
            here = here.down(part)
    except OSError as error:
        raise _plainly(error) from None
    return here, parts[-1]


def _plainly(error: OSError) -> OSError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return PermissionError("a link is in the path, and links are not followed")
    return error


def open_log(path: str, name: str) -> int:
    """Open a log of the run folder, to append to it. Raises OSError where it is anything else than a file of its own:
    a job that writes in the folder may have put something there."""
    descriptor = open_below(path, name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(descriptor)
        raise PermissionError("%s is a link, or not a regular file" % name)
    return descriptor


def chunk(path: str, name: str, offset: int, limit: int) -> Tuple[bytes, int, int]:
    """Return up to `limit` bytes of a file below the run folder `path` from `offset`, the offset behind them, and the
    file's size. Raises OSError, also where `name` is no regular file (reading a FIFO would hang) or a link."""
    with _regular(path, name) as file:
        file.seek(offset)
        data = file.read(limit)
        size = os.fstat(file.fileno()).st_size
    return data, offset + len(data), max(size, offset + len(data))


def digest(path: str, name: str, length: int, seconds: float) -> Tuple[Optional[str], int]:
    """Return SHA-256 of a file's first `length` bytes (None: that takes longer), and its size. Raises as `chunk`."""
    until, found = time.monotonic() + seconds, hashlib.sha256()
    with _regular(path, name) as file:
        while length > 0:
            data = file.read(min(length, 1 << 20))
            if not data:
                break
            found.update(data)
            length -= len(data)
            if time.monotonic() > until:
                return None, os.fstat(file.fileno()).st_size
        return found.hexdigest(), os.fstat(file.fileno()).st_size


def _regular(path: str, name: str) -> BinaryIO:
    descriptor = open_below(path, name, os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return os.fdopen(descriptor, "rb")


def run_of_watchdog(pid: int) -> Optional[str]:
    """Return this user's run whose watchdog has that pid, by the run folders."""
    try:
        names = [name for name in os.listdir(parent()) if _RUN_ID.fullmatch(name)]
    except OSError:
        return None
    for name in names:
        if read_json(os.path.join(parent(), name), "control.json").get("process", [0])[:1] == [pid]:
            return name
    return None


def remove(path: str) -> List[str]:
    """Remove the folder; returns what could not be removed (files of another user, made by a container)."""
    left: List[str] = []
    shutil.rmtree(path, onerror=lambda _function, name, _error: left.append(str(name)))
    return left if os.path.lexists(path) else []


NEWEST = 5  # that stay, whatever else is there
_DAY_S = 86400.0
OLD_S = 14 * _DAY_S
_YEARS_S = 3650 * _DAY_S  # older than that nothing is: it was written, or is looked at, by a clock that was not set
_BUDGET_S = 5.0  # for removing; the controller waits. What is left is the next run's


def sweep_old() -> Dict[str, Any]:
    """Remove what is old. `removed` and `kept` name the runs, newest first, `bytes` is what the kept ones take up. The
    caller holds the node's lock, so that no other run of this node is alive. A run of another network namespace with
    the same home may be: its watchdog is seen, or its files are not yet a day old. Raises nothing."""
    began, now = time.monotonic(), time.time()
    kept: List[str] = []
    removed: List[str] = []
    size = 0
    for path, touched in _newest_first(parent()):
        age = now - touched
        old = age < _YEARS_S and (age > OLD_S or (len(kept) >= NEWEST and age > _DAY_S))
        if old and time.monotonic() - began < _BUDGET_S and not watchdog_of(path) and not remove(path):
            removed.append(os.path.basename(path))
        else:
            kept.append(os.path.basename(path))
            paths = [os.path.join(base, name) for base, _, names in os.walk(path) for name in names]
            size += sum(about.st_blocks * 512 for about in map(_about, paths) if about)
    return {"kept": kept, "removed": removed, "bytes": size}


def _newest_first(parent: str) -> List[Tuple[str, float]]:
    """Return this user's run folders, each with the time of its last change."""
    found = []
    try:
        names = os.listdir(parent)
    except OSError:
        return []  # no run yet; a folder that cannot be used is found out by who makes one in it
    for name in names:
        path = os.path.join(parent, name)
        about = _about(path)
        if about and stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and _RUN_ID.fullmatch(name):
            inner = [_about(os.path.join(path, log)) for log in (LEADER_LOG, OWN)]
            found.append((path, max([about.st_mtime, *(entry.st_mtime for entry in inner if entry)])))
    return sorted(found, key=lambda entry: entry[1], reverse=True)


def _about(path: str) -> Any:
    try:
        return os.lstat(path)
    except OSError:
        return None


def watchdog_of(path: str) -> List[processes.Process]:
    """Return the watchdog of a run if it is alive, as far as it can be seen from here."""
    place = read_json(path, "control.json")
    return processes.named(place.get("process")) if place.get("boot_id") == processes.boot_id() else []
