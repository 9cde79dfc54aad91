"""A job without progress: when its ranks' doings are worth a record, and the record of them on every node."""

from collections import deque
from collections.abc import Sequence

from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.member import Member
from shakedown.jobs.remote import HANG_RECORD_S

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
