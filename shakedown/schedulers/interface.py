"""What this package asks of whoever owns the nodes of a site. Each folder beside this module is one scheduler."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from shakedown.common.text import incoming

Say = Callable[[str], None]
Interrupted = Callable[[], str | None]
Answer = tuple[int | None, list[str], list[str]]
"""Of a command: its exit code, and the lines of its output and errors; None: the node did not answer."""


LINES = 200_000  # of a command's output: each costs the controller time, in which it hears no other node


class SchedulerError(Exception):
    """A scheduler did not answer, or refused. The text names the request and the remedy."""


class Node(Protocol):
    """A node as its scheduler has it."""

    @property
    def name(self) -> str:
        """Return the node's name in the scheduler."""

    @property
    def states(self) -> Sequence[str]:
        """Return the scheduler's own words, for a person."""

    @property
    def reason(self) -> str:
        """Return why the node is out of service, as whoever drained it wrote; empty: no reason is written."""

    @property
    def drained(self) -> bool:
        """Tell whether a person or a health check keeps new jobs away."""

    @property
    def down(self) -> bool:
        """Tell whether the node cannot take jobs now."""

    @property
    def allocated(self) -> bool:
        """Tell whether a job is on the node."""

    def why_not(self, allow_allocated: bool = False) -> str:
        """Return why the node cannot be used, for a person; empty: it can."""


Remote = Callable[[str, list[str], str | None, float], Answer]
"""A way to run a command on a node: the node's name in the plan, the command, its standard input, seconds. It never
raises for a node that does not answer: that is (None, [], [reason]) within about as many seconds."""


def pause(seconds: float, interrupted: Interrupted) -> None:
    """Wait, at most until a person stops the run."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not interrupted():
        time.sleep(0.1)


def lines_of(text: str) -> list[str]:
    """Return what a command printed as safe lines. Raise ValueError for more of them than any command means."""
    if text.count("\n") > LINES:
        raise ValueError(f"its command printed more than {LINES} lines")
    return [incoming(line) for line in text.removesuffix("\n").split("\n")] if text else []


class Allocation:
    """Nodes to run jobs on. As it stands, there is nothing to wait for and nothing to give back."""

    def allocate(self, among: Sequence[str], say: Say, interrupted: Interrupted) -> None:
        """Have these nodes, by their names in the inventory. Nodes that are here already cost nothing. The call may
        wait, and reports what for. Raise an error that a person can read where the nodes are refused."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """Open a way to some of the nodes for one job, until the context ends. Raise an error for a person."""
        raise NotImplementedError

    def lost(self) -> str | None:
        """Return why all nodes were taken away while jobs ran; None: they were not. Raise nothing."""
        return None

    def end(self, cancel: bool = False) -> None:
        """Let the nodes go, since all jobs are over. `cancel`: a person has stopped them. Raise nothing."""


class Scheduler(ABC):
    """A scheduler. `settings`: its section of the desired state, without defaults. All methods raise SchedulerError."""

    title: ClassVar[str]  # what people call it
    of_node: ClassVar[frozenset[str]] = frozenset({"node"})  # keys in which hosts of one run may differ
    of_cluster: ClassVar[tuple[str, ...]] = ()  # keys that say which cluster answers
    no_containers: ClassVar[str] = ""  # why its jobs start no containers; empty: they may

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = dict(settings or {})

    @classmethod
    def problems(cls, settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield what in the section prevents jobs: the key, its value and what is expected there."""
        yield from ()

    @abstractmethod
    def read(self, names: Iterable[str] = ()) -> Sequence[Node]:
        """Return all nodes, or the named ones."""

    @abstractmethod
    def drain(self, name: str, reason: str) -> None:
        """Take a node out of service: no new job comes to it, and what runs goes on."""

    @abstractmethod
    def resume(self, name: str, reason: str) -> None:
        """Take away what `drain` has set."""

    def verify(self, name: str, passed: bool, reason: str) -> bool:
        """Show whether a node's last run verified it: it passed, or was named. Return whether there is such a mark."""
        return False

    def jobs_on(self, names: Iterable[str], beside: Allocation | None = None) -> dict[str, list[str]]:
        """Return the jobs of others that hold each node now. Free nodes are absent. `beside`: our own allocation."""
        return {node.name: ["of another user"] for node in self.read(names) if node.allocated}

    @abstractmethod
    def choose(self, conditions: Sequence[str], allow_allocated: bool) -> dict[str, str]:
        """Return the nodes for which all conditions hold, each with why it cannot be used, or "". Raise ValueError."""

    @abstractmethod
    def allocation(self, names: Mapping[str, str], title: str) -> Allocation:
        """Return an allocation for jobs over nodes: their names in the inventory -> in the scheduler."""

    def refused(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return the nodes over which no job would be taken, now or later, each with why. Submit nothing."""
        return {}
