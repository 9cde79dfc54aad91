"""What one job is judged by, read once, in groups; a group of None was not observed, and its gates are skipped."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, FiniteFloat

from shakedown.catalogue import entries
from shakedown.common.frozen import Frozen
from shakedown.evidence.stragglers import model
from shakedown.evidence.stragglers.model import Measured, Stragglers, WindowReader
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.gates.baselines.model import Past, Value
from shakedown.gates.steadiness import Paces
from shakedown.logs import form as log_form
from shakedown.logs import iterations as iteration_lines
from shakedown.logs import job_shape, signatures
from shakedown.logs.end import EndReader, LogEnd
from shakedown.logs.figures import Figures
from shakedown.logs.form import FormReader
from shakedown.logs.iterations import MAX_ITERATIONS, Iteration, LogReader, Summary
from shakedown.logs.job_shape import JobShape, JobShapeReader
from shakedown.logs.lines import LineSplitter, Marks, Unpacker, as_text
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
_RCCL_NETWORK = re.compile(
    rb"NCCL INFO [^\n]{0,200}?(?:(?:Using network|(?:Initialized|Assigned) NET plugin) (?!Socket)\S|"
    rb"via NET/(?!Socket)|NET/(?!Socket)\w+ ?: Using \[\d)"
)
_VALIDATION = "validation loss at "
_NO_NUMBER = re.compile(r": *[-+]?[nNiI][aAnN][nNfF]")
# Figures of a line that gates of their own read are left out, and rates, times and the best so far, which may be
# infinite before anything was measured.
_FIGURE = re.compile(
    r"\|\s*+(?!(?:(?:lm[ _-]?|reduced_train_)?loss|grad[ _]norm)\s*:|"
    r"[^|:]{0,60}(?:\bper (?!token|sample|step)|GPU|mem(?:ory)?\b|/s(?:ec)?\b|"
    r"\b(?:second|speed|throughput|t?flops|mfu|eta|elapsed|time|left|remaining|best)\b))"
    r"([a-z][^|:]{0,40}?)\s*:\s*([-+]?(?:nan|inf(?:inity)?))\s*(?=\||$)",
    re.IGNORECASE,
)
_MOST_FIGURES = 8  # that are named
_HOLE = b"\0" * 16  # shorter ones are printed by programs that mean no harm


class NodeLog(Frozen):
    """A node's log. `damaged`: numbers of cut or mixed iterations; `beyond`: at least so many after `MAX_ITERATIONS`;
    `incomplete`: why it is not the whole; empty: it may be."""

    lines: int = 0
    iterations: tuple[Iteration, ...] = ()
    beyond: int = 0
    damaged: tuple[int, ...] = ()
    no_numbers: tuple[str, ...] = ()  # figures beside the loss that are NaN or infinite, each where it first was
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
    hosts: frozenset[str] = frozenset()  # before its lines, as pdsh puts them there
    rccl_speaks: bool = False  # whether any line is RCCL's own
    rccl_network: bool = False  # whether one of them shows a network that is no socket
    end: LogEnd = LogEnd()  # what stands behind the last iteration
    reported: Results | None = None  # what the program's own report says besides, where its parser reads one
    incomplete: str = ""

    def unhandled(self, trains: bool) -> tuple[Match, ...]:
        """Return the failures; where the run trains, not those that a log without iterations has handled."""
        handled = trains and not self.iterations
        return tuple(match for match in self.failures if not (handled and match.name in self.optional))


def read_log(source: Path | Iterable[bytes | str]) -> NodeLog:
    """Read a log once, from a file or chunks. Raises OSError, or NotALog (a ValueError) for what is no text."""
    source, reading = LogSource(source) if isinstance(source, Path) else source, LogReading()
    for chunk in source:
        reading.take(chunk)
    return reading.close(source.incomplete if isinstance(source, LogSource) else "")


class LogReading:
    """Reads a log while its chunks come."""

    def __init__(self) -> None:
        self._splitter, self._unpacker, self._reader = LineSplitter(), Unpacker(), LogReader()
        self._failure, self._rccl = FailureScanner(), Scanner(entries("rccl"), rdma=True)
        self._shape, self._form, self._mlperf = JobShapeReader(), FormReader(), MlperfReader()
        self._windows, self._ending = WindowReader(), EndReader()
        self._others: tuple[Callable[[str], object], ...] = (
            *(self._rccl.line, self._shape.line, self._windows.line, self._of_form),
        )
        self._tail, self._hole, self._speaks, self._network = b"", "", False, False
        self._iterations: list[Iteration] = []
        self._no_numbers: dict[str, str] = {}
        self._beyond = 0

    def take(self, chunk: bytes | str) -> None:
        """Read a chunk of any size."""
        if isinstance(chunk, bytes):
            if _HOLE in self._tail + chunk[: len(_HOLE)] or (b"\0" in chunk and _HOLE in chunk):
                self._hole = "the log has a stretch of NUL bytes: a part was lost in a crash, or cut out"
            self._tail = chunk[-len(_HOLE) :]
        self._take(self._unpacker.take(self._splitter.block(chunk)))

    def _take(self, block: bytes) -> None:
        at, behind, failure = 0, None, self._failure
        failure.hosts.block(block)
        for start, end, held in _marks().spans(block):
            failure.skip(block, at, start)
            line, at = as_text(block[start:end]), end
            if held & _ITERATIONS and self._beyond < MAX_ITERATIONS:  # so many, and reading more would only take time
                found = self._reader.line(line)
                if found:
                    behind = block.rfind(b"|", start, end) + 1 or end  # what another process wrote there ends the line
                    failure.went_on()
                    failure.hosts.iteration(line)
                if (found or _VALIDATION in line) and _NO_NUMBER.search(line):
                    self._no_number(line, found)
                last = self._iterations[-1] if self._iterations else None  # two handlers may print one line
                found = [it for it in found if not last or it.iteration != last.iteration or it.json() != last.json()]
                kept = found[: MAX_ITERATIONS - len(self._iterations)]
                self._iterations.extend(kept)
                self._beyond += len(found) - len(kept)
            self._rccl.lines = failure.lines
            if held & _FAILURES or failure.open:
                failure.line(line, held >> 1 & 3)
            else:
                failure.lines += 1
            for place, read in enumerate(self._others):
                if held & _OTHERS << place:
                    read(line)
            if MLPERF in line and self._mlperf.line(line):
                behind = end
                failure.went_on(self._mlperf.through)
        failure.skip(block, at, len(block))
        self._shape.hosts(block)
        self._ending.take(block, behind)
        if not self._network and b"CCL " in block:
            self._speaks = self._speaks or _RCCL.search(block) is not None
            self._network = _RCCL_NETWORK.search(block) is not None

    def _no_number(self, line: str, found: Sequence[Iteration]) -> None:
        """Note figures that are no numbers, but for those of skipped iterations."""
        at = f"at iteration {found[-1].iteration}" if found else "in an evaluation"
        for name, value in () if found and found[-1].skipped_iterations else _FIGURE.findall(line):
            if len(self._no_numbers) < _MOST_FIGURES:
                self._no_numbers.setdefault(f"{name} {bool(found)}", f"{name} is {value} {at}")

    def _of_form(self, line: str) -> None:
        if self._form.line(line):
            self._failure.went_on()

    def close(self, incomplete: str = "") -> NodeLog:
        """Return what was read. `incomplete`: why the source is not the whole log."""
        self._take(self._unpacker.take(self._splitter.rest()) + self._unpacker.rest())
        failure, reader = self._failure, self._reader
        failure.close()
        return NodeLog(
            lines=failure.lines,
            iterations=tuple(self._iterations),
            beyond=self._beyond,
            damaged=tuple(reader.damaged),
            no_numbers=tuple(self._no_numbers.values()),
            stamps=tuple(reader.stamps),
            summary=reader.summary,
            failure=failure.root,
            failures=tuple(failure.matches),
            optional=frozenset(failure.optional) & {match.name for match in failure.matches},
            harmless=tuple(failure.harmless),
            rccl=tuple(self._rccl.matches),
            shape=self._shape.shape(),
            measured=self._windows.measured(),
            form=self._form.form(),
            mlperf=self._mlperf.run(),
            hosts=failure.hosts.names(),
            rccl_speaks=self._speaks,
            rccl_network=self._network,
            end=self._ending.end(failure.hosts),
            incomplete="; ".join(filter(None, (self._hole, failure.incomplete, incomplete))),
        )


_ITERATIONS, _FAILURES, _OTHERS = 1, 2 | 4, 8  # groups of `_marks`


@cache
def _marks() -> Marks:
    """Return the marks of the readers: outside an open traceback a line without its marks says nothing to a reader."""
    iterations = (*iteration_lines.MARKS, _VALIDATION)
    return Marks(iterations, *signatures.marks(), job_shape.MARKS, model.MARKS, log_form.marks())


def line_count(logs: Mapping[str, NodeLog | None]) -> int:
    """Count the lines of all logs."""
    return sum(log.lines for log in logs.values() if log)


def logs_of(logs: Mapping[str, NodeLog | None], unlogged: int) -> str:
    """Describe of how many nodes there is a log, where `unlogged` more are in none: "1 of 2 nodes' logs"."""
    return f"{sum(log is not None for log in logs.values())} of {len(logs) + unlogged} nodes' logs"


class OneAlone(Frozen):
    """A node alone, in which runs: metric -> figure per GPU (of several runs their median), and its ranks."""

    runs: list[str]
    ranks: int = Field(gt=0, le=10**6)
    figures: dict[str, Value]


class Alone(Frozen):
    """What each node did alone; missing: nothing, or not known. `share`: wanted part of the sum, 0 to 1."""

    share: FiniteFloat = Field(gt=0)
    nodes: dict[str, OneAlone | None]


RESUME_RTOL = 0.05  # of the saved loss: CVS's loss_rtol (ROCm/cvs, megatron.rst at 01b906e8)
LogsByNode = Mapping[str, NodeLog | None]  # None: the node's log could not be had


@dataclass(frozen=True)
class JobEnd:
    """How a job ended on its nodes."""

    exit_codes: Mapping[str, int | None] | None = None  # of ranks or nodes; a code of None is not known
    participants: Collection[str] = ()
    stopped: str | None = None  # the reason, where the job was stopped before its end or never started
    started: bool = True
    stopped_nodes: Collection[str] = ()  # nodes that the controller stopped with the job
    left: Mapping[str, Collection[str]] | None = None  # node -> what of the job is left there, or may be


@dataclass(frozen=True)
class LogCopies:
    """The logs of a job that must be complete. `faults`: what is wrong with copies of the job's other files."""

    by_node: LogsByNode
    faults: Sequence[str] = ()
    unlogged: int = 0  # nodes of the job that are in none of the logs


