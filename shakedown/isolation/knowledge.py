"""The knowledge about nodes, computed anew from the trainings: an interrupted search goes on from its file alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shakedown.isolation.causes import Cause, Floats, Posterior, Shape, posterior
from shakedown.runs.isolation import Group, Noise, Problem, Suspect, Training

CONVINCED = 0.998  # probability to be bad above which a node may be named
MISSED = 0.02  # probability of all cleared nodes together that one of them is bad
BEYOND = 1e-4  # of the bound that clears a node: only three or more passes of a bad node would reach it
CONVINCED_SHARED = 0.995  # the same of a cause that nodes share
MISSED_SHARED = 0.0005  # probability of any such cause, below which a search may end without a name
PROBABLE = 0.9
_SEEN = 20  # trainings that the assumed noise weighs against the observed one
_DOUBTED = 0.3  # probability to fail now and then, from which a node is tried further
_BUSY = 0.1  # share of good trainings that fail, above which no shared cause is named: a pair has too few trainings
ANSWERS = 3  # of one group: two of three decide
SILENT = 2
"""Trainings of a group without result that no other group can replace: another job's lock may be gone."""
GIVEN_UP = 3  # trainings of a node, with different partners, without a result
SHARED_FAILURES = 2  # trainings that a shared cause has to have touched and that failed
FAILURES = 3
"""Failures with different partners that a node needs before it is named, whatever the probability is."""


@dataclass(frozen=True)
class Shared:
    """A cause that several nodes share and that the probability names, with the trainings that it touches."""

    cause: Cause
    probability: float
    touched: list[Training]


@dataclass(frozen=True)
class Beliefs:
    """The shared causes that are named, and the posterior after the trainings that none of them touches."""

    shared: list[Shared]
    rest: Posterior

    @property
    def touched(self) -> set[str]:
        return {training.group.id for shared in self.shared for training in shared.touched}


