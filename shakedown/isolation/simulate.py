"""Racks that exist only as numbers, behind the same interface as real ones: what a search costs, and how often it is
right. For the estimate before a search and for the table of docs/isolation.md."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.isolation.search import search
from shakedown.runs.isolation import Group, Isolation, Noise, Problem, Training

_BAD = re.compile(r"bad with a probability of ([0-9.e-]+)")


@dataclass
class Fleet:
    """Nodes of which some are bad, or cannot reach each other. Each training is wrong at the rates of `noise`. With a
    `scatter` the bad ones are slow instead, by a factor: all that is seen of them is the time of an iteration, which is
    the slowest node's, and each node's scatters from training to training (the standard deviation of its logarithm)."""

    bad: frozenset[str]
    random: random.Random
    noise: Noise = field(default_factory=Noise)
    links: Sequence[frozenset[str]] = ()
    racks: Mapping[str, str] = field(default_factory=dict)
    between: Sequence[frozenset[str]] = ()  # of racks: of one its uplink, of two their trunk
    seconds: float = 60.0
    scatter: float | None = None
    slower: float = 2.0
    rate: float | None = None  # of their trainings that bad ones fail; None: all but `noise.missed`
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

    right: bool  # exactly those that are bad were named, and nobody is undecided
    innocent: bool  # somebody was named who is good
    missed: bool  # somebody was cleared who is bad
    trainings: int
    rounds: int
    decided: bool
    isolation: Isolation
    printed: list[tuple[float, bool]]  # each probability that the result has, and whether it was so


def names(count: int) -> list[str]:
    return [f"node{index + 1:04d}" for index in range(count)]


def racks_of(nodes: Sequence[str], size: int) -> dict[str, str]:
    """Racks of so many nodes, in order."""
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
    """Search so many nodes, of which so many are bad, and so many pairs cannot reach each other. With a `scatter` the
    bad ones take twice the time, with a `rate` they fail so many of their trainings. `rack`: nodes in each rack, if
    racks are known; `between`: of how many of these what they share is bad (1: an uplink, 2: a trunk)."""
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
            *((each.probability, frozenset(each.nodes or each.racks) in true) for each in result.suspects),
            *(
                (float(figure[1]), node in wrong)
                for node, why in result.undecided.items()
                if (figure := _BAD.match(why))
            ),
        ],
    )


def least_trainings(count: int, bad: int) -> int:
    """ceil(log2 C(n, k)): no scheme of trainings that pass or fail can do with fewer, even without noise."""
    return math.ceil(math.log2(math.comb(count, bad))) if bad else 0


def halving(count: int, bad: int, seed: int, noise: Noise | None = None, repeats: int = 1) -> tuple[bool, int, int]:
    """Plain halving down to single nodes, as a yardstick: (exactly right, trainings, rounds). All of it is believed;
    `repeats` takes the majority of so many trainings."""
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
