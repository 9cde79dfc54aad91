"""What of a node's log was kept on the controller: how much there was, how much came, and the digest of that.

A verdict rests on logs, so whether a log is whole is evidence like the log itself. Nothing that a node sends can fill
the controller: `LOG_LIMIT` for one log, `BESIDE_LIMIT` for all that a node sends beside the job's own logs, `RUN_LIMIT`
for a run, of which no node can take more than it leaves to the others; what is beyond is not kept, as the record says.
"""

import hashlib
import re
import threading
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

from shakedown.common import private
from shakedown.common.frozen import Frozen
from shakedown.common.text import file_name

# Bytes. A training log has megabytes; RCCL's TRACE of eight ranks is what comes near to a gibibyte.
LOG_LIMIT = 1 << 30
RUN_LIMIT = 16 << 30
BESIDE_LIMIT = 128 << 20  # records of a hang, samples, the kernel's lines, the output of setup and cleanup

LEADER = "leader.log"
_OF_THE_RUN = re.compile(r"^(?:\{run_dir\}/)?(?:\./)*")


class KeptLog(Frozen):
    """One log of a node, as it was fetched. `incomplete` says why it is not whole; empty: it is."""

    name: str  # on the node, as the plan names it
    path: str  # on the controller; in a record relative to the run directory
    size: int | None  # bytes on the node, when it was last asked; None: it never said
    kept: int  # bytes on the controller
    sha256: str  # of these
    incomplete: str = ""


class LogQuota:
    """How many bytes of logs may still be kept for the jobs of a run, and who keeps the nodes' signatures on them."""

    def __init__(self, limit: int = RUN_LIMIT) -> None:
        self.signer: Any = None  # LogSigner (shakedown/runs/signing/nodes.py)
        self._left = limit
        self._taken = Counter[str]()
        self._lock = threading.Lock()

    def take(self, wanted: int, node: str) -> int:
        """How many of the wanted bytes there is room for; they are taken."""
        with self._lock:
            given = max(min(wanted, (self._left - self._taken[node]) // 2), 0)
            self._left -= given
            self._taken[node] += given
            return given


class LogFile:
    """A log on the controller while it comes in. A write that fails ends the keeping, and never the reading: what is
    wrong is in `why`."""

    def __init__(self, name: str, path: Path, quota: LogQuota, limit: int = LOG_LIMIT) -> None:
        """Make the file. Raises OSError."""
        self.name = name
        self.path = path
        self.why = ""  # the log is not whole
        self.size: int | None = None  # on the node
        self._kept = 0
        self._limit = limit
        self._quota = quota
        self._digest = hashlib.sha256()
        self._lock = threading.Lock()
        self._file = private.create(path)

    def write(self, data: bytes) -> None:
        """Keep what came, as far as the quota allows. Never raises."""
        with self._lock:
            if self._file.closed or self.why:
                return
            rest = memoryview(data)[: self._quota.take(min(len(data), self._limit - self._kept), self.path.parent.name)]
            if len(rest) < len(data):
                whose, limit = "a run", f"{RUN_LIMIT} bytes are kept, and of a node half of that"
                if len(rest) == self._limit - self._kept:
                    whose, limit = "such a log", f"{self._limit} bytes are kept"
                self.why = f"of {whose} no more than {limit}"
            try:
                while rest:
                    written = self._file.write(rest) or 0
                    self._digest.update(rest[:written])
                    self._kept += written
                    rest = rest[written:]
            except OSError as error:
                self.why = f"the controller could not write {self.path}: {error.strerror}"

    @property
    def kept(self) -> int:
        """Bytes on the controller."""
        return self._kept

    @property
    def sha256(self) -> str:
        """Digest of what was kept so far."""
        return self._digest.hexdigest()

    def close(self, why: str = "") -> KeptLog:
        """End the keeping: nothing is written any more. `why` it is not whole, where nothing was wrong before."""
        with self._lock:
            self.why = self.why or why
            if not self.why and self.size != self._kept:
                self.why = "the end was not fetched"
            self._file.close()
            return KeptLog(
                name=self.name,
                path=str(self.path),
                size=self.size,
                kept=self._kept,
                sha256=self.sha256,
                incomplete=self._incomplete(),
            )

    def _incomplete(self) -> str:
        if not self.why:
            return ""
        of = "an unknown number" if self.size is None else self.size
        return f"{self._kept} of {of} bytes of {self.name} were kept: {self.why}"


def names_on_controller(names: list[str]) -> dict[str, str]:
    """Return the file in the node's folder for each log of a node: named by the last part of its path, or by the whole
    path where two have the same."""
    taken = {LEADER.lower()}
    files = {}
    for name in dict.fromkeys(names):
        inside = _OF_THE_RUN.sub("", name)
        short = file_name(PurePosixPath(inside).name or "log")
        files[name] = short if short.lower() not in taken else file_name(f"{name}/")
        taken.add(files[name].lower())
    return files
