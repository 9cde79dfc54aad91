"""A time of its own for a simulated run: its clock goes on only when every task sleeps."""

import heapq
import itertools
from collections.abc import Callable
from typing import TypeVar

from greenlet import getcurrent, greenlet

from shakedown.jobs.launch import Clock

Result = TypeVar("Result")
BEFORE_S = 3600.0  # so long ago the run begins: its last times lie in the past too


class Turns(Clock):
    """A scheduler of the supervision and its clock: tasks take turns, and hours pass in moments."""

    def __init__(self) -> None:
        super().__init__()
        self._wall -= BEFORE_S
        self._now = self._began
        self._hub = getcurrent()
        self._asleep: list[tuple[float, int, greenlet]] = []
        self._numbers = itertools.count()

    def day(self) -> float:
        """Return the time of day, in seconds."""
        return self.at(self._now).timestamp()

    def now(self) -> float:
        return self._now

    def spawn(self, function: Callable[[], None]) -> None:
        """Begin to run the function when the others sleep."""
        self._put(greenlet(function, self._hub), 0.0)

    def sleep(self, seconds: float) -> None:
        """Let the others run, until the clock says so."""
        self._put(getcurrent(), seconds)
        self._hub.switch()

    def run(self, function: Callable[[], Result]) -> Result:
        """Run a function as a task, with what it spawns, and return its result."""
        results: list[Result] = []
        main = greenlet(lambda: results.append(function()), self._hub)
        self._put(main, 0.0)
        while not main.dead:
            when, _, task = heapq.heappop(self._asleep)
            self._now = max(self._now, when)
            task.switch()
        return results[0]

    def _put(self, task: greenlet, seconds: float) -> None:
        heapq.heappush(self._asleep, (self._now + seconds, next(self._numbers), task))
