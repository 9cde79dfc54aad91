"""One node's log, read once, with everything the gates need of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from shakedown.smoke.lines import LineSplitter
from shakedown.smoke.log import MAX_ITERATIONS, Iteration, LogReader, Summary
from shakedown.smoke.signatures import FailureScanner, Match, Scanner, load

CHUNK = 1 << 18  # bytes read at a time: a log may be larger than memory


class NodeLog(BaseModel):
    """What stands in one node's log. `damaged` holds the numbers of iterations whose line was cut or mixed, `beyond`
    says how many iteration lines there are after the first `MAX_ITERATIONS`, which alone are kept.

    `incomplete` says why the log is not the whole of what the job said; empty: nothing is known to be missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    lines: int = 0
    iterations: tuple[Iteration, ...] = ()
    beyond: int = 0
    damaged: tuple[int, ...] = ()
    summary: Summary = Summary()
    failure: Match | None = None
    rccl: tuple[Match, ...] = ()  # every RCCL signature, those for RDMA runs too
    incomplete: str = ""


def read_log(source: Path | Iterable[bytes | str]) -> NodeLog:
    """Reads a log, from a file or in chunks (or lines) of any size, in one pass. Raises OSError for a file that cannot
    be read."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            return read_log(iter(lambda: file.read(CHUNK), b""))
    splitter, reader = LineSplitter(), LogReader()
    failure, rccl = FailureScanner(), Scanner(load().rccl, rdma=True)
    iterations: list[Iteration] = []
    beyond = 0

    def take(lines: list[str]) -> None:
        nonlocal beyond
        for line in lines:
            found = reader.line(line)
            kept = found[: MAX_ITERATIONS - len(iterations)]
            iterations.extend(kept)
            beyond += len(found) - len(kept)
        failure.batch(lines)
        rccl.batch(lines)

    for chunk in source:
        take(splitter.feed(chunk))
    take(splitter.close())
    failure.close()
    return NodeLog(
        lines=reader.lines,
        iterations=tuple(iterations),
        beyond=beyond,
        damaged=tuple(reader.damaged),
        summary=reader.summary,
        failure=failure.first,
        rccl=tuple(rccl.matches),
    )
