"""One at work at a time in a folder of runs: a lock, which the commands that are run hold too, so that a command that
was orphaned is not overtaken. Between folders and machines the claims of the ledger decide (ledger/claims.py)."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shakedown.common import private
from shakedown.common.runs_folder import runs_folder

LOCK = "service.lock"


class Busy(Exception):
    """Another process holds the lock."""


@contextmanager
def alone() -> Iterator[tuple[int, Path]]:
    """Hold the lock, for as long as this process or a command of it lives. Yields its descriptor and its path. Raises
    Busy, OSError."""
    private.make_folders(runs_folder())
    path = runs_folder() / LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{path} is held: another `shakedown service`, or a command of one, is at work") from None
        yield fd, path.absolute()
    finally:
        os.close(fd)
