"""When a job has made no progress for so long that it is worth to write down what its ranks are doing."""

from __future__ import annotations

from collections import deque

from shakedown.jobs.launch import LaunchPlan

STEPS = 10  # mean steps without progress; checkpoints and evaluations take a few
LEAST_S = 30.0  # below that nobody looks, however short the steps are
_FIRST = 2  # iterations that warm up: they take many times as long as the others
_BEFORE_S = 20.0  # before the job's own limit, so that what is written down is there when the job is stopped
_KEPT = 50  # of the newest times


class Standstill:
    """The times of a job's iterations, and what is long beside them."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        self._times: deque[float] = deque(maxlen=_KEPT)
        self._seen = 0

    def iteration(self, when: float) -> None:
        """One has come, in seconds of the monotonic clock."""
        self._seen += 1
        if self._seen >= _FIRST:
            self._times.append(when)

    def is_long(self, waited: float) -> bool:
        """Whether the job has stood still for many times its mean step; at the latest shortly before its limit."""
        limit = self._plan.stall_timeout_s if self._seen else self._plan.start_timeout_s
        latest = max(limit - _BEFORE_S, limit / 2)
        if len(self._times) < 2:
            return waited > latest
        step = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        return waited > min(max(STEPS * step, LEAST_S), latest)
