"""The run folder: `~/.cache/shakedown/runs/<run id>`, for its owner alone. Of folders that a controller left behind the
newest few stay; any other goes once nothing in it has changed for a day, and each after two weeks. Only this user's
own are touched, never one whose watchdog lives."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import time
import zlib
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

from ..safe_files import FOLDER, Folder, Unsafe, sound, walk
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
    if not home or (os.geteuid() == 0 and refusal(home)):
        home = pwd.getpwuid(os.geteuid()).pw_dir
    return os.path.join(home, ".cache", "shakedown", "runs")


def refusal(path: str) -> str:
    """Return why no file of this user goes into a folder, which another user could exchange; empty: it may go there."""
    try:
        sound(path, or_sticky=True)
    except (Unsafe, OSError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _make_parent() -> None:
    """Make `parent` where it is missing. Files in there are executed, so no other user may write there."""
    path = parent()
    (sound if os.geteuid() == 0 else walk)(path, 0o700)
    for place in (os.path.dirname(path), path):
        about = os.stat(place)
        if about.st_uid != os.geteuid():
            raise Unusable("%s belongs to uid %d: move it away" % (place, about.st_uid))
        if about.st_mode & 0o022:
            os.chmod(place, stat.S_IMODE(about.st_mode) & ~0o022)


def create(run_id: str, files: Dict[str, str], folders: List[str]) -> str:
    """Make the folder with its files (path inside it -> base64 of the zlib-compressed content) and empty folders.
    Raises Unusable when it is there already, or cannot be made or filled; nothing is left behind then."""
    path = path_of(run_id)
    try:
        _make_parent()
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


def below(path: str, name: str) -> Folder:
    """Open a folder below a run folder, following no link: the job may have laid one. Raises OSError."""
    here = Folder(os.open(path, FOLDER), path, "")
    try:
        for part in filter(None, name.split(os.sep)):
            here = here.down(part)
    except NotADirectoryError:
        raise PermissionError("a link is in the path, and links are not followed") from None
    return here


def open_below(path: str, name: str, flags: int) -> int:
    """Open a file below a run folder in the same way. Raises OSError, also for what is no regular file: reading a FIFO
    would hang."""
    try:
        above, last = os.path.split(os.path.relpath(inside(path, name), path))
        return below(path, above).open(last, flags)
    except (Unusable, Unsafe) as error:
        raise PermissionError(str(error)) from None


def open_log(path: str, name: str) -> int:
    """Open a log of the run folder, to append to it. Raises OSError where it is anything else than a file of its own:
    a job that writes in the folder may have put something there."""
    descriptor = open_below(path, name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise PermissionError("%s has a second name" % name)
    return descriptor


def chunk(path: str, name: str, offset: int, limit: int) -> Tuple[bytes, int, int]:
    """Return up to `limit` bytes of a file below the run folder `path` from `offset`, the offset behind them, and the
    file's size. Raises OSError."""
    with os.fdopen(open_below(path, name, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        data = file.read(limit)
        size = os.fstat(file.fileno()).st_size
    return data, offset + len(data), max(size, offset + len(data))


def digest(path: str, name: str, length: int, seconds: float) -> Tuple[Optional[str], int]:
    """Return SHA-256 of a file's first `length` bytes (None: that takes longer), and its size. Raises as `chunk`."""
    until, found = time.monotonic() + seconds, hashlib.sha256()
    with os.fdopen(open_below(path, name, os.O_RDONLY), "rb") as file:
        while length > 0:
            data = file.read(min(length, 1 << 20))
            if not data:
                break
            found.update(data)
            length -= len(data)
            if time.monotonic() > until:
                return None, os.fstat(file.fileno()).st_size
        return found.hexdigest(), os.fstat(file.fileno()).st_size


def run_of_watchdog(pid: int) -> Optional[str]:
    """Return this user's run whose watchdog has that pid, by the run folders."""
    with suppress(OSError):
        for name in filter(_RUN_ID.fullmatch, os.listdir(parent())):
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
    for path, touched in _newest_first():
        age = now - touched
        old = age < _YEARS_S and (age > OLD_S or (len(kept) >= NEWEST and age > _DAY_S))
        if old and time.monotonic() - began < _BUDGET_S and not watchdog_of(path) and not remove(path):
            removed.append(os.path.basename(path))
        else:
            kept.append(os.path.basename(path))
            for base, _, names in os.walk(path):
                with suppress(OSError):
                    size += sum(os.lstat(os.path.join(base, name)).st_blocks * 512 for name in names)
    return {"kept": kept, "removed": removed, "bytes": size}


def _newest_first() -> List[Tuple[str, float]]:
    """Return this user's run folders, each with the time of its last change. None where there is no run yet; a folder
    that cannot be used is found out by who makes one in it."""
    found = []
    with suppress(OSError):
        for path in [os.path.join(parent(), name) for name in filter(_RUN_ID.fullmatch, os.listdir(parent()))]:
            with suppress(OSError):  # another visit removes it
                about, inner = os.lstat(path), (os.path.join(path, name) for name in (LEADER_LOG, OWN))
                if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                    times = (os.lstat(file).st_mtime for file in inner if os.path.lexists(file))
                    found.append((path, max([about.st_mtime, *times])))
    return sorted(found, key=lambda entry: entry[1], reverse=True)


def watchdog_of(path: str) -> List[processes.Process]:
    """Return the watchdog of a run if it is alive, as far as it can be seen from here."""
    place = read_json(path, "control.json")
    return processes.named(place.get("process")) if place.get("boot_id") == processes.boot_id() else []
