"""What ranks report of their own time, how that is read from a log, and what it comes to, in words too."""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from shakedown.common.frozen import Frozen
from shakedown.common.text import counted, strip_escapes

Level = Literal["notice", "warn", "fail", "undecided"]
_Share = Annotated[float, Field(gt=0, le=10)]


class Limits(Frozen):
    """How much longer than its peers a node's rank may need, as a share of their median. `gate`: whether it is judged,
    or told alone."""

    gate: bool = False
    notice: _Share = 0.05
    warn: _Share = 0.10
    fail: _Share = 0.33
    unequal: str = ""  # why ranks of one role may have unequal work; empty: the layout shows that they have equal work


class Window(Frozen):
    """One rank's own time over some iterations: the mean of an iteration in ms, or what stands for it (Megatron's
    estimated throughput, turned round). Only ratios of it are used."""

    rank: int
    first: int  # iteration; of a program that does not say it, the number of the report
    last: int
    own: float


class Extremes(Frozen):
    """The slowest and the fastest rank of one report of Megatron's, where it gives no more."""

    slowest: int
    slower: float  # by this share of the fastest


class Measured(Frozen):
    """What stands in one node's log. `beyond` counts what was too much to keep."""

    own: tuple[Window, ...] = ()  # of this project's workload: of the node's own ranks
    reported: tuple[Window, ...] = ()  # of Megatron: rank 0 tells for all
    extremes: tuple[Extremes, ...] = ()
    beyond: int = 0


class Slow(Frozen):
    """A node that needs longer than its peers. Its ranks are not named: what is slow is seldom one of them alone."""

    node: str
    level: Level
    slower: float  # its median over the windows, as a share above its peers' median
    peers: int  # nodes with ranks of the same role
    windows: str  # the iterations in which it was so
    role: str = ""  # "stage 1, tensor rank 0"; empty: all ranks have the same
    why: str = ""


class Own(Frozen):
    """A node's own time beside its peers', as a share above their median: over all windows, and in the one in which it
    was least and most behind the middle of all."""

    node: str
    role: str = ""
    slower: float
    least: float
    most: float


class Stragglers(Frozen):
    """What a job's ranks said, judged. `unknown` says why nobody can say that there is no straggler; empty: one can."""

    ranks: int = 0  # that told
    windows: int = 0
    slow: list[Slow] = []
    own: list[Own] = []  # of every node that was compared, the slowest first
    unknown: str = ""
    not_seen: list[str] = []

    def named(self, *levels: Level) -> list[Slow]:
        """Return the slow nodes of these levels."""
        return [node for node in self.slow if node.level in levels]


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
    """Collects the lines in which ranks report their own time: this project's workload's, and Megatron-LM's.

    Megatron with --log-straggler (megatron/core/utils.py, StragglerDetector.report; README_STRAGGLER.md) prints the
    lowest and the highest of everything; with --straggler-minmax-count N, 1 < N < world size, also the N ranks of the
    lowest and the N of the highest estimated throughput (Etpt). Its power has the unit W and is in mW; nothing of that
    is read here.
    """

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


NOT_SEEN = "not seen: waiting inside fused kernels, pipeline bubbles, a slow network"


def sentence(slow: Slow) -> str:
    """Describe one slow node: how much slower than which peers, and when."""
    role = f" ({slow.role})" if slow.role else ""
    why = f", {slow.why}" if slow.why else ""
    return (
        f"{slow.node}{role} needs {slow.slower:.0%} longer than the median of {counted(slow.peers, 'peer')}"
        f" for the same work (windows {slow.windows}{why or ', in every one'})"
    )


def lines(found: Stragglers) -> Iterator[str]:
    """Yield the lines for the user; none where no node is slow."""
    for slow in found.slow:
        yield f"straggler ({slow.level}): {sentence(slow)}"
    if found.slow and not found.unknown:
        yield f"stragglers: {counted(found.ranks, 'rank')} over {counted(found.windows, 'window')}; {NOT_SEEN}"
    if found.unknown:
        yield f"stragglers: not known: {found.unknown}"


OWN_TIMES_HEADER = ("standing", "node", "ranks", "beside the median of its peers", "least and most of a window")


def own_times_rows(found: Stragglers) -> list[tuple[str, ...]]:
    """Return a row for each node in each role, the slowest first."""
    levels = {(times.node, times.role): times.level for times in found.slow}
    return [
        (
            levels.get((times.node, times.role), "ok"),
            times.node,
            times.role or "all",
            f"{times.slower:+.1%}",
            f"{times.least:+.0%} to {times.most:+.0%}",
        )
        for times in found.own
    ]
