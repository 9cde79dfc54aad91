"""One node's log, read once, with everything the gates need of it."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from shakedown.catalogue import entries
from shakedown.common.frozen import Frozen
from shakedown.evidence.stragglers import model
from shakedown.evidence.stragglers.model import Measured, WindowReader
from shakedown.logs import form as log_form
from shakedown.logs import iterations as iteration_lines
from shakedown.logs import job_shape, signatures
from shakedown.logs.end import EndReader, LogEnd
from shakedown.logs.form import FormReader
from shakedown.logs.iterations import MAX_ITERATIONS, Iteration, LogReader, Summary
from shakedown.logs.job_shape import JobShape, JobShapeReader
from shakedown.logs.lines import LineSplitter, Marks, as_text
from shakedown.logs.mad import Results
from shakedown.logs.mlperf import MARK as MLPERF
from shakedown.logs.mlperf import MlperfReader, MlperfRun
from shakedown.logs.signatures import FailureScanner, Match, Scanner
from shakedown.logs.source import LogSource

# "node1:811:811 [0] NCCL INFO ...", and the version, which is all that NCCL_DEBUG=WARN shows where nothing is wrong.
_RCCL = re.compile(
    rb"\[\d{1,4}\] NCCL (?:INFO|WARN|TRACE|ERROR|CALL|VERSION)\b|(?:^|[\s\]:])[RN]CCL version ?: ?\S|"
    rb"(?:^|[\s\]:])[RN]CCL version \d",
    re.MULTILINE,
)
_HOLE = b"\0" * 16  # shorter ones are printed by programs that mean no harm


class NodeLog(Frozen):
    """What stands in one node's log. `damaged` holds the numbers of iterations whose line was cut or mixed, `beyond`
    says how many iteration lines there are, at least, after the first `MAX_ITERATIONS`, which alone are kept.

    `incomplete` says why the log is not the whole of what the job said; empty: nothing is known to be missing.
    """

    lines: int = 0
    iterations: tuple[Iteration, ...] = ()
    beyond: int = 0
    damaged: tuple[int, ...] = ()
    stamps: tuple[tuple[int, float], ...] = ()  # iteration, and the time that its line has, in seconds
    summary: Summary = Summary()
    failure: Match | None = None  # that explains the others best
    failures: tuple[Match, ...] = ()  # every failure signature where it first stood, in their order
    optional: frozenset[str] = frozenset()  # kinds of them that a program which trains nevertheless has handled
    harmless: tuple[str, ...] = ()  # tracebacks that are no failure, each kind where it first stood
    rccl: tuple[Match, ...] = ()  # every RCCL signature, those for RDMA runs too
    shape: JobShape = JobShape()  # what it says of the job
    measured: Measured = Measured()  # what ranks say of their own time
    form: str = ""  # the program whose log it is; empty: none that is known
    mlperf: MlperfRun | None = None  # what MLPerf's own lines say
    rccl_speaks: bool = False  # whether any line is RCCL's own
    end: LogEnd = LogEnd()  # what stands behind the last iteration
    reported: Results | None = None  # what the program's own report says besides, where its parser reads one
    incomplete: str = ""


def read_log(source: Path | Iterable[bytes | str]) -> NodeLog:
    """Read a log, from a file or in chunks (or lines) of any size, in one pass. Raises OSError for a file that cannot
    be read, NotALog (a ValueError) for one that is no text."""
    if isinstance(source, Path):
        source = LogSource(source)
    splitter, reader = LineSplitter(), LogReader()
    failure, rccl, shape = FailureScanner(), Scanner(entries("rccl"), rdma=True), JobShapeReader()
    form, mlperf = FormReader(), MlperfReader()
    windows, ending = WindowReader(), EndReader()
    hole, speaks = "", False
    iterations: list[Iteration] = []
    beyond = 0

    def take(block: bytes) -> None:
        nonlocal beyond, speaks
        at, behind = 0, None
        for start, end in _marks().spans(block):
            failure.skip(block, at, start)
            line, at = as_text(block[start:end]), end
            if beyond < MAX_ITERATIONS:  # so many, and reading more would only take time
                found = reader.line(line)
                if found:
                    behind = end
                    failure.went_on()
                kept = found[: MAX_ITERATIONS - len(iterations)]
                iterations.extend(kept)
                beyond += len(found) - len(kept)
            rccl.lines = failure.lines
            failure.line(line)
            rccl.line(line)
            shape.line(line)
            windows.line(line)
            form.line(line)
            if MLPERF in line and mlperf.line(line):
                behind = end
                failure.went_on()
        failure.skip(block, at, len(block))
        shape.hosts(block)
        ending.take(block, behind)
        speaks = speaks or (b"CCL " in block and _RCCL.search(block) is not None)

    tail = b""
    for chunk in source:
        if isinstance(chunk, bytes):
            if _HOLE in tail + chunk[: len(_HOLE)] or (b"\0" in chunk and _HOLE in chunk):
                hole = "the log has a stretch of NUL bytes: a part was lost in a crash, or cut out"
            tail = chunk[-len(_HOLE) :]
        take(splitter.block(chunk))
    take(splitter.rest())
    failure.close()
    return NodeLog(
        lines=failure.lines,
        iterations=tuple(iterations),
        beyond=beyond,
        damaged=tuple(reader.damaged),
        stamps=tuple(reader.stamps),
        summary=reader.summary,
        failure=failure.root,
        failures=tuple(failure.matches),
        optional=frozenset(failure.optional) & {match.name for match in failure.matches},
        harmless=tuple(failure.harmless),
        rccl=tuple(rccl.matches),
        shape=shape.shape(),
        measured=windows.measured(),
        form=form.form(),
        mlperf=mlperf.run(),
        rccl_speaks=speaks,
        end=ending.end(),
        incomplete="; ".join(filter(None, (hole, source.incomplete if isinstance(source, LogSource) else ""))),
    )


@cache
def _marks() -> Marks:
    """Return the marks of all readers: outside an open traceback a line without a mark says nothing to them."""
    return Marks([*iteration_lines.MARKS, *signatures.marks(), *job_shape.MARKS, *model.MARKS, *log_form.marks()])


def line_count(logs: Mapping[str, NodeLog | None]) -> int:
    """Count the lines of all logs."""
    return sum(log.lines for log in logs.values() if log)


def logs_of(logs: Mapping[str, NodeLog | None], unlogged: int) -> str:
    """Describe of how many nodes there is a log, where `unlogged` more are in none: "1 of 2 nodes' logs"."""
    return f"{sum(log is not None for log in logs.values())} of {len(logs) + unlogged} nodes' logs"
