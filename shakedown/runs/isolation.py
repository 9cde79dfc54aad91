"""What a search for the bad node is given, what it tried, and what it came to: isolation.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from shakedown.common.text import printable
from shakedown.state.findings import Verdict

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Outcome = Literal["pass", "fail", "unknown"]
Purpose = Literal["groups", "halves", "regroup", "confirm", "across", "again", "closing"]
"""Why a group trains: the first groups; parts of a group that failed; nodes that passed, mixed anew; one node with
others that are cleared; parts of two sides that pass by themselves; the same once more; all without the suspects."""

_NODES = 20_000


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Hint(_Part):
    """Cheaper evidence against a node: a finding, an outlier, a straggler, a trial. It names nobody: it only has the
    node tried sooner and in a smaller group."""

    node: Name
    source: Annotated[str, StringConstraints(max_length=100)]  # "finding pcie.width", "straggler", "trial gemm"
    text: Annotated[str, StringConstraints(max_length=500)] = ""
    odds: Annotated[float, Field(gt=0, le=1e4, allow_inf_nan=False)] = 10.0
    """How many times likelier this is of a bad node than of a good one."""

    def __str__(self) -> str:
        return f"{self.node}: {self.source}{f': {self.text}' if self.text else ''}"


class Noise(_Part):
    """How often one training is wrong, as a share of trainings."""

    false_fail: Annotated[float, Field(gt=0, lt=0.5)] = 0.02  # of good nodes only
    missed: Annotated[float, Field(gt=0, lt=0.5)] = 0.05  # with a bad node


class Problem(_Part):
    """What is searched. The order of `nodes` is the inventory's."""

    nodes: Annotated[list[Name], Field(max_length=_NODES)]
    racks: dict[Name, str] = {}  # node -> what it shares with others: a rack, a leaf switch
    hints: Annotated[list[Hint], Field(max_length=_NODES)] = []
    unfit: dict[Name, str] = {}  # not searched, and why: nodes that no training can be tried on
    failed: bool = False  # a training over all of them has failed
    noise: Noise = Noise()
    smallest: Annotated[int, Field(ge=2, le=64)] = 2  # nodes of a group at least
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None  # at most; None: as `most_rounds` says
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # at most, in all
    seed: int = 0
    again: Annotated[int, Field(ge=0)] = 0
    """Rounds of which those that came to nothing may be tried again: a person has gone on with the search since."""

    @model_validator(mode="after")
    def _each_once(self) -> Problem:
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("nodes: each once")
        return self


class Group(_Part):
    """Nodes that are to train together. `pads` are of them those that are only there to fill the group."""

    id: str  # round.group, as 3.2
    nodes: tuple[Name, ...]
    pads: tuple[Name, ...] = ()
    purpose: Purpose
    parent: str | None = None  # the group that it is a part of

    @property
    def asked(self) -> tuple[str, ...]:
        """The nodes that the question is about."""
        return tuple(node for node in self.nodes if node not in self.pads)


class Training(_Part):
    """A group and what its training came to."""

    group: Group
    outcome: Outcome
    why: Annotated[str, StringConstraints(max_length=600)] = ""  # the evidence in a line
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    step_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # an iteration's time
    doubt: Literal["near", "peers"] | None = None
    """Why the time of an iteration did not decide it: near the threshold, where the same group is tried again and two
    of three decide; or its peers are too few, or differ too much, where it is judged again once there are more."""
    logs: Annotated[str, StringConstraints(max_length=4096)] = ""  # folder, relative to the run directory

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self.group.nodes)


Launcher = Callable[[Sequence[Group]], Sequence[Training]]
"""Trains groups that share no node, all at once, and says what each came to, in their order. It never raises for a
group that fails; one that could not be tried is `unknown`, with why."""


class Suspect(_Part):
    """A node, the link between two nodes, the uplink of a rack or the trunk between two, and the trainings that say so.
    Of what racks share no node is named."""

    kind: Literal["node", "link", "uplink", "trunk"]
    nodes: tuple[Name, ...]  # of a link: its ends
    racks: tuple[str, ...] = ()
    without: tuple[Name, ...] = ()  # nodes without which the others train
    trainings: tuple[str, ...]  # ids of those that failed
    probability: float
    why: str = ""

    def __str__(self) -> str:
        if self.kind == "node":
            return self.nodes[0]
        return (
            f"uplink of {self.racks[0]}"
            if self.kind == "uplink"
            else f"{self.kind} {' - '.join(self.nodes or self.racks)}"
        )


class Result(_Part):
    """The end of a search. Who is in none of the three was `unfit`."""

    suspects: list[Suspect] = []
    cleared: list[Name] = []
    undecided: dict[Name, str] = {}  # node -> why
    conclusion: str  # one sentence
    systemic: bool = False  # it is no node: too many are suspect, or it fails only at size

    @property
    def verdict(self) -> Verdict:
        """Suspects are a failure; without any, what could not be decided is unknown."""
        if self.suspects:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.undecided or self.systemic else Verdict.OK


class Isolation(BaseModel):
    """isolation.json: written after each round, and enough to go on from."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    run_id: str = ""
    inventory: str = ""
    problem: Problem
    rounds: list[list[Training]] = []
    result: Result | None = None

    @property
    def trainings(self) -> list[Training]:
        return [training for each in self.rounds for training in each]

    @property
    def seconds(self) -> float:
        """What the rounds took: the trainings of a round run side by side."""
        return sum(max((training.seconds for training in each), default=0.0) for each in self.rounds)


def short(text: str) -> str:
    """Evidence as a `Training` keeps it."""
    return printable(text, 600)