@dataclass(frozen=True)
class Logs:
    """The logs of a job, and what decides the meaning of their lines."""

    by_node: LogsByNode
    unlogged: int = 0  # nodes of the job that are in none of the logs
    rdma: bool = False  # the job was to use RDMA between its nodes
    nccl_debug: str | None = None  # NCCL_DEBUG of the run, where it is known


@dataclass(frozen=True)
class Training:
    """The iteration lines of a run."""

    iterations: Sequence[Iteration]
    damaged: Collection[int] = ()  # iterations whose line was cut or mixed
    wanted: int | None = None  # how many iterations there should be; None: as the lines say
    shape: JobShape = field(default_factory=JobShape)
    resume_at: int | None = None  # iteration whose checkpoint the run was to read back; None: as the log says
    resume_rtol: float = RESUME_RTOL
    printed: JobShape | None = None  # by the node alone whose iteration lines these are; None: `shape`
    no_numbers: Sequence[str] = ()  # figures beside the loss that are NaN or infinite


@dataclass(frozen=True)
class InImage:
    """What the containers of a job printed of their image."""

    image: str  # that the job was to run in, by name and tag
    printed: Collection[tuple[str, str]]  # component and version
    silent: Sequence[str]  # nodes whose containers printed no version, or whose logs are not there