@dataclass(frozen=True)
class Knowledge:
    """The problem, and the rounds of trainings so far."""

    problem: Problem
    rounds: Sequence[Sequence[Training]]
    run_id: str = ""
    place: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place.update({node: index for index, node in enumerate(self.problem.nodes)})

    @cached_property
    def trainings(self) -> list[Training]:
        return [training for trainings in self.rounds for training in trainings]

    @cached_property
    def decisive(self) -> list[Training]:
        return [training for training in self.trainings if training.outcome != "unknown"]

    @cached_property
    def shape(self) -> Shape:
        return Shape.from_problem(self.problem)

    def _believed(self, noise: Noise, without: frozenset[str] = frozenset()) -> Beliefs:
        """Name shared causes one after the other, by trainings that no cause before touches, `without` bad nodes'."""
        decisive = [*self.decisive]
        if self.problem.failed:
            whole = Group(id="0", nodes=tuple(self.problem.nodes), purpose="closing")
            decisive.append(Training(group=whole, outcome="fail"))
        decisive = [training for training in decisive if not training.nodes & without]
        shared: list[Shared] = []
        while True:
            post = posterior(self.problem, self.shape, decisive, noise)
            chance, cause = post.likeliest(1)[0]
            if chance <= CONVINCED_SHARED or cause.kind == "size" or noise.false_fail > _BUSY:
                return Beliefs(shared, post)
            touched = [training for training in decisive if cause.touches(self._members(training), self.shape)]
            if sum(training.outcome == "fail" and training.group.id != "0" for training in touched) < SHARED_FAILURES:
                return Beliefs(shared, post)
            shared.append(Shared(cause, chance, touched))
            decisive = [training for training in decisive if training not in touched]

    def _members(self, training: Training) -> Floats:
        row = np.zeros(len(self.place))
        row[[self.place[node] for node in training.group.nodes if node in self.place]] = 1
        return row

    @cached_property
    def _beliefs(self) -> Beliefs:
        return self._believed(self.problem.noise)

    @cached_property
    def _noise(self) -> Noise:
        """Estimate the noise for naming nodes by the trainings without a node that would be named: more failures there
        mean that a failure weighs less. Step times within the scatter count as noise."""
        bad = {node for node, chance in self.probability.items() if chance > CONVINCED and self._against_enough(node)}
        rest = [
            training.outcome != "pass"
            for training in self.trainings
            if (training.outcome != "unknown" or training.doubt)
            and not training.nodes & bad
            and training.group.id not in self._beliefs.touched
        ]
        noise = self.problem.noise
        seen = (sum(rest) + noise.false_fail * _SEEN) / (len(rest) + _SEEN)
        if not (bad or self._beliefs.shared) or seen <= noise.false_fail:
            return noise
        return noise.model_copy(update={"false_fail": min(seen, 0.49)})

    @cached_property
    def _sober(self) -> Beliefs:
        return self._beliefs if self._noise == self.problem.noise else self._believed(self._noise)

    @cached_property
    def _without_named(self) -> Beliefs:
        """Return the shared causes beside the nodes that are named."""
        return self._believed(self._noise, frozenset(self.named)) if self.named else self._sober

    @property
    def model(self) -> Posterior:
        """Return the posterior of all that is not explained yet."""
        return self._without_named.rest

    def _against_enough(self, node: str) -> bool:
        return len(self.against(node)) >= min(FAILURES, len(self.problem.nodes) - 1)

    @cached_property
    def probability(self) -> dict[str, float]:
        """Return the probability of each node to be bad, always or now and then."""
        return self._chances(self._beliefs)

    def _chances(self, beliefs: Beliefs) -> dict[str, float]:
        chances = beliefs.rest.nodes + beliefs.rest.sometimes
        return dict(zip(self.problem.nodes, np.minimum(chances, 1.0).tolist(), strict=True))

    @cached_property
    def _counts(self) -> dict[frozenset[str], tuple[int, int]]:
        counts: dict[frozenset[str], tuple[int, int]] = {}
        for training in self.trainings:
            passes, fails = counts.get(training.nodes, (0, 0))
            counts[training.nodes] = (passes + (training.outcome == "pass"), fails + (training.outcome == "fail"))
        return counts

    @cached_property
    def passed(self) -> dict[str, int]:
        """Count each node's passes, less its slow trainings within the scatter: a slow node passes now and then."""
        counts = dict.fromkeys(self.problem.nodes, 0)
        for training in self.trainings:
            if training.outcome == "pass" or training.doubt == "peers":
                for node in training.nodes:
                    counts[node] += 1 if training.outcome == "pass" else -1
        return counts

    @cached_property
    def cleared(self) -> set[str]:
        """Return the good nodes, with a chance of `MISSED` that any is bad. A node of a slow group within the scatter
        needs as many passes as a bad one needs failures, unless its probability is far below the bound."""
        bound = MISSED / max(len(self.problem.nodes), 20)
        doubted = frozenset[str]().union(*(training.nodes for training in self.trainings if training.doubt == "peers"))
        enough = min(FAILURES, max(len(self.problem.nodes) - 2, 1))
        always, sometimes = self._beliefs.rest.nodes.tolist(), self._beliefs.rest.sometimes.tolist()
        return {
            node
            for node, bad, at_times in zip(self.problem.nodes, always, sometimes, strict=True)
            if bad < bound
            and at_times < _DOUBTED  # see also `strategy.missed`
            and self.passed[node] >= (enough if node in doubted and bad > bound * BEYOND else 1)
        }

    def against(self, node: str) -> list[Training]:
        """Return the failed trainings of this node with cleared partners only, such that no two share a partner."""
        failed: list[Training] = []
        company: set[str] = set()
        for training in sorted(self.decisive, key=lambda training: len(training.nodes)):
            others = training.nodes - {node}
            if (
                training.outcome == "fail"
                and node in training.nodes
                and others <= self.cleared
                and not others & company
            ):
                failed.append(training)
                company |= others
        return failed

    @cached_property
    def named(self) -> dict[str, Suspect]:
        """Return the nodes that are bad by their probability and by `FAILURES` failures with different partners."""
        suspects = {}
        for node, chance in self._chances(self._sober).items():
            if chance > CONVINCED and self._against_enough(node):
                against = self.against(node)
                suspects[node] = Suspect(
                    kind="node",
                    nodes=(node,),
                    without=(node,),
                    trainings=tuple(training.group.id for training in against),
                    probability=chance,
                    why=against[0].why,
                )
        return suspects

    @cached_property
    def shared(self) -> list[Suspect]:
        return [self._suspect(shared) for shared in self._without_named.shared]

    @cached_property
    def likely_shared(self) -> list[Suspect]:
        """Return the shared causes by the assumed noise: enough to keep nodes apart."""
        return [self._suspect(shared) for shared in self._beliefs.shared] or self.shared

    def _suspect(self, shared: Shared) -> Suspect:
        which, kind = shared.cause.which, shared.cause.kind
        failed = [training for training in shared.touched if training.outcome == "fail" and training.group.id != "0"]
        nodes = tuple(self.shape.names[index] for index in which) if kind == "link" else ()
        racks = tuple(self.shape.racks[index] for index in which) if kind in ("uplink", "trunk") else ()
        of_racks = [
            tuple(name for name in self.problem.nodes if self.problem.racks.get(name) == rack) for rack in racks
        ]
        assert kind != "size"
        return Suspect(
            kind=kind,
            nodes=nodes,
            racks=racks,
            without=min(of_racks, key=len, default=()) or nodes[-1:],
            trainings=tuple(training.group.id for training in failed),
            probability=shared.probability,
            why=failed[0].why,
        )

    def restrict(self, nodes: Set[str]) -> Knowledge:
        """Return the knowledge about some nodes, by the trainings that no other node took part in."""
        rounds = [[training for training in trainings if training.nodes <= nodes] for trainings in self.rounds]
        part = {"nodes": [node for node in self.problem.nodes if node in nodes], "failed": False}
        return Knowledge(self.problem.model_copy(update=part), rounds, self.run_id)

    def words(self, cause: Cause) -> str:
        """Write a shared cause with the names of its nodes or racks."""
        if cause.kind == "size":
            return f"{cause.which[0]} nodes or more"
        names = self.shape.names if cause.kind == "link" else self.shape.racks
        return f"{cause.kind} {' - '.join(names[index] for index in cause.which)}"

    @cached_property
    def left_out(self) -> set[str]:
        """Return the nodes without which the others should train."""
        nodes = set(self.named)
        for suspect in self.shared:
            if not nodes & {*suspect.nodes}:
                nodes |= {*suspect.without}
        return nodes

    @cached_property
    def open(self) -> list[str]:
        return [node for node in self.problem.nodes if node not in self.cleared and node not in self.named]

    def tally(self, nodes: frozenset[str]) -> tuple[int, int]:
        """Count the passes and the failures of exactly these nodes together."""
        return self._counts.get(nodes, (0, 0))

    def without_result(self, nodes: frozenset[str]) -> list[Training]:
        """Return the trainings of exactly these nodes without a result, except those near the threshold."""
        return [training for training in self.silent if training.nodes == nodes]

    @cached_property
    def silent(self) -> list[Training]:
        recent = (training for trainings in self.rounds[self.problem.again :] for training in trainings)
        return [training for training in recent if training.outcome == "unknown" and training.doubt != "near"]

    @cached_property
    def latest(self) -> dict[str, Training]:
        """Return the last training of each node, whatever its outcome."""
        return {node: training for training in self.trainings for node in training.nodes}

    @cached_property
    def near(self) -> list[Training]:
        """Return the trainings near the threshold whose groups train again unchanged."""
        last = {training.nodes: training for training in self.trainings}
        return [training for training in last.values() if training.doubt == "near"]

    @cached_property
    def given_up(self) -> dict[str, Training]:
        """Return the nodes with `GIVEN_UP` small groups without a result, and the last such training."""
        company: dict[str, set[frozenset[str]]] = {}
        silent = {training.group.id for training in self.silent if len(training.nodes) <= 2 * self.problem.smallest}
        for training in self.trainings:
            for node in training.nodes:
                if training.outcome != "unknown":
                    company.pop(node, None)
                elif training.group.id in silent and node in training.group.subjects:
                    company.setdefault(node, set()).add(training.nodes)
        return {node: self.latest[node] for node, groups in company.items() if len(groups) >= GIVEN_UP}

    def worth_trying(self, nodes: frozenset[str]) -> bool:
        """Return whether a group of these nodes can still show something new."""
        tried = sum(training.nodes == nodes for training in self.trainings)
        return max(self.tally(nodes)) < 2 and tried < ANSWERS and not self.without_result(nodes)

    def undecided(self, nodes: frozenset[str]) -> bool:
        """Return whether a group of these nodes should train before others: it has as many passes as failures."""
        passes, fails = self.tally(nodes)
        return passes == fails and self.worth_trying(nodes)

    @cached_property
    def partners(self) -> dict[str, Counter[str]]:
        """Count how often each node has trained with each other node in small groups."""
        partners: dict[str, Counter[str]] = {node: Counter() for node in self.problem.nodes}
        for training in self.trainings:
            if len(training.nodes) <= 2 * self.problem.smallest:
                for node in training.nodes:
                    partners[node].update(training.nodes)
        return partners
