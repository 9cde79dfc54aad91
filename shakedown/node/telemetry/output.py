"""The file of samples: one JSON object on each line, whole lines only, never longer than its limit."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

LIMIT = 4 << 20  # bytes: 8 GPUs and 8 NICs fill it in about two hours at 2 s
_RESERVE = 64 << 10  # for the last lines, and for reports of counters and readings
_SAMPLE = b'{"t":'  # how a sample begins; other lines name their kind first


class Output:
    """Appends lines; at the limit every second sample goes and `thinned` grows by one: the caller then samples half as
    often. Counts and sums are written as they stand, not as differences, so that nothing is lost with a sample."""

    def __init__(self, path: str, limit: int = LIMIT) -> None:
        self.thinned = 0
        self.samples = 0
        self._path = path
        self._limit = limit
        self._size = 0
        self._file = self._open(path)

    def sample(self, document: Dict[str, Any]) -> None:
        """Append a sample: its first key is `t`. Raises OSError."""
        data = _line(document)
        if self._size + len(data) > self._limit - _RESERVE:
            self._thin()
        if self._size + len(data) <= self._limit - _RESERVE:
            self._append(data)
            self.samples += 1

    def tell(self, document: Dict[str, Any]) -> None:
        """Append anything else. Its first key is `kind`. Raises OSError."""
        data = _line(document)
        if self._size + len(data) <= self._limit:
            self._append(data)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, data: bytes) -> None:
        self._size += len(data)
        while data:
            data = data[os.write(self._file, data) :]

    def _thin(self) -> None:
        """Leave out every second sample but the first."""
        with open(self._path, "rb") as file:
            lines = file.readlines()
        kept, count = [], 0
        for line in lines:
            if line.startswith(_SAMPLE):
                count += 1
                if count % 2 == 0:
                    self.samples -= 1
                    continue
            kept.append(line)
        beside = self._path + ".partial"
        new = self._open(beside, os.O_TRUNC)
        os.close(self._file)
        self._file, self._size = new, 0
        self._append(b"".join(kept))
        os.replace(beside, self._path)
        self.thinned += 1

    @staticmethod
    def _open(path: str, more: int = 0) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags | more, 0o600)


def _line(document: Dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"
