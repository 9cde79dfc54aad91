"""The lines in which ranks tell their own time: this project's workload's, and Megatron-LM's with --log-straggler.

Megatron (megatron/core/utils.py, StragglerDetector.report; README_STRAGGLER.md) prints the lowest and the highest of
everything; with --straggler-minmax-count N, 1 < N < world size, also the N ranks of the lowest and the N of the highest
estimated throughput (Etpt). Its power has the unit W and is in mW; nothing of that is read here.
"""

import math
import re

from shakedown.common.text import strip_escapes
from shakedown.evidence.stragglers.model import Extremes, Measured, Window

MAX_WINDOWS = 100_000  # of one log: those of 2,000 ranks that tell as often as the workload does
_MAX_LINE = 1 << 20  # characters; a pair of Megatron's has about 15
_MAX_RANK = 1 << 20
_NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"

MARK = "own time:"
_OWN = re.compile(
    rf"own time: rank (\d{{1,7}}) of \d{{1,7}}, steps (\d{{1,9}}) to (\d{{1,9}}),"
    rf" {_NUMBER} ms each, waiting {_NUMBER} ms\s*$"
)
MARKS = (MARK, "MnEtpt/Rnk", "^^^^ ")
"""A line of interest holds one of these."""
_LOWEST = re.compile(rf"\bMnEtpt/Rnk: {_NUMBER}TF/(\d{{1,7}}) \| MxEtpt/Rnk: {_NUMBER}TF/(\d{{1,7}})\b")
_MANY = re.compile(r"\^\^\^\^ (Bottom|Top)\s{1,8}\d{1,7} Ranks with (?:lowest|highest)\s{1,4}Etpt\(TF\):")
_PAIR = re.compile(rf" {_NUMBER}/(\d{{1,7}}),")


class WindowReader:
    """Collects them from a log."""

    def __init__(self) -> None:
        self._own: list[Window] = []
        self._reported: list[Window] = []
        self._extremes: list[Extremes] = []
        self._report = 0
        self._seen: set[int] = set()  # ranks of the report that is being read
        self._beyond = 0

    def line(self, line: str) -> None:
        """Read a line that may hold one of MARKS."""
        if any(mark in line for mark in MARKS) and len(line) <= _MAX_LINE and line.endswith("\n"):
            self._line(strip_escapes(line))

    def measured(self) -> Measured:
        """Return what the lines held."""
        return Measured(
            own=tuple(self._own),
            reported=tuple(self._reported),
            extremes=tuple(self._extremes),
            beyond=self._beyond,
        )

    def _line(self, line: str) -> None:
        if found := _OWN.search(line):
            self._keep(self._own, int(found[1]), int(found[2]), int(found[3]), float(found[4]))
        elif found := _LOWEST.search(line):
            self._report += 1
            self._seen = set()
            low, high = float(found[1]), float(found[3])
            if low > 0 and math.isfinite(high / low) and len(self._extremes) < MAX_WINDOWS:
                self._extremes.append(Extremes(slowest=int(found[2]), slower=max(high / low - 1, 0.0)))
        elif (found := _MANY.search(line)) and self._report:
            for value, rank in _PAIR.findall(line, found.end()):
                if float(value) > 0 and int(rank) not in self._seen:
                    self._seen.add(int(rank))
                    self._keep(self._reported, int(rank), self._report, self._report, 1 / float(value))

    def _keep(self, where: list[Window], rank: int, first: int, last: int, own: float) -> None:
        if not (own > 0 and rank < _MAX_RANK and first <= last):
            return
        if len(where) >= MAX_WINDOWS:
            self._beyond += 1
            return
        where.append(Window(rank=rank, first=first, last=last, own=own))
