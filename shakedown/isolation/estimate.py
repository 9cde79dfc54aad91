"""The expected cost of a search, before it starts: the same search over simulated nodes."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from shakedown.common.text import counted
from shakedown.isolation.strategy import LEAST_NODES, most_rounds, search
from shakedown.runs.isolation import Group, Isolation, Noise, Problem, Training

_PLAYS = 12  # of each kind; of large racks fewer
_LARGE = 256
TRAINING_S = 60.0
"""Seconds that a training is taken to last before one has run: most of it is the start of the program."""


@dataclass(frozen=True)
class Estimate:
    """Rounds and trainings: the medians of simulated searches with all nodes good, and with one bad."""

    nodes: int
    first_round: int  # trainings
    good: tuple[int, int]  # rounds, trainings
    one_bad: tuple[int, int]
    at_most: int  # rounds
    most_groups: int  # in a round
    at_most_s: float | None
    seconds: float  # of one training, as is assumed

    def lines(self) -> list[str]:
        """Write the estimate for a person who decides whether to start the search."""
        if self.nodes < LEAST_NODES:
            return [f"{counted(self.nodes, 'node')}: a search needs at least {LEAST_NODES} to tell which is bad"]
        kinds = (("if no node is bad", self.good), ("if one is", self.one_bad))
        costs = [
            f"{text}: about {counted(rounds, 'round')} and {counted(trainings, 'training')},"
            f" {duration(rounds * self.seconds)}"
            for text, (rounds, trainings) in kinds
        ]
        bound = f"at most {counted(self.at_most, 'round')} of up to {counted(self.most_groups, 'training')}"
        if self.at_most_s is not None:
            bound += f" and {duration(self.at_most_s)}"
        else:
            bound += f", {duration(self.at_most * self.seconds)}"
        groups = counted(self.first_round, "group")
        return [
            f"{counted(self.nodes, 'node')}; the first round trains {groups} at once",
            *costs,
            f"{bound} (assuming {duration(self.seconds)} for a training)",
        ]


@dataclass
class _Simulation:
    """A launcher that trains no node: a training fails by chance, as `noise` has it."""

    bad: frozenset[str]
    random: random.Random
    noise: Noise
    seconds: float
    trainings: int = 0

    def __call__(self, groups: Sequence[Group]) -> list[Training]:
        self.trainings += len(groups)
        return [self._train(group) for group in groups]

    def _train(self, group: Group) -> Training:
        chance = 1 - self.noise.missed if self.bad & {*group.nodes} else self.noise.false_fail
        failed = self.random.random() < chance
        return Training(group=group, outcome="fail" if failed else "pass", seconds=self.seconds)


def estimate(problem: Problem, seconds: float) -> Estimate:
    """Simulate the search with these nodes, hints and limits; `seconds` is the assumed time of one training."""
    plays = _PLAYS if len(problem.nodes) <= _LARGE else 3
    costs: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    first = 0
    for bad in costs:
        for seed in range(plays):
            draw = random.Random(f"estimate/{bad}/{seed}")
            wrong = frozenset(draw.sample(problem.nodes, min(bad, len(problem.nodes))))
            isolation = Isolation(problem=problem)
            launch = _Simulation(wrong, draw, problem.noise, seconds)
            search(isolation, launch)
            first = len(isolation.rounds[0]) if isolation.rounds else 0
            costs[bad].append((len(isolation.rounds), launch.trainings))
    good, one = (
        (round(statistics.median(r for r, _ in cost)), round(statistics.median(t for _, t in cost)))
        for cost in costs.values()
    )
    at_most = problem.rounds or most_rounds(len(problem.nodes))
    most_groups = max(len(problem.nodes) // problem.smallest, 1)
    return Estimate(len(problem.nodes), first, good, one, at_most, most_groups, problem.seconds, seconds)


def duration(seconds: float) -> str:
    """Write seconds for a person."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
