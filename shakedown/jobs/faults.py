"""What goes wrong in a running job: failures of nodes and of the whole, when the first is settled, and hangs.

Of a hang every node records what its ranks are doing.
"""

from collections import deque
from collections.abc import Sequence

from shakedown.evidence.diagnosis.origin import may_be_echo
from shakedown.evidence.results import Failure
from shakedown.jobs.launch import Clock, LaunchPlan, Timeouts
from shakedown.jobs.member import ROOM_BYTES, Member
from shakedown.jobs.remote import HANG_RECORD_S
from shakedown.schedulers.interface import Interrupted

STEPS = 10  # mean steps without progress; checkpoints and evaluations take a few
LEAST_S = 30.0  # below that nothing is recorded, however short the steps are
_FIRST = 2  # iterations that warm up: they take many times as long as the others
_BEFORE_S = 20.0  # before the job's own limit, so that the record is there when the job is stopped
_KEPT = 50  # of the newest times


class StepTimes:
    """The times of a job's iterations, and what is long beside them."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        self._times: deque[float] = deque(maxlen=_KEPT)
        self._seen = 0

    def iteration(self, when: float) -> None:
        """Take the time of one iteration, in seconds of the monotonic clock."""
        self._seen += 1
        if self._seen >= _FIRST:
            self._times.append(when)

    def is_long(self, waited: float) -> bool:
        """Return whether the job has hung for many times its mean step, at the latest shortly before its limit."""
        limit = self._plan.stall_timeout_s if self._seen else self._plan.start_timeout_s
        latest = max(limit - _BEFORE_S, limit / 2)
        if len(self._times) < 2:
            return waited > latest
        step = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        return waited > min(max(STEPS * step, LEAST_S), latest)


class HangRecorder:
    """Has every node record what its processes are doing, once for each hang, before anything is ended."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._since: float | None = None

    def begin(self, now: float) -> bool:
        """Begin, unless it has begun. Return whether it begins now."""
        if self._since is not None:
            return False
        self._since = now
        for member in self._members:
            member.record_hang = True
        return True

    def went_on(self) -> None:
        """Forget the record: the job went on, so that it belongs to no later hang."""
        if self._since is not None and all(member.hang_recorded or not member.record_hang for member in self._members):
            self._since = None
            for member in self._members:
                member.record_hang = member.hang_recorded = False

    def is_pending(self, now: float) -> bool:
        """Return whether nodes still record: no hang is declared before the record is there, or has had its time."""
        if self._since is None or now - self._since > HANG_RECORD_S:
            return False
        return not all(member.hang_recorded or member.silence or member.status.over for member in self._members)


