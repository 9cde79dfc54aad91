"""The notes of a run as they come in, and whether anybody still writes them. What the file says is input: it is
bounded, cleaned, and a line that is no note is counted and left out.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from shakedown.common.text import load_json, sound
from shakedown.runs.watch.notes import LIMIT_BYTES, NAME, SILENT_S, Note

_LINE = 64 << 10  # bytes of one
_AT_ONCE = 1 << 20  # bytes of one reading
_MOST = 2 * LIMIT_BYTES  # bytes of a file that nobody of ours has written


class NotesReader:
    """`events.jsonl` of a run directory, read to its end and on. Raises OSError where it is not to be had, ValueError
    where it is no file."""

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._file.close()
            raise ValueError(f"{path}: it is not a file")
        self._rest = b""
        self._skipping = False
        self._read = 0
        self.unreadable = 0  # lines that are no note

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Note]:
        """Yield the notes that have come since the last time."""
        while self._read < _MOST and (chunk := self._file.read(_AT_ONCE)):
            self._read += len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                if self._skipping:
                    self._skipping = False
                elif (note := self._note(line)) is not None:
                    yield note
            if len(self._rest) > _LINE:
                self.unreadable += not self._skipping
                self._skipping, self._rest = True, b""

    def _note(self, line: bytes) -> Note | None:
        with contextlib.suppress(ValueError, ValidationError):
            return Note.model_validate(sound(load_json(line, _LINE)))
        self.unreadable += 1
        return None

    def writer_is_gone(self) -> bool:
        """Whether the controller that wrote the notes has ended: its lock went with it, however it ended. Where the
        file system knows no locks, it is gone when it has not touched the file for long."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return self.silent_s() > SILENT_S
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return True

    def silent_s(self) -> float:
        """Seconds since the last sign of life; 0 where the clock was set back."""
        return max(0.0, time.time() - os.fstat(self._file.fileno()).st_mtime)


def unfinished(folder: Path) -> str:
    """Return what there is to say of a run whose record has no end: that it goes on, or that its controller is gone."""
    try:
        reader = NotesReader(folder)
    except (OSError, ValueError):
        return "the run has no end: its controller ended before it did, or this copy is incomplete"
    try:
        if reader.writer_is_gone():
            return "the run has no end: its controller was killed, or the machine went down. What it had kept is here"
        return f"the run goes on, and this is what it has kept so far; to follow it: shakedown watch {folder.name}"
    finally:
        reader.close()
