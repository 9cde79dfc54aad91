"""A run's one stream of events: `events.jsonl`, one JSON object per line, as in `--log-format json`. It is no evidence:
gates never read it, it is bounded, and a run goes on without it. The controller locks and touches it while it lives
(docs/reference/run-directory.md)."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from shakedown.common import private
from shakedown.common.frozen import Frozen
from shakedown.common.text import load_sound, printable
from shakedown.evidence.results import Moment
from shakedown.hosts import folded
from shakedown.jobs.launch import Event, LaunchPlan
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Finding, Verdict, worst

if TYPE_CHECKING:
    from shakedown.gates import Gate
    from shakedown.runs.directory import RunRecord


NAME = "events.jsonl"
LIMIT_BYTES = 32 << 20  # of the file, and
ITERATIONS_BYTES = 24 << 20  # of which iterations leave the rest to what is said of a run once
TEXT = 2000  # characters
EVERY_S = 0.2  # between two iterations of one job that are noted, where it is the only one: 18,000 lines an hour
SILENT_S = 60.0  # without a touch, which comes every few seconds (runner/progress.py): it has stopped, or hangs

Kind = Literal[
    "run", "finding", "stage", "wait", "plan", "phase", "node", "iteration", "device", "failure", "end", "gate",
    "decision", "verdict",
]  # fmt: skip
_LOG = logging.getLogger("shakedown")
Text = Annotated[str, Field(max_length=4 * TEXT)]


class Note(Frozen):
    """One thing that has happened. Of a job: `job` is its name (`together`, `each/NODE`)."""

    at: Moment
    kind: Kind
    text: Text = ""
    job: Annotated[str, Field(max_length=300)] | None = None
    node: Annotated[str, Field(max_length=300)] | None = None
    count: Annotated[int, Field(ge=0, le=1 << 32)] | None = None  # of a plan: nodes
    verdict: Verdict | None = None  # of a gate, and of a node that was examined again or excluded
    iteration: Iteration | None = None


class Notes:
    """The notes of one run, until `close`. `mask` removes secrets from a text, `clock` is the time in seconds."""

    def __init__(
        self, folder: Path, mask: Callable[[str], str] = lambda text: text, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the file of the notes. Raises OSError."""
        self._mask, self._clock = mask, clock
        self._path, self._run = folder / NAME, folder.name
        self._file = private.create(self._path)
        with contextlib.suppress(OSError):  # of a file system without locks: then the touches are all there is
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size = 0
        self._full = self._broken = False
        self._noted_at: dict[str, float] = {}  # job -> when an iteration of it was noted

    def note(
        self,
        kind: Kind,
        text: str = "",
        *,
        job: str | None = None,
        node: str | None = None,
        at: float | None = None,
        **more: Any,
    ) -> None:
        """Write one down; `more`: other fields of `Note`. Never raises: a run does not end for its notes."""
        if self._file.closed or self._broken:
            return
        try:
            note = Note(
                at=datetime.fromtimestamp(self._clock() if at is None else at, UTC),
                kind=kind,
                text=printable(self._mask(text), TEXT),
                job=job[:300] if job else job,
                node=printable(node, 300) if node else node,
                **more,
            )
            if _LOG.isEnabledFor(logging.INFO):
                event = note.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
                _LOG.info(kind, extra={"run": self._run, **event})
            line = note.model_dump_json(exclude_defaults=True).encode("utf-8", "backslashreplace") + b"\n"
            limit = ITERATIONS_BYTES if kind == "iteration" else LIMIT_BYTES
            if self._size + len(line) <= limit:
                self._size += self._file.write(line)
            elif not self._full:
                self._full = True
                _LOG.info("no more iterations are noted", extra={"file": str(self._path)})
        except (OSError, ValueError) as error:
            _LOG.warning(f"{self._path}: events are no longer noted: {error}")
            self._broken = True  # and stays open: its lock says that the controller lives

    def begin(self, inventory: str, findings: Iterable[Finding]) -> None:
        """Note the start of the run, and each finding that is not ok."""
        self.note("run", inventory)
        self.findings(findings)

    def again(self, node: str, changes: Sequence[str], findings: Sequence[Finding]) -> None:
        """Note what a changed node is now: the record of the run is written when more nodes have come."""
        verdict = worst([finding.verdict for finding in findings])
        text = f"{node}: examined again: {verdict}; changed: {', '.join(changes)}"
        self.note("finding", text, node=node, verdict=verdict)
        self.findings(findings)

    def findings(self, findings: Iterable[Finding]) -> None:
        """Note each finding that is not ok."""
        for finding in findings:
            if finding.verdict is not Verdict.OK:
                self.note("finding", str(finding), node=finding.node)

    def gates(self, gates: Iterable[Gate]) -> None:
        """Note how each gate of a job was judged."""
        for gate in gates:
            text = f"{gate.verdict} {gate.name}" + (f": {gate.evidence}" if gate.evidence else "")
            self.note("gate", text, job=gate.job, node=gate.node, verdict=gate.verdict)

    def plan(self, job: str, plan: LaunchPlan) -> None:
        """Note the plan of a job: over which nodes, and what it is."""
        nodes = folded(node.name for node in plan.nodes)
        self.note("plan", f"{plan.recipe} on {nodes}", job=job, count=len(plan.nodes))

    def taking(self, job: str) -> Callable[[Event], None]:
        """Return what takes the events of a job."""
        return lambda event: self._event(job, event)

    def beat(self) -> None:
        """Say that the controller lives."""
        with contextlib.suppress(OSError, ValueError):
            os.utime(self._file.fileno())

    def close(self) -> None:
        """Nothing more is noted: the run is over."""
        self._file.close()

    def _event(self, job: str, event: Event) -> None:
        iteration = event.iteration
        if iteration is None:
            self.note(event.kind, event.text, job=job, node=event.node, at=event.at)
            return
        now, before = time.monotonic(), self._noted_at.get(job)
        last = iteration.iteration >= iteration.total_iterations
        every_s = EVERY_S * max(1, len(self._noted_at))
        if before is None or last or now - before >= every_s:
            self._noted_at[job] = now
            self.note("iteration", job=job, node=event.node, iteration=iteration)


_LINE = 64 << 10  # bytes of one
_AT_ONCE = 1 << 20  # bytes of one reading
_MOST = 2 * LIMIT_BYTES  # bytes of a file that nobody of ours has written


class NotesReader:
    """`events.jsonl`, read to its end and on. Raises OSError where it cannot be had, ValueError for no file."""

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
            return Note.model_validate(load_sound(line, _LINE))
        self.unreadable += 1
        return None

    def writer_is_gone(self) -> bool:
        """Whether the notes' controller has ended: its lock is gone, or without locks it has long not touched them."""
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


def remarks(folder: Path, record: RunRecord, packed: bool) -> list[str]:
    """Return a line on a simulated run, and one on a run without an end. The run of an archive had no end when it was
    `packed`."""
    simulated = ["SIMULATED: nothing of this run was measured"] if record.simulated else []
    if record.finished_at is not None:
        return simulated
    return [*simulated, "the run had no end when it was packed" if packed else unfinished(folder)]


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
