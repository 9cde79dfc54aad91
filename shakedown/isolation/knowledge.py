"""What is known of the nodes after the trainings so far. Computed anew from them each time: that is all the state there
is, so that an interrupted search goes on from its file."""

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
BEYOND = 1e-4  # of what is low enough to clear a node: three passes of a bad one, or more, would be needed for it
CONVINCED_SHARED = 0.995  # the same of a cause that nodes share
MISSED_SHARED = 0.0005  # probability of any such cause, below which a search may end without a name
PROBABLE = 0.9
_SEEN = 20  # trainings that the given noise weighs against what was seen
_DOUBTED = 0.3  # probability to fail now and then, from which a node is tried further
_BUSY = 0.1  # share of good trainings that fail, above which nothing shared is named: too little is seen of one pair
ANSWERS = 3  # of one group: two of three decide
SILENT = 2
"""Trainings of one group that come to nothing, where no other nodes can be asked the same: the second time may be the
lock of another job that is gone. Where others can, the group is not tried again."""
GIVEN_UP = 3  # trainings of a node, in different company, that came to nothing
SHARED_FAILURES = 2  # trainings that a shared cause has to have touched and that failed
FAILURES = 3
"""Failures, each in other company, without which nobody is named, whatever the probability is."""


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
        return {each.group.id for shared in self.shared for each in shared.touched}


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
        """Those that say something."""
        return [each for each in self.trainings if each.outcome != "unknown"]

    @cached_property
    def shape(self) -> Shape:
        return Shape.of(self.problem)

    def _believed(self, noise: Noise, without: frozenset[str] = frozenset()) -> Beliefs:
        """Shared causes are named one after the other: what one touches says nothing of the next. `without`: nodes
        whose trainings are explained."""
        told = [*self.told]
        if self.problem.failed:
            whole = Group(id="0", nodes=tuple(self.problem.nodes), purpose="closing")
            told.append(Training(group=whole, outcome="fail"))
        told = [each for each in told if not each.nodes & without]
        shared: list[Shared] = []
        while True:
            post = posterior(self.problem, self.shape, told, noise)
            chance, cause = post.likeliest(1)[0]
            if chance <= CONVINCED_SHARED or cause.kind == "size" or noise.false_fail > _BUSY:
                return Beliefs(shared, post)
            touched = [each for each in told if cause.touches(self._members(each), self.shape)]
            if sum(each.outcome == "fail" and each.group.id != "0" for each in touched) < SHARED_FAILURES:
                return Beliefs(shared, post)
            shared.append(Shared(cause, chance, touched))
            told = [each for each in told if each not in touched]

    def _members(self, training: Training) -> Floats:
        found = np.zeros(len(self.place))
        found[[self.place[node] for node in training.group.nodes if node in self.place]] = 1
        return found

    @cached_property
    def _beliefs(self) -> Beliefs:
        return self._believed(self.problem.noise)

    @cached_property
    def _noise(self) -> Noise:
        """What names rest on. Where more trainings fail than the noise explains, of those that have nobody in them who
        would be named, there is more noise than was taken, and a failure tells less. Step times that scatter so much
        that they do not tell are of that noise."""
        bad = {node for node, chance in self.probability.items() if chance > CONVINCED and self._against_enough(node)}
        rest = [
            each.outcome != "pass"
            for each in self.trainings
            if (each.outcome != "unknown" or each.doubt)
            and not each.nodes & bad
            and each.group.id not in self._beliefs.touched
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
        """What is shared beside the nodes that are named."""
        return self._believed(self._noise, frozenset(self.named)) if self.named else self._sober

    @property
    def model(self) -> Posterior:
        """What is not explained yet."""
        return self._without_named.rest

    def _against_enough(self, node: str) -> bool:
        return len(self.against(node)) >= min(FAILURES, len(self.problem.nodes) - 1)

    @cached_property
    def probability(self) -> dict[str, float]:
        """Of each node to be bad, always or now and then."""
        return self._of_nodes(self._beliefs)

    def _of_nodes(self, beliefs: Beliefs) -> dict[str, float]:
        chances = beliefs.rest.nodes + beliefs.rest.sometimes
        return dict(zip(self.problem.nodes, np.minimum(chances, 1.0).tolist(), strict=True))

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
        """Nodes of which none is bad, but for the `MISSED` share. What was in a slow group that did not stand out of
        the scatter has to pass as often as a bad one to fail, unless it is far below all doubt by now."""
        bound = MISSED / max(len(self.problem.nodes), 20)
        doubted = frozenset[str]().union(*(each.nodes for each in self.trainings if each.doubt == "peers"))
        enough = min(FAILURES, max(len(self.problem.nodes) - 2, 1))
        return {
            node
            for node, bad in self._bad.items()
            if bad < bound
            and self._sometimes[node] < _DOUBTED
            and self.passed[node] >= (enough if node in doubted and bad > bound * BEYOND else 1)
        }

    @cached_property
    def _bad(self) -> dict[str, float]:
        """Of each node to be bad always: what fails now and then takes more than that to clear (`missed.py`)."""
        return dict(zip(self.problem.nodes, self._beliefs.rest.nodes.tolist(), strict=True))

    @cached_property
    def _sometimes(self) -> dict[str, float]:
        return dict(zip(self.problem.nodes, self._beliefs.rest.sometimes.tolist(), strict=True))

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
        for node, chance in self._of_nodes(self._sober).items():
            if chance > CONVINCED and self._against_enough(node):
                against = self.against(node)
                found[node] = Suspect(
                    kind="node",
                    nodes=(node,),
                    without=(node,),
                    trainings=tuple(each.group.id for each in against),
                    probability=chance,
                    why=against[0].why,
                )
        return found

    @cached_property
    def shared(self) -> list[Suspect]:
        """Links, uplinks and trunks that are said to be bad."""
        return [self._suspect(each) for each in self._without_named.shared]

    @cached_property
    def likely_shared(self) -> list[Suspect]:
        """The same before more noise is taken than was given: enough to keep nodes apart."""
        return [self._suspect(each) for each in self._beliefs.shared] or self.shared

    def _suspect(self, shared: Shared) -> Suspect:
        which, kind = shared.cause.which, shared.cause.kind
        failed = [each for each in shared.touched if each.outcome == "fail" and each.group.id != "0"]
        nodes = tuple(self.shape.names[index] for index in which) if kind == "link" else ()
        racks = tuple(self.shape.racks[index] for index in which) if kind in ("uplink", "trunk") else ()
        of_racks: list[list[str]] = [
            [name for name in self.problem.nodes if self.problem.racks.get(name) == rack] for rack in racks
        ]
        assert kind != "size"
        return Suspect(
            kind=kind,
            nodes=nodes,
            racks=racks,
            without=tuple(sorted(of_racks, key=len)[0]) if racks else nodes[-1:],
            trainings=tuple(each.group.id for each in failed),
            probability=shared.probability,
            why=failed[0].why,
        )

    def of_part(self, nodes: Set[str]) -> Knowledge:
        """What is known of some nodes, by the trainings that only they took part in."""
        rounds = [[each for each in trainings if each.nodes <= nodes] for trainings in self.rounds]
        part = {"nodes": [node for node in self.problem.nodes if node in nodes], "failed": False}
        return Knowledge(self.problem.model_copy(update=part), rounds, self.run_id)

    def words(self, cause: Cause) -> str:
        """A shared cause by its names."""
        if cause.kind == "size":
            return f"{cause.which[0]} nodes or more"
        names = self.shape.names if cause.kind == "link" else self.shape.racks
        return f"{cause.kind} {' - '.join(names[index] for index in cause.which)}"

    @cached_property
    def left_out(self) -> set[str]:
        """The nodes without which the others are said to train."""
        found = set(self.named)
        for suspect in self.shared:
            if not found & {*suspect.nodes}:
                found |= {*suspect.without}
        return found

    @cached_property
    def open(self) -> list[str]:
        """Nodes that are neither cleared nor named."""
        return [node for node in self.problem.nodes if node not in self.cleared and node not in self.named]

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