class Faults:
    """The failures of one job so far. `interrupted` gives the reason to stop the job from outside, or None."""

    def __init__(self, members: Sequence[Member], timeouts: Timeouts, clock: Clock, interrupted: Interrupted) -> None:
        self._members = members
        self._reporter = members[-1]
        self._timeouts = timeouts
        self._clock = clock
        self._interrupted = interrupted
        self._of_job: list[Failure] = []  # of the job as a whole: timeouts, an interrupt
        self._stopped: float | None = None

    def stopped(self) -> None:
        """Close the list: the job is being stopped, and what it reports from now on only follows from that."""
        self._stopped = self._clock.now()

    @property
    def of_job(self) -> bool:
        """Whether the job as a whole has failed."""
        return bool(self._of_job)

    def fail(self, kind: str, text: str, node: str | None = None) -> None:
        """Note a failure of the job as a whole, seen at `node`."""
        member = self._reporter if node == self._reporter.name else None
        line, number = (member.line or None, member.line_number or None) if member else (None, None)
        at = self._clock.at(self._clock.now())
        self._of_job.append(Failure(node=node, kind=kind, text=text, at=at, line=line, line_number=number))

    def so_far(self) -> list[Failure]:
        """Return every failure so far, in the order of time."""
        reason = self._interrupted()
        if reason and not any(failure.kind == "interrupted" for failure in self._of_job):
            self.fail("interrupted", reason)
        if self._stopped is None:
            for member in self._members:
                self._judge(member)
        failures = self._of_job + [failure for member in self._members for failure in member.failures]
        end = None if self._stopped is None else self._clock.at(self._stopped)
        kept = [failure for failure in failures if end is None or failure.at <= end]
        return sorted(kept, key=lambda failure: failure.at)

    def _judge(self, member: Member) -> None:
        """Note what a node's status shows for the first time. Its log, which shows why, is read before."""
        if member.reading:
            return
        status = member.status
        kinds = {failure.kind for failure in member.failures}
        if status.exit_code and "exit" not in kinds:
            code = status.exit_code
            text = f"{member.name}: the job ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
            member.fail("exit", text, member.exited_at, since=member.exited_since)
        elif status.ending and "watchdog" not in kinds:
            member.fail("watchdog", f"{member.name}: ended on the node: {status.ending}", since=member.asked_before)
        elif status.rebooted and "rebooted" not in kinds:
            text = f"{member.name}: the node rebooted during the job: its boot id changed"
            member.fail("rebooted", text, since=member.asked_before)
        elif not status.watchdog and not {"watchdog", "rebooted"} & kinds:
            member.fail("watchdog", f"{member.name}: its watchdog has died", since=member.asked_before)
        free = status.disk_free_bytes
        if free is not None and free < ROOM_BYTES and "disk full" not in kinds:
            text = f"{member.name}: no room is left where the run folder is: its log is cut"
            member.fail("disk full", text, since=member.asked_before)
        silent = self._clock.now() - member.answered_at
        if member.silence and silent > self._timeouts.unreachable_s and not {"unreachable", "watchdog"} & kinds:
            heard = member.heard_at > member.answered_at
            source = " of its watchdog" if heard else ""
            text = f"{member.name}: no answer{source} for {silent:.0f} s: {member.silence}"
            member.fail("watchdog" if heard else "unreachable", text, since=member.asked_at)

    def wait_for_cause(self, failures: list[Failure]) -> bool:
        """Return whether to wait a moment for the failure that the first one may be an echo of. A node that was polled
        since and has answered is not gone. Another is waited for as long as a command may take; then it counts as the
        node that the others lost: they notice in milliseconds, the controller notices a silence much later."""
        if not all(map(may_be_echo, failures)):
            return False
        began = self._clock.when(failures[0].at)
        waited = self._clock.now() - began
        if waited < self._timeouts.echo_s + self._timeouts.poll_s:
            return True
        there = [member for member in self._members if member.asked_at >= began or member.status.over or member.reading]
        silent = [member for member in self._members if member not in there]
        if silent and waited < self._timeouts.poll_timeout_s + self._timeouts.poll_s:
            return True
        for member in silent:
            seconds = self._clock.now() - member.answered_at
            text = f"{member.name}: no answer for {seconds:.0f} s: {member.silence or 'silent'}"
            member.fail("unreachable", text, since=member.asked_at)
        return False

    def wait_for_others(self, failures: list[Failure], started: bool, trains: bool) -> bool:
        """Return whether to wait for the nodes that have not yet shown whether they have the same fault. Before the
        first iteration the same fault shows on each node when that node comes to it, later on all at once (`started`:
        the leaders run; `trains`: an iteration has come). A node has answered once it failed, or was healthy in an
        exchange that began after that time."""
        if any(failure.node is None for failure in failures):
            return False
        began = self._clock.when(min(failure.since or failure.at for failure in failures))
        settled = began + (self._timeouts.echo_s if trains else self._timeouts.answer_s)
        waiting = [member for member in self._members if not (member.failures or member.status.over or member.done)]
        if not started:
            waiting = [member for member in waiting if not member.ready]
        if self._clock.now() < settled:
            return bool(waiting)
        late = any(member.asked_at < settled for member in waiting)
        return late and self._clock.now() < settled + self._timeouts.poll_timeout_s + self._timeouts.poll_s
