"""A whole log at once, where the product reads one as it grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shakedown.catalogue import entries
from shakedown.logs.iterations import Iteration, LogReader
from shakedown.logs.signatures import FailureScanner, Match, Scanner


def parse(lines: Iterable[str | bytes]) -> Iterator[Iteration]:
    reader = LogReader()
    for line in lines:
        yield from reader.line(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)


def parse_line(line: str) -> Iteration | None:
    """Return the iteration line in `line` (the first one where two ranks' output is glued), or None."""
    return next(iter(LogReader().line(line)), None)


def first_failure(lines: Iterable[str]) -> Match | None:
    """Return the first line of a training log that means failure, or None. Read no further than necessary."""
    scanner = FailureScanner()
    return next((match for match in map(scanner.line, lines) if match), None) or scanner.close()


def rccl(lines: Iterable[str], rdma: bool = False) -> list[Match]:
    """Return RCCL's lines that show that a tuning did not take. `rdma`: the job was to use RDMA between nodes."""
    scanner = Scanner(entries("rccl"), rdma)
    for line in lines:
        scanner.line(line)
    return scanner.matches
