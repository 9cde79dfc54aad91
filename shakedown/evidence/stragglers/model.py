"""What ranks say of their own time, and what it comes to."""

from typing import Annotated, Literal

from pydantic import Field

from shakedown.common.frozen import Frozen

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
