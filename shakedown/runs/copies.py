"""The copies of logs in a run directory, held against what was fetched: whoever judges them again must notice one that
was cut, changed or lost since, and a record from elsewhere must lead nobody out of its directory."""

import hashlib
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TypeVar

from shakedown.evidence.results import Timing
from shakedown.evidence.telemetry import DEVICE_LOG, KERNEL_LOG, SAMPLES, samples
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.kernel import read as read_kernel
from shakedown.evidence.telemetry.samples import Series
from shakedown.evidence.telemetry.summary import Watched
from shakedown.gates import NodeLog, read_log
from shakedown.logs.kept_logs import KeptLog
from shakedown.logs.lines import LineSplitter

TEXT_LIMIT = 1 << 26  # bytes of a log that is held in memory as a whole: benchmarks print megabytes
REPORT_LIMIT = 1 << 25  # of the lines of a report in a log
_CHUNK = 1 << 18


def inside(folder: Path, name: str) -> Path:
    """Return a file of a run directory by its recorded path. Raises ValueError outside of it, and for no file."""
    parts = PurePosixPath(name).parts
    path = folder.joinpath(*parts)
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
        raise ValueError(f"{name}: it is not in the run directory")
    try:
        if path.resolve() != folder.resolve().joinpath(*parts):
            raise ValueError(f"{name}: a link leads out of its place")
        mode = path.lstat().st_mode
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name}: it is not a file")
    return path


class Fetched:
    """The bytes of a copy, held against what was fetched while they are read. Raises ValueError as `inside` does."""

    def __init__(self, folder: Path, kept: KeptLog) -> None:
        self._path = inside(folder, kept.path)
        self._kept = kept
        self._digest = hashlib.sha256()
        self._size = 0

    def chunks(self) -> Iterator[bytes]:
        """No more than one byte beyond what was fetched: then it is another file. Raises OSError."""
        with self._path.open("rb") as file:
            while self._size <= self._kept.kept:
                chunk = file.read(min(_CHUNK, self._kept.kept + 1 - self._size))
                if not chunk:
                    return
                self._digest.update(chunk)
                self._size += len(chunk)
                yield chunk

    def changed(self) -> str:
        """Return what differs, when all has been read; empty: nothing."""
        if self._size != self._kept.kept:
            size = "more" if self._size > self._kept.kept else self._size
            return f"{self._kept.path} was changed since: it has {size} bytes, {self._kept.kept} were fetched"
        if self._digest.hexdigest() != self._kept.sha256:
            return f"{self._kept.path} was changed since: its SHA-256 is not that of what was fetched"
        return ""


_Found = TypeVar("_Found")
_Read = TypeVar("_Read", Series, KernelWindow)


def _taken(folder: Path, kept: KeptLog, read: Callable[[Iterator[bytes]], _Found]) -> tuple[_Found | None, str]:
    """Read a copy. Return the result (None: unreadable), and why it is not as it was fetched; empty: it is."""
    try:
        fetched = Fetched(folder, kept)
        return read(fetched.chunks()), fetched.changed()
    except OSError as error:
        return None, f"{kept.path}: {error.strerror}"
    except ValueError as error:
        return None, str(error)


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def why_changed(folder: Path, kept: KeptLog) -> str:
    """Return why a copy is not as it was fetched; empty: it is."""
    return _taken(folder, kept, lambda chunks: deque(chunks, maxlen=0))[1]


def whole(folder: Path, kept: KeptLog, limit: int) -> bytes:
    """Return a copy as fetched. Raises ValueError where it is missing, changed, or above `limit` bytes."""
    if kept.kept > limit:
        raise ValueError(f"{kept.path}: {kept.kept} bytes, where at most {limit} are read")
    data, why = _taken(folder, kept, b"".join)
    if why or data is None:
        raise ValueError(why)
    return data


