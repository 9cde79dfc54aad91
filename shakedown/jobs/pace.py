"""How long the rest of a job takes, by its last iterations."""

import statistics
from collections import deque
from datetime import timedelta

from shakedown.logs.iterations import Iteration

_LONGEST_MS = 1e9  # of an iteration that an estimate is made of, 11 days, and
_LONGEST_ETA_S = 1e8  # of an estimate that is shown, 3 years: a log may say anything
_RECENT = 10  # iterations that the estimate of the time left is taken from


class Pace:
    """The median of the last iterations, times what is left."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def take(self, iteration: Iteration) -> None:
        """One more iteration."""
        if iteration.elapsed_ms is not None and 0 < iteration.elapsed_ms < _LONGEST_MS:
            self._recent.append(iteration.elapsed_ms)

    def eta(self, iteration: Iteration) -> str:
        """ "ETA 0:01:00" behind this iteration; nothing where it is the last one or no time is known."""
        left = iteration.total_iterations - iteration.iteration
        if not self._recent or left <= 0:
            return ""
        seconds = statistics.median(self._recent) * left / 1000
        return f"ETA {timedelta(seconds=round(seconds))}" if seconds < _LONGEST_ETA_S else ""
