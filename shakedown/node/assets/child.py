"""Travels with scripts that run a container engine for long: its output line by line, and its end."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from typing import IO, Any, Callable, Iterator, List

from shakedown.node.assets.words import clean

LINE = 8192  # bytes of a line


class Output:
    """A program's output: how many lines came, the last three, and its exit code in the end."""

    def __init__(self) -> None:
        self.count = self.code = 0
        self.last: List[str] = []

    def collect(self, stream: IO[bytes]) -> None:
        for line in iter(lambda: stream.readline(LINE), b""):
            self.take(line.decode("utf-8", "replace"))

    def take(self, line: str) -> None:
        self.count += 1
        text = clean(line, 1000)
        self.last = [*self.last[-2:], text] if text else self.last


@contextmanager
def running(argv: List[str], output: Output, **options: Any) -> Iterator[Callable[[], bool]]:
    """Start a program and give its lines to `output`. Yield what waits a moment and says whether it still runs. Kill
    one that runs when the block ends."""
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    reader = threading.Thread(target=output.collect, args=(child.stdout,), daemon=True)
    reader.start()

    def runs() -> bool:
        reader.join(0.2)  # until the program ends, or a moment
        return child.poll() is None

    try:
        yield runs
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
    reader.join(5)
    output.code = child.returncode
