"""What a run waits for, shown after some seconds: which operation, on which hosts, since when, and their last line.

pyinfra shows an operation when it is over on all hosts. Of 512 the one that hangs is then the one that nobody has
heard of. The same goes for connecting to the nodes and for reading them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import gevent
from pyinfra.api import Host, State

from shakedown.common.text import printable
from shakedown.hosts import named
from shakedown.runner.progress import FEW, RunProgress, progress

FIRST_S = 10.0  # that something takes before it is said
EVERY_S = 15.0  # between two lines that differ
BEGIN_S = 1.0  # after which a step over many hosts says how many it waits for
STEP_S = 3.0  # between two such lines
AGAIN_S = 60.0  # between two lines of which only the time differs
SAID = 200  # characters of what a host said last
BEAT_S = 5.0  # between two signs of life for those who watch the run


@contextmanager
def waiting_for(host: Host, what: str) -> Iterator[None]:
    """While it holds, this is what the run waits for on the host."""
    kept = progress(host.state)
    kept.waits[host.name] = (what, time.monotonic())
    try:
        yield
    finally:
        kept.waits.pop(host.name, None)


class Waiting:
    """Shows what the run waits for, at most every `EVERY_S`; a job shows its own progress."""

    def __init__(self, kept: RunProgress, say: Callable[[str], None]) -> None:
        self._kept = kept
        self._say = say
        self._shown = ""
        self._shown_at = -AGAIN_S
        self._counted_at = -STEP_S

    def look(self, now: float) -> None:
        """Say what has been waited for at `now` (of the monotonic clock), if it is time for that."""
        found = self._longest(now)
        if found is None:
            self._shown = ""
            self._count(now)
            return
        what, since, last = found
        quiet = now - self._shown_at
        if quiet < EVERY_S or (f"{what}{last}" == self._shown and quiet < AGAIN_S):
            return
        self._shown, self._shown_at = f"{what}{last}", now
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() - (now - since)))
        line = f"waiting for {timedelta(seconds=round(now - since))}, since {clock}: {what}{last}"
        self._say(line)
        if self._kept.notes is not None:
            self._kept.notes.note("wait", line)

    def _count(self, now: float) -> None:
        """Say how many hosts a step over many of them waits for, from its first second."""
        at = list(self._kept.waits.values())
        slow = [what for what, began in at if now - began >= BEGIN_S]
        if slow and len(at) > FEW and now - self._counted_at >= STEP_S and not self._kept.job_runs():
            self._counted_at = now
            self._say(f"{slow[0]}: waiting for {sum(what == slow[0] for what, _ in at)} nodes")

    def _longest(self, now: float) -> tuple[str, float, str] | None:
        """Return the longest wait, with all hosts that are at the same operation."""
        at = dict(self._kept.waits)
        what, since = min(at.values(), key=lambda wait: wait[1], default=("", now))
        if now - since < FIRST_S or self._kept.job_runs():
            return None
        hosts = [host for host, (work, began) in at.items() if work == what and now - began >= FIRST_S / 2]
        lines = [(host, words) for host in hosts if (words := self._kept.saying.get(host))]
        last = f"; {lines[0][0]}: {printable(lines[0][1], SAID)}" if len(lines) > FEW else ""
        return f"{what}, on {printable(named(hosts))}", since, last


def look_on(state: State, say: Callable[[str], None]) -> None:
    """Begin to look on, until the run has said how it ended."""
    gevent.spawn(_look_on, progress(state), say)


def _look_on(kept: RunProgress, say: Callable[[str], None]) -> None:
    waiting = Waiting(kept, say)
    beat_at = 0.0
    while not kept.announced:
        gevent.sleep(1.0)
        now = time.monotonic()
        if now - beat_at >= BEAT_S and kept.notes is not None:
            beat_at = now
            kept.notes.beat()
        waiting.look(now)
