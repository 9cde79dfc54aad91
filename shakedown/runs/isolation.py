"""The problem, the trainings and the result of a search for a bad node: isolation.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.state.findings import Verdict

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Outcome = Literal["pass", "fail", "unknown"]
Purpose = Literal["groups", "halves", "regroup", "confirm", "across", "again", "closing"]
"""Why a group trains: the first groups; parts of a group that failed; nodes that passed, mixed anew; one node with
cleared nodes; parts of two sides that pass alone; the same group once more; all without the suspects."""

_NODES = 20_000


class Hint(Frozen):
    """Cheaper evidence against a node, as a finding or a straggler: the search only tries that node sooner."""

    node: Name
    source: Annotated[str, StringConstraints(max_length=100)]  # "finding pcie.width", "straggler", "trial gemm"
    text: Annotated[str, StringConstraints(max_length=500)] = ""
    odds: Annotated[float, Field(gt=0, le=1e4, allow_inf_nan=False)] = 10.0
    """How many times likelier the hint is of a bad node than of a good one."""

    def __str__(self) -> str:
        return f"{self.node}: {self.source}{f': {self.text}' if self.text else ''}"


class Noise(Frozen):
    """How often one training is wrong, as a share of trainings."""

    false_fail: Annotated[float, Field(gt=0, lt=0.5)] = 0.02  # of good nodes only
    missed: Annotated[float, Field(gt=0, lt=0.5)] = 0.05  # with a bad node


class Problem(Frozen):
    """The nodes of a search, and its limits. The order of `nodes` is the inventory's."""

    nodes: Annotated[list[Name], Field(max_length=_NODES)]
    racks: dict[Name, str] = {}  # node -> its rack or leaf switch
    hints: Annotated[list[Hint], Field(max_length=_NODES)] = []
    unfit: dict[Name, str] = {}  # nodes that cannot train and are not searched -> reason
    failed: bool = False  # a training over all of them has failed
    noise: Noise = Noise()
    smallest: Annotated[int, Field(ge=2, le=64)] = 2  # nodes of a group at least
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None  # at most; None: as `most_rounds` says
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # at most, in all
    seed: int = 0
    again: Annotated[int, Field(ge=0)] = 0
    """The first rounds, whose groups without a result may train again: a person has resumed the search since."""

    @model_validator(mode="after")
    def _each_once(self) -> Problem:
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("nodes: a node is listed twice")
        return self


class Group(Frozen):
    """Nodes that train together. `pads` are the nodes that only fill the group."""

    id: str  # round.group, as 3.2
    nodes: tuple[Name, ...]
    pads: tuple[Name, ...] = ()
    purpose: Purpose
    parent: str | None = None  # the group that this one is a part of

    @property
    def subjects(self) -> tuple[str, ...]:
        """Return the nodes that the group tests: all but the pads."""
        return tuple(node for node in self.nodes if node not in self.pads)


class Training(Frozen):
    """A group and the outcome of its training."""

    group: Group
    outcome: Outcome
    why: Annotated[str, StringConstraints(max_length=600)] = ""  # the evidence in a line
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    step_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # an iteration's time
    doubt: Literal["near", "peers"] | None = None
    """Why the time of an iteration did not decide. `near` the threshold: the same group trains again, and two of three
    decide. `peers` are too few, or differ too much: the training is judged again once there are more."""
    logs: Annotated[str, StringConstraints(max_length=4096)] = ""  # folder, relative to the run directory

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self.group.nodes)


Launcher = Callable[[Sequence[Group]], Sequence[Training]]
"""Trains groups that share no node, all at once, and returns their trainings in the groups' order. It never raises for
a group that fails; a group that could not train is `unknown`, with the reason."""


class Suspect(Frozen):
    """A node, link, rack uplink or trunk between racks, with failed trainings. Uplinks and trunks name no node."""

    kind: Literal["node", "link", "uplink", "trunk"]
    nodes: tuple[Name, ...]  # of a link: its ends
    racks: tuple[str, ...] = ()
    without: tuple[Name, ...] = ()  # nodes without which the others train
    trainings: tuple[str, ...]  # ids of the failed trainings
    probability: float
    why: str = ""

    def __str__(self) -> str:
        if self.kind == "node":
            return self.nodes[0]
        ends = " - ".join(self.nodes or self.racks)
        return f"uplink of {ends}" if self.kind == "uplink" else f"{self.kind} {ends}"


class Result(Frozen):
    """The end of a search. A node in none of the three lists was `unfit`."""

    suspects: list[Suspect] = []
    cleared: list[Name] = []
    undecided: dict[Name, str] = {}  # node -> reason
    conclusion: str  # one sentence
    systemic: bool = False  # the cause is not a node: too many are suspect, or trainings fail only at size

    @property
    def verdict(self) -> Verdict:
        """Return fail for suspects, else unknown for undecided nodes or a systemic cause, else ok."""
        if self.suspects:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.undecided or self.systemic else Verdict.OK


class Isolation(BaseModel):
    """isolation.json: written after each round, and enough to resume the search."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    schema_version: Literal[1] = 1
    run_id: str = ""
    inventory: str = ""
    problem: Problem
    rounds: list[list[Training]] = []
    result: Result | None = None

    @property
    def trainings(self) -> list[Training]:
        return [training for trainings in self.rounds for training in trainings]

    @property
    def seconds(self) -> float:
        """Return the duration of all rounds: the trainings of a round run side by side."""
        return sum(max((training.seconds for training in trainings), default=0.0) for trainings in self.rounds)


def short(text: str) -> str:
    """Shorten evidence to the length that a `Training` keeps."""
    return printable(text, 600)
