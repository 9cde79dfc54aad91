"""A job's events and its pace for a person: one live line on a terminal, plain lines now and then elsewhere."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from shakedown.common.text import printable
from shakedown.jobs.launch import Event
from shakedown.logs.iterations import Iteration

_LONGEST_MS = 1e9  # of an iteration that an estimate is made of, 11 days, and
_LONGEST_ETA_S = 1e8  # of an estimate that is shown, 3 years: a log may say anything
_WIDEST = 100  # characters of a line
_RECENT = 10  # iterations that the estimate of the time left is taken from


class Pace:
    """The median of the last iterations, times what is left."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def take(self, iteration: Iteration) -> None:
        if iteration.elapsed_ms is not None and 0 < iteration.elapsed_ms < _LONGEST_MS:
            self._recent.append(iteration.elapsed_ms)

    def eta(self, iteration: Iteration) -> str:
        """ "ETA 0:01:00" behind this iteration; nothing where it is the last one or no time is known."""
        left = iteration.total_iterations - iteration.iteration
        if not self._recent or left <= 0:
            return ""
        seconds = statistics.median(self._recent) * left / 1000
        return f"ETA {timedelta(seconds=round(seconds))}" if seconds < _LONGEST_ETA_S else ""


class _Screen:
    """Standard error: a line that is written over on a terminal, and elsewhere at most every `every_s` seconds."""

    def __init__(self, every_s: float, console: Console | None) -> None:
        self._every_s = every_s
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._written_at = -math.inf  # the monotonic clock may begin with the machine: 0 can be a moment ago

    def now(self, line: str, always: bool = False) -> None:
        if self._console.is_terminal and not self._console.is_dumb_terminal:  # on which rich shows nothing live
            text = Text(printable(line), no_wrap=True, overflow="ellipsis")
            if self._live is None:
                self._live = Live(text, console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(text, refresh=True)
        elif always or time.monotonic() - self._written_at >= self._every_s:
            self._written_at = time.monotonic()
            self._console.print(Text(printable(line)))

    def event(self, prefix: str, event: Event) -> None:
        """Show what has happened, on a line that stays."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        node = f"{event.node}: " if event.node and not event.text.startswith(f"{event.node}: ") else ""
        style = "bold red" if event.kind == "failure" else ""
        mark = {"failure": "FAILED ", "device": "device event: "}.get(event.kind, "")
        line = f"    {prefix}: {mark}{printable(node + event.text)}"  # events.jsonl has it whole
        self._console.print(Text(line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3].rstrip()}...", style=style))


class Progress:
    """Takes a job's events and writes to standard error; standard output belongs to results. Plain lines come for the
    first and the last iteration and at most every `every_s` seconds in between."""

    def __init__(self, every_s: float = 5.0, console: Console | None = None) -> None:
        self._screen = _Screen(every_s, console)
        self._shown: tuple[str | None, int] | None = None  # node and number of the last iteration that was taken in
        self._pace = Pace()

    def __call__(self, event: Event) -> None:
        if event.iteration is not None:
            self._iteration(event.node, event.iteration)
        else:
            self._screen.event("smoke", event)

    def _iteration(self, node: str | None, iteration: Iteration) -> None:
        first = self._shown is None
        if self._shown and self._shown[0] != node and iteration.iteration <= self._shown[1]:
            return  # some scripts repeat the lines on other nodes
        self._shown = (node, iteration.iteration)
        self._pace.take(iteration)
        last = iteration.iteration >= iteration.total_iterations
        self._screen.now(self._line(iteration), always=first or last)

    def _line(self, iteration: Iteration) -> str:
        parts = [
            f"    smoke: iteration {iteration.iteration}/{iteration.total_iterations}",
            "loss missing" if iteration.lm_loss is None else f"loss {loss_text(iteration.lm_loss)}",
            figure_text(iteration.tflops_per_gpu, "TFLOP/s/GPU"),
            figure_text(iteration.tokens_per_gpu_per_s, "tokens/s/GPU"),
            figure_text(iteration.elapsed_ms, "ms"),
            self._pace.eta(iteration),
        ]
        kept = [part for part in parts if part]
        if len(" | ".join(kept)) > _WIDEST:
            kept = [part for part in kept if not part.endswith(" ms")]
        return " | ".join(kept)


class ProgressOfEach:
    """The same for jobs on one node each: a line for all together, and one for each that fails or is over."""

    def __init__(self, every_s: float = 5.0, console: Console | None = None) -> None:
        self._screen = _Screen(every_s, console)
        self._at: dict[str, tuple[int, int]] = {}  # node that has begun -> iteration of how many
        self._over: set[str] = set()
        self._failed: set[str] = set()

    def of(self, node: str) -> Callable[[Event], None]:
        """Return what takes the events of that node's job."""
        return lambda event: self._take(node, event)

    def _take(self, node: str, event: Event) -> None:
        self._at.setdefault(node, (0, 0))
        if event.iteration is not None:
            self._at[node] = (event.iteration.iteration, event.iteration.total_iterations)
        elif event.kind == "end":
            self._over.add(node)
        if event.kind == "failure" or (event.kind == "end" and node not in self._failed):
            self._screen.event("each", Event(event.kind, event.text, node))
        if event.kind == "failure":
            self._failed.add(node)
        running = {name: at for name, at in self._at.items() if name not in self._over}
        if running and event.kind in ("end", "iteration"):
            slowest = min(running, key=lambda name: running[name])
            iteration, total = running[slowest]
            where = f"at iteration {iteration}/{total}" if iteration else "before its first iteration"
            done = f"{len(self._over)} of {len(self._at)} done"
            self._screen.now(f"    each: {done}, slowest {slowest} {where}")


def figure_text(value: float | None, unit: str) -> str:
    """Return a figure with its unit, in as many digits as have a meaning; empty where there is none."""
    if value is None:
        return ""
    if not abs(value) < 1e9:
        return f"{value:g} {unit}"
    return f"{value:,.{0 if value >= 1000 else 3 if value < 10 else 1}f} {unit}"


def loss_text(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:g}"
