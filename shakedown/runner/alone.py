"""One at work at a time on a host: a lock, which the commands that are run hold too, so that one that was orphaned is
not overtaken."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shakedown import private
from shakedown.runs_folder import runs_folder

LOCK = "service.lock"


class Busy(Exception):
    """Another process is at it."""


@contextmanager
def alone() -> Iterator[int]:
    """The lock, for as long as this process or a command of it lives. Raises Busy, OSError."""
    private.make_folders(runs_folder())
    path = runs_folder() / LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{path} is held: another `shakedown service`, or a command of one, is at work") from None
        yield fd
    finally:
        os.close(fd)