_known: ContextVar[dict[str, NodeLog] | None] = ContextVar("logs by the SHA-256 of what was read", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """Remember logs by their content: of an equal one the bytes are read and held against what was fetched, alone."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def read_kept(folder: Path, kept: KeptLog) -> NodeLog:
    """Return a log, with what it lacks: of what the node had, and of what was fetched."""
    known = _known.get()
    if known and (log := known.get(kept.sha256)) and not why_changed(folder, kept):
        why = ""
    else:
        log, why = _taken(folder, kept, read_log)
        if known is not None and log and not why:
            known[kept.sha256] = log
    if log is None:
        return NodeLog(incomplete=why)
    return log.model_copy(update={"incomplete": _joined(why, kept.incomplete, log.incomplete)})


def text_of(folder: Path, kept: KeptLog | None) -> tuple[str | None, str]:
    """Return a log as one text, and what it lacks. None: there is no such log."""
    if kept is None:
        return None, ""
    size = 0

    def read(chunks: Iterator[bytes]) -> bytes:
        nonlocal size
        parts = []
        for chunk in chunks:
            parts.append(chunk[: max(TEXT_LIMIT - size, 0)])
            size += len(chunk)
        return b"".join(parts)

    data, why = _taken(folder, kept, read)
    beyond = f"only the first {TEXT_LIMIT} bytes of {kept.path} were read" if size > TEXT_LIMIT else ""
    return (None, why) if data is None else (data.decode("utf-8", "replace"), _joined(why, kept.incomplete, beyond))


def report_of(folder: Path, kept: KeptLog | None, marks: Sequence[str]) -> tuple[str | None, str]:
    """Return the lines of a log that begin with a mark, as one text, and what it lacks. None: there is no such log. A
    node may print a gibibyte besides, in each job of a burn-in: none of that is held in memory."""
    if kept is None:
        return None, ""
    marked = re.compile(b"(?:%s)[^\r\n]*" % b"|".join(re.escape(mark.encode()) for mark in marks))
    splitter, limit, more = LineSplitter(), REPORT_LIMIT, 0

    def read(chunks: Iterator[bytes]) -> bytes:
        nonlocal more
        lines = bytearray()
        for block in chain(map(splitter.block, chunks), iter(splitter.rest, b"")):
            for found in marked.finditer(block):
                if found.start() == 0 or block[found.start() - 1] in b"\r\n":
                    fits = len(lines) + len(found[0]) < limit
                    lines += found[0] + b"\n" if fits else b""
                    more += not fits
        return bytes(lines)

    data, why = _taken(folder, kept, read)
    beyond = f"of the report in {kept.path} only {limit} bytes were read" if more else ""
    return (None, why) if data is None else (data.decode("utf-8", "replace"), _joined(why, kept.incomplete, beyond))


def changed(folder: Path, logs: Mapping[str, Sequence[KeptLog]]) -> list[str]:
    """Return what of the logs behind each node's first is not as it was fetched, each as a sentence."""
    reasons = [(node, why_changed(folder, kept)) for node, every in logs.items() for kept in every[1:]]
    return [f"{node}: {why}" for node, why in reasons if why]


def watched(folder: Path, logs: Mapping[str, Sequence[KeptLog]], timing: Timing) -> Watched:
    """Return what the nodes' samplers have written, with what it lacks."""
    series: dict[str, Series | None] = {}
    windows: dict[str, dict[str, KernelWindow | None]] = {KERNEL_LOG: {}, DEVICE_LOG: {}}
    for node, every in logs.items():
        for kept in every:
            if kept.name == SAMPLES:
                series[node] = _read_whole(folder, kept, samples.read, Series())
            elif kept.name in windows:
                windows[kept.name][node] = _read_whole(folder, kept, read_kernel, KernelWindow())
    return Watched(timing, series, windows[KERNEL_LOG], windows[DEVICE_LOG])


def _read_whole(folder: Path, kept: KeptLog, read: Callable[[Iterator[bytes]], _Read], nothing: _Read) -> _Read:
    found, why = _taken(folder, kept, read)
    lacks = kept.incomplete if found else ""
    found = found or nothing
    found.incomplete = _joined(why, lacks, found.incomplete)
    return found
