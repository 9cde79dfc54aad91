"""Simulated searches: how often they are right, and what they cost. For the tables of docs/developers/accuracy.md."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.isolation.strategy import search
from shakedown.runs.isolation import Group, Isolation, Noise, Problem, Training

_BAD = re.compile(r"bad with a probability of ([0-9.e-]+)")


@dataclass
class Fleet:
    """Nodes of which some are bad, or cannot reach each other. A training is wrong at the rates of `noise`.

    With a `scatter` bad nodes are slow by a factor instead, and only the time of an iteration shows them. That time is
    the slowest node's; a node's time scatters from training to training (standard deviation of its logarithm).
    """

    bad: frozenset[str]
    random: random.Random
    noise: Noise = field(default_factory=Noise)
    links: Sequence[frozenset[str]] = ()
    racks: Mapping[str, str] = field(default_factory=dict)
    between: Sequence[frozenset[str]] = ()  # of racks: of one its uplink, of two their trunk
    seconds: float = 60.0
    scatter: float | None = None
    slower: float = 2.0
    rate: float | None = None  # the share of trainings that a bad node fails; None: all but `noise.missed`
    played: int = field(default=0)

    def __call__(self, groups: Sequence[Group]) -> list[Training]:
        return [self._train(group) for group in groups]

    def _train(self, group: Group) -> Training:
        self.played += 1
        nodes = frozenset(group.nodes)
        if self.scatter is not None:
            return self._timed(group, self.scatter)
        wrong = bool(nodes & self.bad) or any(link <= nodes for link in self.links)
        spanned = {self.racks[node] for node in nodes if node in self.racks}
        wrong |= len(spanned) > 1 and any(racks <= spanned for racks in self.between)
        rate = 1 - self.noise.missed if self.rate is None else self.rate
        chance = rate if wrong else self.noise.false_fail
        failed = self.random.random() < chance
        return Training(group=group, outcome="fail" if failed else "pass", seconds=self.seconds)

    def _timed(self, group: Group, scatter: float) -> Training:
        if self.random.random() < self.noise.false_fail:
            return Training(group=group, outcome="fail", seconds=self.seconds)
        factors = (self.slower if node in self.bad else 1.0 for node in group.nodes)
        step = 100 * max(factor * self.random.lognormvariate(0, scatter) for factor in factors)
        return Training(group=group, outcome="pass", seconds=self.seconds, step_ms=step)


@dataclass(frozen=True)
class Played:
    """One simulated search."""

    right: bool  # exactly the bad nodes were named, and no node is undecided
    innocent: bool  # a good node was named
    missed: bool  # a bad node was cleared
    trainings: int
    rounds: int
    decided: bool
    isolation: Isolation
    printed: list[tuple[float, bool]]  # the probabilities in the result, and whether the cause was bad


def names(count: int) -> list[str]:
    return [f"node{index + 1:04d}" for index in range(count)]


def racks_of(nodes: Sequence[str], size: int) -> dict[str, str]:
    """Divide nodes into racks of `size`, in order."""
    return {node: f"rack{index // size + 1:03d}" for index, node in enumerate(nodes)}


def play(
    count: int,
    bad: int,
    seed: int,
    noise: Noise | None = None,
    links: int = 0,
    scatter: float | None = None,
    rack: int = 0,
    between: int = 0,
    rate: float | None = None,
    failed: bool = False,
    rounds: int | None = None,
) -> Played:
    """Search `count` nodes of which `bad` are bad, with `links` pairs that cannot reach each other.

    With a `scatter` bad nodes take twice the time; with a `rate` they fail that share of their trainings. `rack`: nodes
    of a rack, if racks are known. `between`: 1: the uplink of a rack is bad; 2: the trunk between two racks.
    """
    noise = noise or Noise()
    draw = random.Random(f"{count}/{bad}/{links}/{seed}")
    nodes = names(count)
    racks = racks_of(nodes, rack) if rack else {}
    wrong = frozenset(draw.sample(nodes, bad))
    pairs = [frozenset(draw.sample([node for node in nodes if node not in wrong], 2)) for _ in range(links)]
    of_racks = [frozenset(draw.sample(sorted(set(racks.values())), between))] if between else []
    fleet = Fleet(wrong, draw, noise, pairs, racks, of_racks, scatter=scatter, rate=rate)
    problem = Problem(nodes=nodes, racks=racks, noise=noise, seed=seed, failed=failed, rounds=rounds)
    found = search(Isolation(problem=problem), fleet)
    result = found.result
    assert result is not None
    named = {frozenset(suspect.nodes or suspect.racks) for suspect in result.suspects}
    true = {frozenset([node]) for node in wrong} | set(pairs) | set(of_racks)
    return Played(
        right=named == true and not result.undecided,
        innocent=bool(named - true),
        missed=bool(wrong & set(result.cleared)),
        trainings=fleet.played,
        rounds=len(found.rounds),
        decided=not result.undecided,
        isolation=found,
        printed=[
            *((suspect.probability, frozenset(suspect.nodes or suspect.racks) in true) for suspect in result.suspects),
            *(
                (float(figure[1]), node in wrong)
                for node, why in result.undecided.items()
                if (figure := _BAD.match(why))
            ),
        ],
    )


def least_trainings(count: int, bad: int) -> int:
    """Return ceil(log2 C(n, k)): no scheme of trainings that pass or fail needs fewer, even without noise."""
    return math.ceil(math.log2(math.comb(count, bad))) if bad else 0


def halving(count: int, bad: int, seed: int, noise: Noise | None = None, repeats: int = 1) -> tuple[bool, int, int]:
    """Simulate plain halving down to single nodes, as a yardstick: (exactly right, trainings, rounds).

    Halving believes every training; `repeats` takes the majority of so many trainings.
    """
    noise = noise or Noise()
    draw = random.Random(f"halving/{count}/{bad}/{seed}")
    wrong = frozenset(draw.sample(range(count), bad))
    groups, named, played, rounds = [list(range(count))], set(), 0, 0
    while groups:
        rounds += repeats
        following: list[list[int]] = []
        for group in groups:
            played += repeats
            chance = 1 - noise.missed if wrong & set(group) else noise.false_fail
            if sum(draw.random() < chance for _ in range(repeats)) * 2 <= repeats:
                continue
            if len(group) == 1:
                named.add(group[0])
            else:
                following += [group[: len(group) // 2], group[len(group) // 2 :]]
        groups = following
    return named == wrong, played, rounds
