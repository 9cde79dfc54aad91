"""What is known of each rank of a job that stands still, and what that comes to."""

from typing import Literal

from shakedown.common.frozen import Frozen

Why = Literal["missing", "other collective", "other sizes", "no answer", "all entered", "link", "open"]


class Collective(Frozen):
    """One collective as a rank has it in its record: `sequence` counts those of its process group, from 1."""

    group: str
    sequence: int
    operation: str  # "all_reduce", whatever backend
    sizes: tuple[tuple[int, ...], ...] = ()  # of the inputs
    over: bool  # it is through with it

    def __str__(self) -> str:
        sizes = " and ".join("x".join(map(str, size)) or "one number" for size in self.sizes)
        of = f" (inputs: {sizes})" if sizes else ""
        return f"{self.operation} number {self.sequence}{of} in process group {self.group}"


class Rank(Frozen):
    """What is known of one rank. Without a flight record it has not answered, or has none."""

    rank: int
    node: str
    answered: bool = False  # its flight record is there
    state: str = ""  # of its process: R, S, D, T
    wchan: str = ""  # what it waits for in the kernel
    last: dict[str, int] = {}  # process group -> the last collective that it came to; 0: none
    collectives: tuple[Collective, ...] = ()
    groups: dict[str, tuple[int, ...]] = {}  # process group -> its ranks, as far as this one knows
    unacknowledged: tuple[str, ...] = ()  # addresses whose end of a connection does not acknowledge
    stacks: str = ""

    @property
    def waits_in(self) -> list[Collective]:
        """The collectives that it has come to and is not through with: the oldest of each group."""
        waiting: dict[str, Collective] = {}
        for collective in self.collectives:
            if not collective.over and (
                collective.group not in waiting or collective.sequence < waiting[collective.group].sequence
            ):
                waiting[collective.group] = collective
        return list(waiting.values())


class Hang(Frozen):
    """What a standstill comes to. `culprits` are the ranks that others wait for, for certain; where there are none, the
    `nodes` are those that come into question."""

    why: Why
    culprits: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()  # of these; of a link its ends
    collective: Collective | None = None  # that the others stand in
    entered: tuple[int, ...] = ()  # the ranks that came to it
    missing: tuple[int, ...] = ()  # those that did not
    text: str  # in a sentence
    facts: tuple[str, ...] = ()  # of the culprits: state, stack
