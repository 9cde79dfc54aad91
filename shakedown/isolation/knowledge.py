"""What is known of the nodes after the trainings so far. Computed anew from them each time: that is all the state there
is, so that an interrupted search goes on from its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shakedown.isolation.belief import marginals
from shakedown.isolation.model import Problem, Suspect, Training

PRIOR = 0.02
"""How many nodes are bad, before anything is known: Meta's and others' fleets have a few per cent in repair; what is
found differs little between 0.005 and 0.05."""

CONVINCED = 0.998  # probability to be bad above which a node may be named
MISSED = 0.02  # probability of all cleared nodes together that one of them is bad
PROBABLE = 0.9
FAILURES = 3
"""Failures, each in other company, without which nobody is named, whatever the probability is."""


@dataclass(frozen=True)
class Knowledge:
    """The problem, and what was tried."""

    problem: Problem
    rounds: Sequence[Sequence[Training]]
    place: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place.update({node: index for index, node in enumerate(self.problem.nodes)})

    @cached_property
    def trainings(self) -> list[Training]:
        return [training for each in self.rounds for training in each]

    @cached_property
    def told(self) -> list[Training]:
        """Those that say something: not those without an outcome, nor a first failure of the closing run, which is
        repeated before it counts."""
        return [
            each
            for each in self.trainings
            if each.outcome == "pass"
            or (each.outcome == "fail" and (each.group.purpose != "closing" or self.of(each.nodes)[1] >= 2))
        ]

    @cached_property
    def _beliefs(self) -> tuple[dict[str, float], dict[frozenset[str], float]]:
        problem = self.problem
        count = len(problem.nodes)
        again = [nodes for nodes, (_, fails) in self._counts.items() if fails >= 2]
        odds = np.full(count + len(again), PRIOR / (1 - PRIOR))
        for hint in problem.hints:
            if hint.node in self.place:
                odds[self.place[hint.node]] *= hint.odds
        odds = np.minimum(odds, 1.0)  # a hint alone is never more than even odds
        groups = [
            [*(self.place[node] for node in each.nodes), *self._within(each.nodes, again, count)] for each in self.told
        ]
        failed = [each.outcome == "fail" for each in self.told]
        if problem.failed:
            groups.append(list(range(count + len(again))))
            failed.append(True)
        found = marginals(odds / (1 + odds), groups, failed, problem.noise).tolist()
        return dict(zip(problem.nodes, found, strict=False)), dict(zip(again, found[count:], strict=True))

    @staticmethod
    def _within(nodes: frozenset[str], sets: Sequence[frozenset[str]], count: int) -> list[int]:
        return [count + index for index, each in enumerate(sets) if len(each) <= len(nodes) and each <= nodes]

    @property
    def probability(self) -> dict[str, float]:
        """Of each node to be bad."""
        return self._beliefs[0]

    @property
    def between(self) -> dict[frozenset[str], float]:
        """Of each group that has failed twice: the probability that something between its nodes is bad, whatever they
        are by themselves."""
        return self._beliefs[1]

    @cached_property
    def _counts(self) -> dict[frozenset[str], tuple[int, int]]:
        counts: dict[frozenset[str], tuple[int, int]] = {}
        for each in self.trainings:
            passes, fails = counts.get(each.nodes, (0, 0))
            counts[each.nodes] = (passes + (each.outcome == "pass"), fails + (each.outcome == "fail"))
        return counts

    @cached_property
    def passed(self) -> dict[str, int]:
        """How often each node was in a group that passed."""
        counts = dict.fromkeys(self.problem.nodes, 0)
        for each in self.trainings:
            if each.outcome == "pass":
                for node in each.nodes:
                    counts[node] += 1
        return counts

    @cached_property
    def cleared(self) -> set[str]:
        """Nodes of which none is bad, but for the `MISSED` share."""
        bound = MISSED / max(len(self.problem.nodes), 20)
        return {node for node, bad in self.probability.items() if bad < bound and self.passed[node]}

    def against(self, node: str) -> list[Training]:
        """The failed trainings in which this node was the only one that is not cleared, such that no two of them have
        another node in common: they failed with different company."""
        found: list[Training] = []
        company: set[str] = set()
        for each in sorted(self.told, key=lambda each: len(each.nodes)):
            others = each.nodes - {node}
            if each.outcome == "fail" and node in each.nodes and others <= self.cleared and not others & company:
                found.append(each)
                company |= others
        return found

    @cached_property
    def named(self) -> dict[str, Suspect]:
        """Nodes that are said to be bad: the probability says so, and `FAILURES`, each in company of other nodes
        that are cleared."""
        found = {}
        for node in [node for node, bad in self.probability.items() if bad > CONVINCED]:
            against = self.against(node)
            if len(against) >= min(FAILURES, len(self.problem.nodes) - 1):
                found[node] = Suspect(
                    kind="node",
                    nodes=(node,),
                    trainings=tuple(each.group.id for each in against),
                    probability=self.probability[node],
                    why=against[0].why,
                )
        return found

    @cached_property
    def links(self) -> list[Suspect]:
        """Pairs that are said to be unable to train together: the probability says so, after two failures at least, and
        each of the two is cleared by what it did with others."""
        found = []
        for nodes, bad in self.between.items():
            if bad > CONVINCED and len(nodes) <= self.problem.smallest and nodes <= self.cleared:
                failed = [each for each in self.trainings if each.nodes == nodes and each.outcome == "fail"]
                group = failed[0].group
                found.append(
                    Suspect(
                        kind="link",
                        nodes=group.asked if len(group.asked) == 2 else group.nodes,
                        trainings=tuple(each.group.id for each in failed),
                        probability=bad,
                        why=failed[0].why,
                    )
                )
        return found

    @cached_property
    def open(self) -> list[str]:
        """Nodes that are neither cleared nor named."""
        return [node for node in self.problem.nodes if node not in self.cleared and node not in self.named]

    @cached_property
    def last(self) -> dict[str, Training]:
        """The last training of each node that said something."""
        return {node: each for each in self.told for node in each.nodes}

    def of(self, nodes: frozenset[str]) -> tuple[int, int]:
        """How often exactly these nodes have passed and failed together."""
        return self._counts.get(nodes, (0, 0))

    def unanswered(self, nodes: frozenset[str]) -> int:
        """How often a training of exactly these nodes came to nothing."""
        return sum(each.outcome == "unknown" for each in self.trainings if each.nodes == nodes)

    @cached_property
    def partners(self) -> dict[str, set[str]]:
        """With whom each node has trained in a group of few."""
        found: dict[str, set[str]] = {node: set() for node in self.problem.nodes}
        for each in self.trainings:
            if len(each.nodes) <= 2 * self.problem.smallest:
                for node in each.nodes:
                    found[node] |= each.nodes
        return found
