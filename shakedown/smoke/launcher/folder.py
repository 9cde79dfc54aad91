"""The run folder: `~/.cache/shakedown/runs/<run id>`, for its owner alone."""

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
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
OWN = ".launcher"  # what belongs to the launcher and not to the job: status, job description, its own sources
LEADER_LOG = "leader.log"


class Unusable(Exception):
    """The folder cannot be made or used; the text says why and what to do."""


def path_of(run_id: str) -> str:
    """The folder of a run of this user."""
    if not is_run_id(run_id):
        raise Unusable("not a run id: %r" % run_id)
    return os.path.join(parent(), run_id)


def is_run_id(name: str) -> bool:
    """Whether a run folder may have that name."""
    return _RUN_ID.fullmatch(name) is not None


def parent() -> str:
    """What holds the run folders of this user."""
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return os.path.join(home, ".cache", "shakedown", "runs")


def create(run_id: str, files: Dict[str, str], folders: List[str]) -> str:
    """Make the folder with its files (path inside it -> base64 of the zlib-compressed content) and empty folders.

    Raises Unusable when it is there already, or cannot be made or filled; nothing is left behind then.
    """
    path = path_of(run_id)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
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
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise Unusable("cannot fill the run folder %s: %s" % (path, error.strerror)) from None
    except Unusable:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return path


def inside(path: str, name: str) -> str:
    """`name` below `path`; Unusable where it would lead out of it."""
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
    """Write one of the launcher's own documents."""
    write(os.path.join(path, OWN, name), json.dumps(document, indent=1, sort_keys=True).encode())


def read_json(path: str, name: str) -> Dict[str, Any]:
    """Read one of the launcher's own documents; empty when it is not there or cut."""
    try:
        with open(os.path.join(path, OWN, name), "rb") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def chunk(name: str, offset: int, limit: int) -> Tuple[bytes, int, int]:
    """Up to `limit` bytes of a file from `offset`, the offset behind them, and the file's size.

    Raises OSError, also where `name` is no regular file (reading a FIFO would hang).
    """
    with _regular(name) as file:
        file.seek(offset)
        data = file.read(limit)
        size = os.fstat(file.fileno()).st_size
    return data, offset + len(data), max(size, offset + len(data))


def digest(name: str, length: int, seconds: float) -> Tuple[Optional[str], int]:
    """SHA-256 of the first `length` bytes of a file (None where that takes longer), and the file's size. The same
    errors as `chunk`."""
    until, found = time.monotonic() + seconds, hashlib.sha256()
    with _regular(name) as file:
        while length > 0:
            data = file.read(min(length, 1 << 20))
            if not data:
                break
            found.update(data)
            length -= len(data)
            if time.monotonic() > until:
                return None, os.fstat(file.fileno()).st_size
        return found.hexdigest(), os.fstat(file.fileno()).st_size


def _regular(name: str) -> BinaryIO:
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return os.fdopen(descriptor, "rb")


def remove(path: str) -> List[str]:
    """Remove the folder; returns what could not be removed (files of another user, made by a container)."""
    left: List[str] = []
    shutil.rmtree(path, onerror=lambda _function, name, _error: left.append(str(name)))
    return left if os.path.lexists(path) else []
