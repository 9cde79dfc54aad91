"""One node of a running job: its launcher is called here, and nowhere else, from a task of its own."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from shakedown.smoke.job import Failure, Limits, NodeResult, at
from shakedown.smoke.lines import LineSplitter
from shakedown.smoke.log import Iteration, LogReader
from shakedown.smoke.remote import NoAnswer, Node, Refused, Status
from shakedown.smoke.signatures import FailureScanner, Match

_SLICE_S = 0.1  # how soon a task sees that it is to start, to stop or to finish
_FETCH_LIMIT = 64 << 20  # bytes of one further log


class Member:
    """Owned by one task (`live`); the supervisor reads its fields and sets `go`, `stop`, `finish`
    and `given_up`."""

    def __init__(self, node: Node, log_dir: Path, limits: Limits, sleep: Callable[[float], None]) -> None:
        self.name = node.name
        self.go = False
        self.stop: str | None = None  # why
        self.finish = False  # collect and remove, when the run is over on this node
        self.given_up = False  # no time is left for it
        self.status = Status(watchdog=True)
        self.answered_at = time.time()
        self.asked_at = self.answered_at  # when the last exchange that was answered began: it was there then, no later
        self.silence: str | None = None  # why the last command got no answer
        self.started_at: float | None = None
        self.exited_at: float | None = None
        self.ready = False
        self.done = False
        self.removed = False
        self.failures: list[Failure] = []
        self.iterations: deque[tuple[float, Iteration]] = deque()
        self.line, self.line_number = "", 0  # the last one that is not empty
        self._node = node
        self._limits = limits
        self._sleep = sleep
        self._splitter = LineSplitter()
        self._scanner = FailureScanner()
        self._reader = LogReader()
        self._log = log_dir / f"{re.sub(r'[^A-Za-z0-9@._-]', '_', self.name)}.log"
        self._logs: list[Path] = []
        self._notes: list[str] = []
        self._stop_sent = False
        self._log_closed = False

    def live(self, secrets: dict[str, str]) -> None:
        """Prepare, poll until the run is over here, collect, remove. Never raises: what happens is a failure."""
        try:
            leftovers = self._node.prepare(secrets, self._limits.lease_s, self._limits.grace_s)
            self.answered_at = time.time()
            self._notes += leftovers.notes(self._node.run_dir.rpartition("/")[0])
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._log.write_bytes(b"")
            self._logs.append(self._log)
            while not (self.removed or self.given_up):
                self._step()
        except (Refused, NoAnswer) as error:
            self.fail(error.kind if isinstance(error, Refused) else "unreachable", f"{self.name}: {error}")
        except Exception as error:
            self.fail("controller", f"{self.name}: {type(error).__name__}: {error}")
        self.done = True

    def fail(self, kind: str, text: str, when: float | None = None, match: Match | None = None) -> None:
        """Note a failure of this node."""
        self.failures.append(
            Failure(
                node=self.name,
                kind=kind,
                text=text,
                at=at(when if when is not None else time.time()),
                line=match.line if match else self.line or None,
                line_number=match.line_number if match else self.line_number or None,
                cause=match.cause if match else None,
                remedy=match.remedy if match else None,
            )
        )

    def result(self) -> NodeResult:
        """This node's part of the job's result."""
        notes = list(self._notes)
        if self._node.prepared and not self.removed:
            notes.append(
                f"not cleaned up ({self.silence or 'no time'}): its watchdog ends the job {self._limits.lease_s:.0f} s"
                f" after it last heard of the controller; {self._node.run_dir} stays"
            )
        return NodeResult(
            name=self.name,
            exit_code=self.status.exit_code,
            started_at=at(self.started_at) if self.started_at else None,
            ended_at=at(self.exited_at) if self.exited_at else None,
            logs=list(self._logs),
            notes=notes,
        )

    # -- the task --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        asked_at = time.time()
        try:
            backlog = self._visit()
            self.silence = None
            self.asked_at, self.answered_at = asked_at, time.time()
        except NoAnswer as error:
            backlog, self.silence = False, str(error)
        if not backlog and not self.removed:
            self._rest()

    def _visit(self) -> bool:
        """One exchange with the node. True where more of the log waits."""
        if self.stop and not self._stop_sent and not self.status.over:
            self._node.stop(self.stop)
            self._stop_sent = True
        elif self.go and self.status.state == "ready":
            self._node.go()
        before = self.status.offset
        self._take(self._node.poll(before))
        if self.status.offset < self.status.size:
            return True
        if self.status.over and self.finish:
            self._collect()
            self._notes += [f"not removed from the run folder: {name}" for name in self._node.remove()]
            self.removed = True
        return False

    def _rest(self) -> None:
        until = time.monotonic() + self._limits.poll_s
        wanted = (self.go, self.stop, self.finish)
        while time.monotonic() < until and (self.go, self.stop, self.finish) == wanted:
            self._sleep(_SLICE_S)

    def _take(self, status: Status) -> None:
        now = time.time()
        begin = self.status.offset
        self.status = status
        self.ready = self.ready or status.state == "ready"
        if status.started_ago_s is not None and self.started_at is None:
            self.started_at = now - status.started_ago_s
        if status.exited_ago_s is not None and self.exited_at is None:
            self.exited_at = now - status.exited_ago_s
        if status.log:
            self._read(status, begin, now)
        if status.over and status.offset >= status.size:
            self._close_log(now)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _read(self, status: Status, begin: int, now: float) -> None:
        """Keep the bytes, and read them in the portions in which they came, each with its time."""
        with self._log.open("ab") as file:
            file.write(status.log)
        rest, position = status.log, begin
        for size, ago in [*status.marks, (status.offset, 0.0)]:
            portion, rest = rest[: max(0, size - position)], rest[max(0, size - position) :]
            position += len(portion)
            for line in self._splitter.feed(portion):
                self._read_line(line, now - ago)

    def _read_line(self, line: str, when: float) -> None:
        match = self._scanner.line(line)
        if line.strip():
            self.line, self.line_number = line.strip()[:400], self._scanner.lines
        if match:
            self._fail_by(match, when)
        self.iterations.extend((when, iteration) for iteration in self._reader.line(line))

    def _close_log(self, now: float) -> None:
        if self._log_closed:
            return
        self._log_closed = True
        when = self.exited_at or now
        for line in self._splitter.close():
            self._read_line(line, when)
        match = self._scanner.close()
        if match:
            self._fail_by(match, when)

    def _fail_by(self, match: Match, when: float) -> None:
        self.fail(
            match.name, f"{self.name}: {match.name} (line {match.line_number} of its log): {match.line}", when, match
        )

    def _collect(self) -> None:
        """Fetch what else belongs to the evidence, and say what the node could not do."""
        self._notes += [f"could not be ended: {process}" for process in self.status.survivors]
        self._notes += [f"cleanup failed: {error}" for error in self.status.cleanup_errors]
        for name in ["setup.log", "cleanup.log", *self._node.plan.logs]:
            try:
                self._fetch(name)
            except Refused as error:
                if name in self._node.plan.logs:
                    self._notes.append(f"log not fetched: {error}")

    def _fetch(self, name: str) -> None:
        data, offset, size = self._node.fetch(name, 0)
        if not data:
            return
        target = self._log.with_suffix("") / Path(name).name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(data)
            while offset < min(size, _FETCH_LIMIT) and data:
                data, offset, size = self._node.fetch(name, offset)
                file.write(data)
        self._logs.append(target)
        if offset < size:
            self._notes.append(f"{name}: only the first {offset} of {size} bytes were fetched")
