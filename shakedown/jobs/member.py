"""One node of a running job: its launcher is called here, and nowhere else, from a task of its own."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress

from shakedown.common.text import file_name
from shakedown.evidence.results import Failure, NodeClock, NodeResult
from shakedown.evidence.telemetry import DEVICE_LOG, KERNEL_LOG, SAMPLES
from shakedown.jobs.answers import DeviceEvents, NoAnswer, Refused, Status
from shakedown.jobs.launch import Clock, Job, Timeouts
from shakedown.jobs.remote import Node
from shakedown.logs.iterations import Iteration, LogReader
from shakedown.logs.kept_logs import BESIDE_LIMIT, LEADER, LOG_LIMIT, KeptLog, LogFile, names_on_controller
from shakedown.logs.lines import LineSplitter
from shakedown.logs.signatures import FailureScanner, Match, quoted

_READ_S = 0.5  # of reading a node's log, until other nodes have their turn: their polls must not be late for it
_SLICE_S = 0.1  # how soon a task sees that it is to start, to stop or to finish
ROOM_BYTES = 64 << 10  # less on the node is a full disk
_LOOK_S = 0.5  # within which a node notices that its log has grown or its leader has exited; a busy one is late


class Member:
    """One node of a job. Its own task (`run`) owns it. The supervisor reads its fields and sets `go`, `record_hang`,
    `stop`, `stopped_at`, `finish` and `given_up`."""

    def __init__(
        self, node: Node, job: Job, timeouts: Timeouts, sleep: Callable[[float], object], clock: Clock
    ) -> None:
        self.name = node.name
        self.go = False
        self.stop: str | None = None  # the reason
        self.stopped_at: float | None = None  # when the controller began to stop the job
        self.record_hang = False  # have the node record what the processes are doing
        self.hang_recorded = False
        self.finish = False  # collect and remove, when the run is over on this node
        self.given_up = False  # no time is left for it
        self.status = Status(watchdog=True)
        self.clock = clock
        self.answered_at = self.clock.now()
        self.asked_at = self.answered_at  # when the last exchange that was answered began: it was there then, no later
        self.asked_before = self.answered_at  # and the one before that
        self.silence: str | None = None  # the reason why the last command got no answer
        self.heard_at = self.answered_at  # the node was there, though its watchdog may have been silent
        self.started_at: float | None = None
        self.exited_at: float | None = None
        self.exited_since: float | None = None  # the leader exited no sooner
        self.ready = False
        self.reading = False  # lines of the log that came with the status are still to be read
        self.done = False
        self.removed = False
        self.failures: list[Failure] = []
        self.iterations: deque[tuple[float, Iteration]] = deque()
        self.devices = DeviceEvents()
        self.line, self.line_number = "", 0  # the last one that is not empty
        self._asking = self.answered_at  # when the exchange that goes on began
        self.node_clock: NodeClock | None = None
        self._node = node
        self._timeouts = timeouts
        self._sleep = sleep
        self._splitter = LineSplitter()
        self._scanner = FailureScanner()
        self._noted = 0  # of its failures
        self._reader = LogReader()
        self._folder = job.log_dir / file_name(self.name)
        self._quota = job.quota
        self._logs: dict[str, LogFile] = {}  # by their names on the node; the leader's first
        self._hang_files: list[str] = []  # the files of a hang's record, on the node
        self._fetched: set[str] = set()  # and those of which no more is to be had
        self._notes: list[str] = []
        self._left: list[str] = []  # running on the node, or maybe
        self._stop_sent = False
        self._log_closed = False

    def run(self, secrets: dict[str, str]) -> None:
        """Prepare, poll until the run is over here, collect, remove. Never raises: what happens is a failure."""
        try:
            self._prepare(secrets)
            while not (self.removed or self.given_up):
                self._step()
        except (Refused, NoAnswer) as error:
            self.fail(error.kind if isinstance(error, Refused) else "unreachable", f"{self.name}: {error}")
        except Exception as error:
            self.fail("controller", f"{self.name}: {type(error).__name__}: {error}")
        self.done, self.reading = True, False

    def fail(
        self, kind: str, text: str, when: float | None = None, match: Match | None = None, since: float | None = None
    ) -> None:
        """Note a failure of this node, which came no later than `when` (now) and no sooner than `since`."""
        self.failures.append(
            Failure(
                node=self.name,
                kind=kind,
                text=text,
                at=self.clock.at(when if when is not None else self.clock.now()),
                since=None if since is None else self.clock.at(since),
                line=match.line if match else self.line or None,
                line_number=match.line_number if match else self.line_number or None,
                cause=match.cause if match else None,
                remedy=match.remedy if match else None,
            )
        )

    def _no_sooner(self, when: float) -> float:
        """Return the earliest that a reported moment can be: answers take time, and a node looks now and then."""
        return when - (self.clock.now() - self._asking) - _LOOK_S

    def kept(self) -> int:
        """Return how many bytes of its logs have come in."""
        return sum(log.kept for log in self._logs.values())

    def result(self) -> NodeResult:
        left = [*self._left, *([self._not_removed()] if self._node.prepared and not self.removed else [])]
        kept = self._close_logs()
        return NodeResult(
            name=self.name,
            exit_code=self.status.exit_code,
            started_at=None if self.started_at is None else self.clock.at(self.started_at),
            ended_at=None if self.exited_at is None else self.clock.at(self.exited_at),
            stopped=self._is_stopped(),
            kept=kept,
            running_at_end=list(self.status.running_at_end),
            notes=[*self._notes, *(log.incomplete for log in kept[1:] if log.incomplete), *left],
            left=left,
        )

    def _is_stopped(self) -> bool:
        """Return whether the leader ended because the controller stopped the job: its exit code says nothing then.
        Ranks also end, with a code of their own, before the stop reaches them: they lose peers that it reached."""
        if self.stopped_at is None or self.started_at is None:
            return False
        return self._stop_sent if self.exited_at is None else self.exited_at >= self.stopped_at

    def _not_removed(self) -> str:
        reason = self.silence or "no time"
        if self._node.confirmed:
            return (
                f"not cleaned up ({reason}): its watchdog ends the job {self._timeouts.lease_s:.0f} s after the"
                " controller's last poll, or its guardian where the watchdog is stopped, some seconds later (where both"
                f" are stopped or killed, the next run is refused and names what to end); {self._node.run_dir} stays"
            )
        return (
            f"may be busy ({reason}): its answer to the preparation was lost. A watchdog that was left there"
            f" ends within {self._timeouts.lease_s:.0f} s; to end it at once, send SIGTERM to the process for"
            f" which the next run is refused, and remove ~/.cache/shakedown/runs/{self._node.run_id}"
        )

    def _close_logs(self) -> list[KeptLog]:
        """Close every log and return what was kept of it. Of a job that ran, a log of the plan that was never fetched
        is empty and incomplete: it may hold the figures."""
        for name, file in self._files().items():
            if (
                self.started_at is not None
                and name in self._node.plan.logs
                and name not in self._fetched | {*self._logs}
            ):
                with suppress(OSError):
                    self._open(name, file)
        reason = f"the node could not be asked for it ({self.silence or 'no time was left'})"
        missing = {**dict.fromkeys(self._logs, reason), **dict.fromkeys(self._fetched, ""), LEADER: self._missing()}
        return [log.close(missing[name]) for name, log in self._logs.items()]

    def _files(self) -> dict[str, str]:
        further = [*self._node.plan.logs, SAMPLES, KERNEL_LOG, DEVICE_LOG, *self._hang_files]
        return names_on_controller(["setup.log", "cleanup.log", *further])

    def _missing(self) -> str:
        """Return why the leader's log lacks a part of what the job printed; empty where it is complete."""
        status = self.status
        if status.rebooted:
            return "the node rebooted during the job, and what it had not written to its disk is lost"
        if not self._log_closed:
            return f"the node could not be asked for the rest ({self.silence or 'no time was left'})"
        if status.survivors:
            return "processes that could not be ended may still be writing it"
        return ""

    def _prepare(self, secrets: dict[str, str]) -> None:
        try:
            self._notes += self._node.prepare(secrets, self._timeouts.lease_s, self._timeouts.grace_s)
        except NoAnswer as error:  # it may be prepared all the same: the run is looked for until that is certain
            self.silence = str(error)
            self.fail("unreachable", f"{self.name}: {error}")
        self.answered_at = self.heard_at = self.clock.now()
        self._open(LEADER, LEADER)

    def _step(self) -> None:
        self._asking = self.clock.now()
        try:
            backlog = self._visit() if self._node.confirmed else self._find()
            self.silence = None if self._node.confirmed else self.silence
            self.asked_before, self.asked_at = self.asked_at, self._asking
            self.answered_at = self.heard_at = self.clock.now()
        except NoAnswer as error:
            backlog, self.silence = False, str(error)
            self.heard_at = self.clock.now() if error.heard else self.heard_at
        if not backlog and not self.removed:
            self._rest()

    def _find(self) -> bool:
        if self.stop:
            try:
                self._node.stop(self.stop)
                self._stop_sent = True
            except Refused as error:
                if error.kind != "absent":
                    raise
                self.removed = True
        return False

    def _visit(self) -> bool:
        if self.stop and not self._stop_sent and not self.status.over:
            self._node.stop(self.stop)
            self._stop_sent = True
        elif self.go and self.status.state == "ready":
            self._node.go()
        before, asked_at = self.status.offset, self.clock.now()
        self._take(self._node.poll(before, self.devices.size))
        self._compare_clocks(asked_at, self.clock.now())
        self.devices.take(self.status.devices, self.node_clock, self.clock.at(self.clock.now()).timestamp())
        if self.record_hang and not self.hang_recorded and self.status.state == "running":
            self._record_hang()
        if self.status.log and self.status.offset < self.status.size:
            return True
        if self.status.over and self.finish:
            self._collect()
            self._left += [f"could not be ended: {process}" for process in self.status.survivors]
            self._left += [f"cleanup failed: {error}" for error in self.status.cleanup_errors]
            self._notes += [f"not removed from the run folder: {name}" for name in self._node.remove()]
            self.removed = True
        return False

    def _compare_clocks(self, asked_at: float, answered_at: float) -> None:
        """Keep what the shortest exchange shows of the node's clock."""
        if self.status.monotonic is None or not self.status.watchdog:
            return
        uncertainty = (answered_at - asked_at) / 2
        if self.node_clock is None or uncertainty < self.node_clock.uncertainty_s:
            then = self.clock.at(asked_at + uncertainty).timestamp()
            offset = round(then - self.status.monotonic, 6)
            self.node_clock = NodeClock(offset_s=offset, uncertainty_s=round(uncertainty, 6))

    def _record_hang(self) -> None:
        """Have the node record what the processes are doing, whatever comes of it, once for each hang."""
        try:
            record = self._node.record_hang()
            self._hang_files = record.files
            if record.late:
                self._notes.append(f"hang: the node did not record this in time: {', '.join(record.late)}")
        except (NoAnswer, Refused) as error:
            self._notes.append(f"hang: the node recorded nothing: {error}")
        self.hang_recorded = True

    def _rest(self) -> None:
        until = self.clock.now() + self._timeouts.poll_s
        wanted = (self.go, self.record_hang, self.stop, self.finish)
        while self.clock.now() < until and (self.go, self.record_hang, self.stop, self.finish) == wanted:
            self._sleep(_SLICE_S)

    def _take(self, status: Status) -> None:
        now = self.clock.now()
        begin = self.status.offset
        self.status = status
        self.ready = self.ready or status.state == "ready"
        if status.started_ago_s is not None and self.started_at is None:
            self.started_at = now - status.started_ago_s
        if status.exited_ago_s is not None and self.exited_at is None:
            self.exited_at = now - status.exited_ago_s
            self.exited_since = self._no_sooner(self.exited_at)
        leader = self._logs[LEADER]
        leader.size = status.size
        if status.log:
            self._read(status, begin, now)
        if status.disk_free_bytes is not None and status.disk_free_bytes < ROOM_BYTES:
            leader.why = leader.why or "the node's disk was full, and what the job could not write is lost"
        if status.over and status.offset >= status.size:
            self._close_log(now)

    def _read(self, status: Status, begin: int, now: float) -> None:
        """Keep the bytes, and read them in the portions in which they came, each with its time."""
        self._keep(self._logs[LEADER], status.log)
        rest, position, until = status.log, begin, self.clock.now() + _READ_S
        self.reading = True
        for size, ago in [*status.marks, (status.offset, 0.0)]:
            portion, rest = rest[: max(0, size - position)], rest[max(0, size - position) :]
            position += len(portion)
            for line in self._splitter.feed(portion):
                self._read_line(line, now - ago)
                if self.clock.now() > until:
                    self._sleep(0)
                    until = self.clock.now() + _READ_S
        self.reading = False

    def _read_line(self, line: str, when: float) -> None:
        self._scanner.line(line)
        read = self._reader.line(line)
        if read:
            self._scanner.went_on()
        if line.strip():
            self.line, self.line_number = quoted(line), self._scanner.lines
        self._fail_by_new(when)
        self.iterations.extend((when, iteration) for iteration in read)

    def _close_log(self, now: float) -> None:
        if self._log_closed:
            return
        self._log_closed = True
        when = self.exited_at or now
        for line in self._splitter.close():
            self._read_line(line, when)
        self._scanner.close(failed=self.status.exit_code != 0)
        self._fail_by_new(when)

    def _fail_by_new(self, when: float) -> None:
        """Note what the scanner has found since the last time."""
        for match in self._scanner.matches[self._noted :]:
            text = f"{self.name}: {match.name} (line {match.line_number} of its log): {match.line}"
            self.fail(match.name, text, when, match, self._no_sooner(when))
        self._noted = len(self._scanner.matches)

    def _collect(self) -> None:
        """Fetch what else belongs to the evidence. Goes on where it was when the node did not answer."""
        if self.record_hang and not self.hang_recorded:
            self._record_hang()
        if LEADER not in self._fetched:
            self._compare(self._logs[LEADER])
            self._fetched.add(LEADER)
        for name, file in self._files().items():
            if name in self._fetched or self.given_up:
                continue
            try:
                self._fetch(name, file)
            except Refused as error:
                if name in self._node.plan.logs:
                    self._notes.append(f"log not fetched: {error}")
            self._fetched.add(name)

    def _fetch(self, name: str, file: str) -> None:
        log = self._logs.get(name)
        while not self.given_up:
            piece = self._node.fetch(name, log.kept if log else 0)
            if log is None:
                if not piece.data:
                    return
                log = self._open(name, file)
            log.size = piece.size
            self.answered_at = self.heard_at = self.clock.now()
            if piece.data:
                self._keep(log, piece.data)
            if log.why or not piece.data or log.kept >= piece.size:
                self._compare(log)
                break

    def _compare(self, log: LogFile) -> None:
        """Compare what was kept with the node's log: one that was cut or replaced there is not what was read."""
        try:
            signer = self._quota.signer
            found = self._node.digest(log.name, log.kept, signer.question(self.name, log.path) if signer else "")
        except Refused as error:
            log.why = log.why or f"it was there, and at the end it was not ({error})"
            return
        if found.size < log.kept or (found.sha256 is not None and found.sha256 != log.sha256):
            log.why = log.why or "it was cut or replaced on the node while the job ran"
        log.size = found.size
        if signer:
            signer.take(self.name, log.path, log.sha256, found.signed)

    def _open(self, name: str, file: str) -> LogFile:
        limit = LOG_LIMIT
        if name not in (LEADER, *self._node.plan.logs):
            own = (log.kept for known, log in self._logs.items() if known not in (LEADER, *self._node.plan.logs))
            limit = BESIDE_LIMIT - sum(own)
        self._logs[name] = log = LogFile(name, self._folder / file, self._quota, limit)
        return log

    def _keep(self, log: LogFile, data: bytes) -> None:
        """Keep a part of a log. Where that fails the controller failed: the job ends, as it would leave no evidence."""
        was = log.why
        log.write(data)
        if log.why.startswith("the controller") and not was and log.name == LEADER:
            self.fail("controller", f"{self.name}: {log.why}")
