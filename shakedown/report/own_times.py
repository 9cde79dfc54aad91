"""Nodes beside each other by the own time of their ranks, as rows of a table: the same on the page and in a ticket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shakedown.evidence.stragglers.model import lines

if TYPE_CHECKING:
    from shakedown.evidence.stragglers.model import Own, Stragglers
    from shakedown.runs.records import JobRecord

HEADER = ("standing", "node", "ranks", "beside the median of its peers", "least and most of a window")
ROWS = 200  # the slowest; run.json has all
_VERDICTS = {"fail": "fail", "undecided": "unknown", "warn": "warn", "notice": "warn", "": "ok"}


@dataclass(frozen=True)
class Row:
    """One node in one role. `verdict` has the colour of its standing."""

    standing: str
    verdict: str
    node: str
    role: str
    slower: str
    windows: str

    @property
    def cells(self) -> tuple[str, ...]:
        """As `HEADER` has them."""
        return self.standing, self.node, self.role, self.slower, self.windows


@dataclass(frozen=True)
class Compared:
    """What a job's ranks told of themselves."""

    job: str
    lines: list[str]
    rows: list[Row]
    beyond: int


def of(jobs: Iterable[JobRecord]) -> list[Compared]:
    """Of each job that was compared."""
    return [_of(job.node or "all nodes together", job.stragglers) for job in jobs if job.stragglers is not None]


def _of(job: str, found: Stragglers) -> Compared:
    levels = {(times.node, times.role): times.level for times in found.slow}
    rows = list(_rows(found.own, levels))
    return Compared(job, list(lines(found)), rows[:ROWS], max(len(rows) - ROWS, 0))


def _rows(own: Iterable[Own], levels: Mapping[tuple[str, str], str]) -> Iterator[Row]:
    for times in own:
        level = levels.get((times.node, times.role), "")
        windows = f"{times.least:+.0%} to {times.most:+.0%}"
        yield Row(level or "ok", _VERDICTS[level], times.node, times.role or "all", f"{times.slower:+.1%}", windows)
