"""Channels, and small files of the kernel that are read again and again."""

from __future__ import annotations

import os

from ..tree import Unreadable, explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..tree import Tree

    Reading = Callable[[], Any]
    Values = Dict[str, Any]


class Files:
    """Files that stay open: reading one again is one system call in place of three."""

    MOST = 400  # open at once: a user's usual limit is 1024

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._open: Dict[str, int] = {}

    def text(self, path: str) -> str:
        """The content of a small file. Raises OSError; the next reading opens it anew then."""
        handle = self._open.get(path)
        if handle is None:
            if len(self._open) >= self.MOST:
                return self.tree.text(path)
            try:
                handle = os.open(self.tree.path(path), os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                error.filename = path
                raise
            self._open[path] = handle
        try:
            return os.pread(handle, 8192, 0).decode("ascii", "replace")
        except OSError as error:
            os.close(self._open.pop(path))
            error.filename = path
            raise

    def number(self, path: str) -> int:
        """The number in a file."""
        return int(self.text(path), 0)


class Source:
    """Some channels that are read together: `names` are fixed when the sampler begins, `read` gives the values that
    could be had, and leaves an Unreadable in place of one that could not. `every`: only each so-many-th sample."""

    every = 1

    def __init__(self) -> None:
        self.names: List[str] = []

    def read(self) -> Values:
        raise NotImplementedError


class Each(Source):
    """A source whose channels have a reading each."""

    def __init__(self, readings: List[Tuple[str, Reading]], every: int = 1) -> None:
        super().__init__()
        self.every = every
        self._readings = readings
        self.names = [name for name, _ in readings]

    def read(self) -> Values:
        return {name: attempted(reading) for name, reading in self._readings}


def attempted(reading: Reading) -> Any:
    """The value, or the Unreadable that says why there is none."""
    try:
        return reading()
    except Exception as error:  # whatever a broken node makes a reading raise costs that reading only
        return explain(error)


def rounded(value: Any) -> Any:
    """A value as it is written: whole numbers as they are, others to the thousandth. None: none, or not finite."""
    if isinstance(value, float):
        return round(value, 3) if abs(value) < 1e300 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def first(paths: List[str], files: Files) -> Optional[str]:
    """The first of the files that can be read."""
    for path in paths:
        try:
            files.text(path)
            return path
        except OSError:
            continue
    return None


def missing(detail: str) -> Any:
    """A reading that says that something is not there."""

    def reading() -> Any:
        raise Unreadable("missing", detail)

    return reading
