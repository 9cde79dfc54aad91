"""What is known of the nodes after the trainings so far. Computed anew from them each time: that is all the state there
is, so that an interrupted search goes on from its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shakedown.isolation.belief import marginals
from shakedown.isolation.model import Noise, Problem, Suspect, Training

_Beliefs = tuple[dict[str, float], dict[frozenset[str], float]]

PRIOR = 0.02
"""How many nodes are bad, before anything is known: Meta's and others' fleets have a few per cent in repair; what is
found differs little between 0.005 and 0.05."""

CONVINCED = 0.998  # probability to be bad above which a node may be named
MISSED = 0.02  # probability of all cleared nodes together that one of them is bad
BEYOND = 1e-4  # of what is low enough to clear a node: three passes of a bad one, or more, would be needed for it
PROBABLE = 0.9
_SEEN = 20  # trainings that the given noise weighs against what was seen
ANSWERS = 3  # of one group: two of three decide
SILENT = 2
"""Trainings of one group that come to nothing, where no other nodes can be asked the same: the second time may be the
lock of another job that is gone. Where others can, the group is not tried again."""
GIVEN_UP = 3  # trainings of a node, in different company, that came to nothing
FAILURES = 3
"""Failures, each in other company, without which nobody is named, whatever the probability is."""


@dataclass(frozen=True)
class Knowledge:
    """The problem, and what was tried."""

    problem: Problem
    rounds: Sequence[Sequence[Training]]
    run_id: str = ""
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
    def _beliefs(self) -> _Beliefs:
        return self._believed(self.problem.noise)

    @cached_property
    def _sober(self) -> _Beliefs:
        """The beliefs that names rest on. Where more trainings fail than the noise explains, of those that have nobody
        in them who would be named, there is more noise than was taken, and a failure tells less. Step times that
        scatter so much that they do not tell are of that noise."""
        nodes, between = self._beliefs
        bad = {node for node, chance in nodes.items() if chance > CONVINCED and self._against_enough(node)}
        pairs = [pair for pair, chance in between.items() if chance > CONVINCED and self._is_pair(pair)]
        rest = [
            each.outcome != "pass"
            for each in self.trainings
            if (each.outcome != "unknown" or each.doubt)
            and not each.nodes & bad
            and not any(pair <= each.nodes for pair in pairs)
        ]
        noise = self.problem.noise
        seen = (sum(rest) + noise.false_fail * _SEEN) / (len(rest) + _SEEN)
        if not (bad or pairs) or seen <= noise.false_fail:
            return self._beliefs
        return self._believed(noise.model_copy(update={"false_fail": min(seen, 0.49)}))

    def _is_pair(self, nodes: frozenset[str]) -> bool:
        return len(nodes) <= self.problem.smallest

    def _against_enough(self, node: str) -> bool:
        return len(self.against(node)) >= min(FAILURES, len(self.problem.nodes) - 1)

    def _believed(self, noise: Noise) -> _Beliefs:
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
        found = marginals(odds / (1 + odds), groups, failed, noise).tolist()
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
        """How often each node was in a group that passed, less how often in one that was slow, though not beyond what
        such groups scatter: a slow node passes now and then, and its other trainings would not count."""
        counts = dict.fromkeys(self.problem.nodes, 0)
        for each in self.trainings:
            if each.outcome == "pass" or each.doubt == "peers":
                for node in each.nodes:
                    counts[node] += 1 if each.outcome == "pass" else -1
        return counts

    @cached_property
    def cleared(self) -> set[str]:
        """Nodes of which none is bad, but for the `MISSED` share. What is in doubt has to pass as often
        as a bad one to fail: one of a pair that failed twice, whose link would be named for a bad node that passed;
        one that was in a slow group which did not stand out of the scatter. Unless it is far below all doubt by now."""
        bound = MISSED / max(len(self.problem.nodes), 20)
        pairs = (nodes for nodes, (_, fails) in self._counts.items() if fails >= 2 and self._is_pair(nodes))
        doubted = frozenset[str]().union(*pairs, *(each.nodes for each in self.trainings if each.doubt == "peers"))
        enough = min(FAILURES, max(len(self.problem.nodes) - 2, 1))
        return {
            node
            for node, bad in self.probability.items()
            if bad < bound and self.passed[node] >= (enough if node in doubted and bad > bound * BEYOND else 1)
        }

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
        for node in [node for node, bad in self._sober[0].items() if bad > CONVINCED]:
            against = self.against(node)
            if self._against_enough(node):
                found[node] = Suspect(
                    kind="node",
                    nodes=(node,),
                    trainings=tuple(each.group.id for each in against),
                    probability=self._sober[0][node],
                    why=against[0].why,
                )
        return found

    @cached_property
    def links(self) -> list[Suspect]:
        """Pairs that are said to be unable to train together: the probability says so, after two failures at least, and
        each of the two is cleared by what it did with others. A node in two such pairs is not cleared by that."""
        found = []
        for nodes, bad in self._sober[1].items():
            if bad > CONVINCED and self._is_pair(nodes) and nodes <= self.cleared:
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
        ends = Counter(node for link in found for node in link.nodes)
        return [link for link in found if not any(ends[node] > 1 for node in link.nodes)]

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

    def came_to_nothing(self, nodes: frozenset[str]) -> list[Training]:
        """The trainings of exactly these nodes that said nothing. One near the threshold is none of them: it counts
        towards two of three."""
        return [each for each in self.silent if each.nodes == nodes]

    @cached_property
    def silent(self) -> list[Training]:
        recent = (each for trainings in self.rounds[self.problem.again :] for each in trainings)
        return [each for each in recent if each.outcome == "unknown" and each.doubt != "near"]

    @cached_property
    def latest(self) -> dict[str, Training]:
        """The last training of each node, whatever it said."""
        return {node: each for each in self.trainings for node in each.nodes}

    @cached_property
    def near(self) -> list[Training]:
        """Those near the threshold that are to be tried again as they are."""
        last = {each.nodes: each for each in self.trainings}
        return [each for each in last.values() if each.doubt == "near"]

    @cached_property
    def given_up(self) -> dict[str, Training]:
        """Nodes that no training says anything about, with the last that did not: groups of few, each with others."""
        company: dict[str, set[frozenset[str]]] = {}
        silent = {each.group.id for each in self.silent if len(each.nodes) <= 2 * self.problem.smallest}
        for each in self.trainings:
            for node in each.nodes:
                if each.outcome != "unknown":
                    company.pop(node, None)
                elif each.group.id in silent and node in each.group.asked:
                    company.setdefault(node, set()).add(each.nodes)
        return {node: self.latest[node] for node, groups in company.items() if len(groups) >= GIVEN_UP}

    def worth_trying(self, nodes: frozenset[str]) -> bool:
        """Whether a group of these nodes may still say something that it has not said."""
        tried = sum(each.nodes == nodes for each in self.trainings)
        return max(self.of(nodes)) < 2 and tried < ANSWERS and not self.came_to_nothing(nodes)

    def undecided(self, nodes: frozenset[str]) -> bool:
        """Whether a group of these nodes is worth trying before others that are: it has not trained yet, or once passed
        and once failed."""
        passes, fails = self.of(nodes)
        return passes == fails and self.worth_trying(nodes)

    @cached_property
    def partners(self) -> dict[str, Counter[str]]:
        """With whom each node has trained in a group of few, and how often."""
        found: dict[str, Counter[str]] = {node: Counter() for node in self.problem.nodes}
        for each in self.trainings:
            if len(each.nodes) <= 2 * self.problem.smallest:
                for node in each.nodes:
                    found[node].update(each.nodes)
        return found