@dataclass(frozen=True)
class Speed:
    """How fast a run was, and what bounds its speed."""

    figures: Figures
    timed: Sequence[Iteration] | None = None  # the steady lines; None: nothing in the log is a throughput
    all_gpus_tokens: float | None = None  # tokens/s/GPU, from lines that count the tokens of all GPUs
    gpus: Collection[str] = ()  # models, as the profiles name them; empty: as the log says
    shape: JobShape = field(default_factory=JobShape)
    paces: Paces | None = None  # None: too few lines to judge how even they are
    clock: str = ""  # how the times of the lines contradict the duration of an iteration
    ranks: int = 0  # of all nodes


@dataclass(frozen=True)
class Expected:
    """What the figures of a job are compared with."""

    bounds: Mapping[str, float] = field(default_factory=dict)  # by metric
    past: Past | None = None
    alone: Alone | None = None
    recipe: str = ""  # the recipe by which a log is to be judged, where the log is of another job
    differences: Sequence[str] = ()  # between that recipe and the log


@dataclass(frozen=True)
class Counters:
    """Error counters before and after a job: node -> counter -> count, or why it could not be read."""

    before: Mapping[str, Mapping[str, Any]]
    after: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class NodeWatch:
    """What was seen on the nodes while the job ran. None, for a node: there is no such file."""

    telemetry: Mapping[str, NodeTelemetry | None] = field(default_factory=dict)
    not_throttled: Sequence[str] = ()  # reasons for which no GPU may be throttled
    kernel: Mapping[str, KernelWindow | None] | None = None
    devices: Mapping[str, KernelWindow | None] = field(default_factory=dict)  # what happened to the nodes' devices
    kernel_wanted: bool = False  # every node's kernel log has to be seen
    links: Mapping[str, Collection[str]] = field(default_factory=dict)  # node -> network ports that the job uses


@dataclass(frozen=True)
class Reading:
    """How far the lines of the logs can be trusted."""

    unjudged: str = ""  # why nothing is known of the run's lines
    contradicted: bool = False  # since the logs are of several runs
    unread: bool = False  # since the log has no known form
    cut: str = ""  # why the log is not whole
    shows_failure: bool = True  # a failure on the lines that are there cannot change by the rest


@dataclass(frozen=True)
class Observed:
    """All evidence of one job. The name of a group is the name of the parameter by which a gate receives it."""

    end: JobEnd | None = None
    copies: LogCopies | None = None
    logs: Logs | None = None
    training: Training | None = None
    in_image: InImage | None = None
    mlperf: NodeLog | None = None  # the log that has lines of MLPerf training
    speed: Speed | None = None
    expected: Expected = Expected()
    counters: Counters | None = None
    watch: NodeWatch | None = None
    stragglers: Stragglers | None = None
    benchmark: Results | None = None
    reading: Reading = Reading()
