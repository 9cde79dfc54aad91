"""A job's events for the person who watches: one live line on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import statistics
import time
from collections import deque
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from shakedown.smoke.job import Event
from shakedown.smoke.log import Iteration

_RECENT = 10  # iterations that the estimate of the time left is taken from


class Progress:
    """Takes a job's events and writes to standard error; standard output belongs to results.

    Plain lines come for the first and the last iteration and at most every `every_s` seconds in between. `tokens` is
    what one GPU works on in one iteration, for logs that do not give tokens per second.
    """

    def __init__(self, tokens: float | None = None, every_s: float = 5.0, console: Console | None = None) -> None:
        self._tokens = tokens
        self._every_s = every_s
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._shown = 0  # the last iteration that was taken in
        self._written_at = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def __call__(self, event: Event) -> None:
        """Show the event."""
        if event.iteration is not None:
            self._iteration(event.iteration)
            return
        self._close()
        node = f"{event.node}: " if event.node and not event.text.startswith(event.node) else ""
        style = "bold red" if event.kind == "failure" else ""
        mark = "FAILED " if event.kind == "failure" else ""
        self._console.print(Text(f"    smoke: {mark}{node}{event.text}", style=style))

    def _iteration(self, iteration: Iteration) -> None:
        if iteration.iteration <= self._shown:
            return  # some scripts repeat the lines on other nodes
        first, self._shown = self._shown == 0, iteration.iteration
        if iteration.elapsed_ms is not None:
            self._recent.append(iteration.elapsed_ms)
        line = self._line(iteration)
        if self._console.is_terminal:
            self._update(line)
            return
        last = iteration.iteration >= iteration.total_iterations
        if first or last or time.monotonic() - self._written_at >= self._every_s:
            self._written_at = time.monotonic()
            self._console.print(Text(line))

    def _line(self, iteration: Iteration) -> str:
        tokens = iteration.tokens_per_gpu_per_s
        if tokens is None and self._tokens and iteration.elapsed_ms:
            tokens = self._tokens * 1000 / iteration.elapsed_ms
        left = iteration.total_iterations - iteration.iteration
        eta = statistics.median(self._recent) * left / 1000 if self._recent else None
        parts = [
            f"    smoke: iteration {iteration.iteration}/{iteration.total_iterations}",
            "loss missing" if iteration.lm_loss is None else f"loss {iteration.lm_loss:.4f}",
            _figure(iteration.tflops_per_gpu, "TFLOP/s/GPU"),
            _figure(tokens, "tokens/s/GPU"),
            _figure(iteration.elapsed_ms, "ms"),
            f"ETA {timedelta(seconds=round(eta))}" if eta is not None and left else "",
        ]
        return " | ".join(part for part in parts if part)

    def _update(self, line: str) -> None:
        text = Text(line, no_wrap=True, overflow="ellipsis")
        if self._live is None:
            self._live = Live(text, console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(text, refresh=True)

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.{0 if value >= 1000 else 3 if value < 10 else 1}f} {unit}"
