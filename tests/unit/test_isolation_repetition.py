"""No group is trained again without a reason, whatever its trainings come to, and a search always ends in time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from bench.plays import Fleet, names
from shakedown.isolation.strategy import most_rounds, search
from shakedown.runs.isolation import Group, Isolation, Problem, Result, Training

PURPOSES = ("groups", "halves", "regroup", "confirm", "across", "again", "closing")
ONLY_THESE_NODES = ("across", "again", "closing")
"""No other nodes can be asked the same: two of three decide, and twice it may come to nothing."""
BUSY = "another job holds the node"


class Moody(Fleet):
    """How often a training passes, fails, comes to nothing differs from purpose to purpose, and so do step times."""

    def __init__(self, seed: int) -> None:
        super().__init__(frozenset(), random.Random(seed))
        self.rates = {each: [self.random.random() ** 2 + 1e-3 for _ in range(3)] for each in PURPOSES}
        self.scatter = self.random.choice((0.0, 0.1, 0.4))

    def _train(self, group: Group) -> Training:
        (outcome,) = self.random.choices(("pass", "fail", "unknown"), self.rates[group.purpose])
        step = 100 * max(self.random.lognormvariate(0, self.scatter) for _ in group.nodes) if self.scatter else None
        made = {"group": group, "outcome": outcome, "step_ms": step, "why": BUSY if outcome == "unknown" else ""}
        return Training.model_validate(made)


def ended(problem: Problem, launch: Fleet) -> tuple[Isolation, Result]:
    found = search(Isolation(problem=problem), launch)
    assert found.result is not None
    return found, found.result


@pytest.mark.parametrize(
    ("count", "seeds"),
    [(3, 5), (4, 5), (6, 3), *(pytest.param(*each, marks=pytest.mark.long) for each in ((9, 2), (20, 1)))],
)
def test_a_group_is_trained_again_only_where_two_of_three_decide(count: int, seeds: int) -> None:
    for seed in range(seeds):
        found, _ = ended(Problem(nodes=names(count), seed=seed), Moody(seed))
        assert len(found.rounds) <= most_rounds(count)
        tries, silent = Counter[tuple[frozenset[str], str]](), Counter[tuple[frozenset[str], str]]()
        for each in found.trainings:
            tries[each.nodes, each.group.purpose] += 1
            silent[each.nodes, each.group.purpose] += each.outcome == "unknown" and each.doubt is None
        for (nodes, purpose), times in tries.items():
            most = 3 if purpose not in ONLY_THESE_NODES else 9 if len(nodes) == 2 and purpose == "again" else 5
            assert times <= most, (seed, purpose, nodes)
            limit = 2 if purpose in ONLY_THESE_NODES else 1
            assert silent[nodes, purpose] <= limit, (seed, purpose, nodes)


class Silent(Fleet):
    """Trainings of some purposes come to nothing."""

    def __init__(self, *purposes: str, bad: Sequence[str] = (), link: Sequence[str] = ()) -> None:
        super().__init__(frozenset(bad), random.Random(1), links=[frozenset(link)] if link else ())
        self.purposes = purposes
        self.noise = self.noise.model_copy(update={"false_fail": 1e-6, "missed": 1e-6})

    def _train(self, group: Group) -> Training:
        if group.purpose in self.purposes:
            return Training(group=group, outcome="unknown", why=BUSY)
        return super()._train(group)


@pytest.mark.parametrize(
    ("silent", "bad", "link"),
    [
        (PURPOSES, [], []),
        (["halves", "regroup"], ["node0003"], []),
        (["confirm"], ["node0003"], []),
        (["across"], [], ["node0003", "node0010"]),
        (["across", "again"], [], ["node0003", "node0004"]),
        (["closing"], [], []),
    ],
)
def test_a_search_without_answers_ends_early_and_says_why(silent: list[str], bad: list[str], link: list[str]) -> None:
    problem = Problem(nodes=names(12))
    found, result = ended(problem, Silent(*silent, bad=bad, link=link))
    assert len(found.rounds) < most_rounds(12)
    assert result.undecided
    assert result.suspects == []
    assert BUSY in result.conclusion
    if silent == list(PURPOSES):
        assert len(found.rounds) == 3


def test_nodes_whose_training_came_to_nothing_train_next_with_others_and_fewer() -> None:
    class Busy(Fleet):
        def _train(self, group: Group) -> Training:
            if "node0005" in group.nodes:
                return Training(group=group, outcome="unknown", why=BUSY)
            return super()._train(group)

    found, result = ended(Problem(nodes=names(16)), Busy(frozenset(), random.Random(3)))
    tried = [each.nodes for each in found.trainings if "node0005" in each.nodes]
    assert len(tried) == len(set(tried))
    assert len(tried[0]) > len(tried[-1])
    assert set(result.undecided) == {"node0005"}
    assert BUSY in result.undecided["node0005"]


def test_who_goes_on_has_tried_again_what_came_to_nothing() -> None:
    found, result = ended(Problem(nodes=names(12)), Silent(*PURPOSES))
    assert len(found.rounds) == 3 and set(result.undecided) == set(names(12))
    found.result, found.problem = None, found.problem.model_copy(update={"again": 3})
    again = search(found, Silent(bad=["node0007"]))
    assert again.result is not None and [each.nodes for each in again.result.suspects] == [("node0007",)]
    assert len(again.rounds) > 3 and again.result.undecided == {}
