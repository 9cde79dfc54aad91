"""What a rank spends on its own work, apart from waiting for others: time of the clock, less the time in collectives.

CPU time would not show it: gloo's threads use some while they wait, and a rank that gets too little of its CPU uses no
more. On GPUs a wait is the stream's and returns at once, so nothing can be measured from here.
"""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist

WARM_UP = 2  # iterations that take longer everywhere
LEAST = 2  # iterations in a window
MOST = 8  # windows of a run: each is long enough to tell, and the log stays short


class OwnTime:
    """Add up waiting from now on: everything that waits for another rank comes through `Work.wait`."""

    def __init__(self, rank: int, world_size: int, iterations: int) -> None:
        self._who = f"rank {rank} of {world_size}"
        self._size = max(LEAST, -(-(iterations - WARM_UP) // MOST))
        self._waited = 0.0
        self._window: list[tuple[float, float]] = []
        wait = dist.Work.wait

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return wait(*args, **options)
            finally:
                self._waited += time.perf_counter() - began

        dist.Work.wait = timed  # type: ignore[method-assign]

    @property
    def waited(self) -> float:
        """Seconds, since the beginning."""
        return self._waited

    def iteration(self, number: int, elapsed_s: float, waited_s: float) -> str | None:
        """Take one; the line of its window where that is full."""
        if number <= WARM_UP:
            return None
        self._window.append((elapsed_s - waited_s, waited_s))
        if len(self._window) < self._size:
            return None
        own = sum(own_s for own_s, _ in self._window) * 1000 / self._size
        waited = sum(waited_s for _, waited_s in self._window) * 1000 / self._size
        self._window = []
        first = number - self._size + 1
        return f"own time: {self._who}, steps {first} to {number}, {own:.3f} ms each, waiting {waited:.3f} ms"
