"""A plan in the making: what is known, what was derived and why, and what is wrong so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shakedown.desired.models import DesiredState, Smoke
from shakedown.desired.problems import Problem
from shakedown.smoke.launch import Derived
from shakedown.smoke.recipe import Recipe
from shakedown.state import NodeState


@dataclass
class Draft:
    """`desired` and `states` are of the participants, in rank order; `smoke` is the master's section."""

    run_id: str
    recipe: Recipe
    desired: dict[str, DesiredState]
    states: dict[str, NodeState]
    smoke: Smoke
    alone: bool = False  # each node has a job like this for itself
    derived: list[Derived] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The first node: global rank 0 is there."""
        return next(iter(self.states))

    @property
    def is_distributed(self) -> bool:
        """More nodes than one."""
        return len(self.states) > 1

    def tell(self, name: str, value: object, why: str) -> None:
        """A derived value, with its reason for the reader of the plan."""
        self.derived.append(Derived(name=name, value=str(value), why=why))

    def refuse(self, where: str, path: str, value: object, expected: str) -> None:
        """Something that cannot be, or does not fit."""
        self.problems.append(Problem(where, path, str(value), expected))

    def add(self, told: Iterable[Derived], problems: Iterable[Problem]) -> None:
        """What another part of the plan has found."""
        self.derived += told
        self.problems += problems
