"""The search for bad nodes over simulated racks: the same code as over real ones, with seeds."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from bench.plays import Fleet, halving, least_trainings, names, play
from shakedown.isolation.causes import marginals
from shakedown.isolation.knowledge import Knowledge
from shakedown.isolation.strategy import estimate, missed, most_rounds, next_step, search
from shakedown.isolation.tree import lines, tree, verdict_of
from shakedown.runs.isolation import Group, Hint, Isolation, Noise, Problem, Result, Training
from shakedown.state.findings import Verdict

QUIET = Noise(false_fail=1e-6, missed=1e-6)


def fleet(*bad: str, links: Sequence[frozenset[str]] = (), noise: Noise = QUIET) -> Fleet:
    return Fleet(frozenset(bad), random.Random(1), noise, links)


def searched(problem: Problem, launch: Fleet) -> Isolation:
    found = search(Isolation(problem=problem), launch)
    assert found.result is not None
    return found


@pytest.mark.parametrize(("count", "bad"), [(8, 0), (8, 1), (32, 2), pytest.param(64, 3, marks=pytest.mark.long)])
def test_exactly_the_bad_nodes_are_named_in_spite_of_noise(count: int, bad: int) -> None:
    played = [play(count, bad, seed) for seed in range(5)]  # how often a search errs: bench/isolation.py
    assert sum(each.right for each in played) >= 4
    assert sum(each.innocent for each in played) <= 1
    assert max(each.rounds for each in played) <= most_rounds(count)
    assert all(each.trainings >= least_trainings(count, bad) for each in played if bad)


def test_a_slow_node_is_named_by_the_times_of_its_groups_and_cleared_by_none_that_scatter() -> None:
    assert all(play(16, 1, seed, scatter=0.05).right for seed in range(3))
    scattered = [play(16, 1, seed, scatter=0.4) for seed in range(3)]
    assert sum(each.innocent for each in scattered) == 0
    assert sum(each.missed for each in scattered) <= 1
    assert any(not each.decided for each in scattered)


@pytest.mark.parametrize("seed", [133, 151, 174])
def test_a_bad_node_that_passes_by_chance_does_not_make_a_link_of_itself_and_another(seed: int) -> None:
    played = play(8, 1, seed)  # it passes twice with others, and fails twice with one
    assert not played.innocent


def test_where_groups_fail_that_hold_nobody_bad_a_failure_tells_less() -> None:
    nodes = names(16)

    def trained(group: Sequence[int], outcome: Literal["pass", "fail"], number: int) -> Training:
        members = tuple(nodes[index] for index in group)
        return Training(group=Group(id=f"1.{number}", nodes=members, purpose="groups"), outcome=outcome)

    passed = [trained((1 + n % 15, 1 + (n + 5) % 15), "pass", n) for n in range(35)]
    of_one = [trained((0, other), "fail", 50 + other) for other in (1, 2, 3)]
    others = [trained((4 + 2 * n, 5 + 2 * n, 6 + 2 * n), "fail", 60 + n) for n in range(2)]
    for noise, named in ((others[:1], [nodes[0]]), (others, [])):
        assert list(Knowledge(Problem(nodes=nodes), [passed, noise, of_one]).named) == named


def after_a_failed_run(seed: int, rate: float, rounds: int | None = None, count: int = 8) -> Isolation:
    """A search in which node0002 fails so often."""
    problem = Problem(nodes=names(count), failed=True, seed=seed, rounds=rounds)
    bad = Fleet(frozenset(["node0002"] if rate else []), random.Random(f"rate/{seed}"), rate=rate)
    return search(Isolation(run_id="20260101T000000-abcdef", problem=problem), bad)


@pytest.mark.parametrize(("rate", "least"), [(0.3, 1), (0.4, 2), (0.5, 5)])
def test_after_a_failed_run_a_node_that_fails_now_and_then_is_not_cleared(rate: float, least: int) -> None:
    results = [after_a_failed_run(seed, rate).result for seed in range(10)]
    assert sum(each is not None and each.verdict == Verdict.OK for each in results) <= 1
    named = [suspect.nodes for each in results if each is not None for suspect in each.suspects]
    assert named.count(("node0002",)) >= least


@pytest.mark.parametrize(("seed", "rate", "rack"), [(85, 0.5, 4), (32, 0.6, 0), (77, 0.6, 0)])
def test_a_node_that_fails_half_of_its_trainings_and_more_is_no_link_to_a_good_one(
    seed: int, rate: float, rack: int
) -> None:
    assert not play(32, 1, seed, rate=rate, rack=rack, failed=True).innocent


def test_after_a_failed_run_nobody_is_cleared_by_few_trainings() -> None:
    healthy = after_a_failed_run(2, 0)
    assert healthy.result is not None and healthy.result.verdict == Verdict.OK
    assert min(sum(node in each.nodes for each in healthy.trainings) for node in names(8)) >= 9
    assert missed(healthy.problem, healthy.trainings) < 0.05
    cut = after_a_failed_run(1, 0, rounds=4)
    assert cut.result is not None and cut.result.verdict == Verdict.UNKNOWN
    assert set(cut.result.undecided) == set(names(8)) and not cut.result.cleared
    chance = missed(cut.problem, cut.trainings)
    told = f"was missed with a probability of {chance:.0%}: try longer with: shakedown isolate {cut.run_id} --resume"
    assert told in cut.result.conclusion
    assert cut.result.conclusion.startswith("stopped after 4 rounds, the limit; a node that fails in ")
    without = search(Isolation(problem=Problem(nodes=names(8))), fleet())
    assert without.result is not None and without.result.verdict == Verdict.OK and len(without.rounds) < 9


def test_plain_halving_believes_the_noise() -> None:
    right = [halving(32, 2, seed)[0] for seed in range(200)]
    assert 0.45 < sum(right) / len(right) < 0.68  # JUDGEMENT: 0.565 over 2,000 draws
    assert halving(32, 2, 1, QUIET)[0]


def test_a_large_rack_with_a_twentieth_of_it_bad() -> None:
    played = play(256, 13, seed=3)
    assert played.right
    assert played.rounds <= most_rounds(256)


def test_without_noise_a_node_is_named_after_it_failed_with_different_good_nodes() -> None:
    found = searched(Problem(nodes=names(16), noise=QUIET), fleet("node0010"))
    assert found.result is not None
    [suspect] = found.result.suspects
    assert (suspect.kind, suspect.nodes) == ("node", ("node0010",))
    failed = [each for each in found.trainings if each.group.id in suspect.trainings]
    company = [each.nodes - {"node0010"} for each in failed]
    assert len(failed) >= 3
    assert all(each.outcome == "fail" for each in failed)
    assert not frozenset.intersection(*company)
    last = found.trainings[-1]
    assert (last.group.purpose, last.outcome) == ("closing", "pass")
    assert set(last.group.nodes) == set(names(16)) - {"node0010"}
    assert set(found.result.cleared) == set(last.group.nodes)
    assert found.result.verdict == Verdict.FAIL


def test_groups_of_a_round_share_no_node_and_have_two_at_least() -> None:
    for seed in range(4):
        for groups in play(23, 2, seed).isolation.rounds:
            busy = [node for training in groups for node in training.group.nodes]
            assert len(busy) == len(set(busy))
            assert all(len(training.group.nodes) >= 2 for training in groups)


def test_racks_are_the_first_groups() -> None:
    nodes = names(12)
    racks = {node: f"rack{index // 4}" for index, node in enumerate(nodes)}
    step = next_step(Isolation(problem=Problem(nodes=nodes, racks=racks)))
    assert not isinstance(step, Result)
    assert [group.nodes for group in step] == [tuple(nodes[:4]), tuple(nodes[4:8]), tuple(nodes[8:])]


def test_a_node_that_is_hinted_at_is_tried_by_itself_at_once_and_cleared_all_the_same() -> None:
    hint = Hint(node="node0005", source="straggler", odds=50)
    found = searched(Problem(nodes=names(16), hints=[hint], noise=QUIET), fleet())
    first = next(each.group for each in found.rounds[0] if "node0005" in each.group.nodes)
    assert len(first.nodes) == 2
    assert found.result is not None
    assert found.result.suspects == []
    assert "node0005" in found.result.cleared
    bad = searched(Problem(nodes=names(16), hints=[hint], noise=QUIET), fleet("node0005"))
    without = searched(Problem(nodes=names(16), noise=QUIET), fleet("node0005"))
    assert len(bad.rounds) < len(without.rounds)


@pytest.mark.parametrize("link", [("node0001", "node0002"), ("node0003", "node0014")])
def test_two_nodes_that_cannot_train_together_are_a_link_and_neither_is_bad(link: tuple[str, str]) -> None:
    found = searched(Problem(nodes=names(16), noise=QUIET), fleet(links=[frozenset(link)]))
    assert found.result is not None
    [suspect] = found.result.suspects
    assert (suspect.kind, set(suspect.nodes)) == ("link", set(link))
    assert set(link) <= set(found.result.cleared)
    assert len(suspect.trainings) >= 2


@pytest.mark.parametrize(
    ("rack", "links", "between"),
    [
        (0, 1, 0),
        pytest.param(4, 1, 0, marks=pytest.mark.long),
        (4, 0, 1),
        (4, 0, 2),
        (8, 0, 2),
    ],
)
def test_what_nodes_and_racks_share_is_named_and_no_node(rack: int, links: int, between: int) -> None:
    kinds = {(1, 0): "link", (0, 1): "uplink", (0, 2): "trunk"}
    played = [play(16, 0, seed, links=links, rack=rack, between=between) for seed in range(6)]
    assert sum(each.right for each in played) >= 5
    assert not any(each.innocent for each in played)
    for each in played:
        result = each.isolation.result
        assert result is not None
        for suspect in result.suspects:
            assert suspect.kind == kinds[links, between] and suspect.probability > 0.99
            assert all(
                verdict_of(node, result)[0] == Verdict.OK for node in result.cleared if node not in suspect.nodes
            )
            rest = {*names(16)} - {*suspect.without}
            assert any(training.nodes == rest and training.outcome == "pass" for training in each.isolation.trainings)


@pytest.mark.parametrize("between", [1, pytest.param(2, marks=pytest.mark.long)])
def test_beside_a_bad_node_what_a_small_rack_shares_makes_none_of_its_nodes_bad(between: int) -> None:
    played = [play(12, 1, seed, rack=3, between=between, failed=True) for seed in (3, 5, 11)]
    assert not any(each.innocent for each in played)
    assert sum(each.right for each in played) >= 1


def test_an_uplink_of_a_large_rack_is_named_in_few_rounds() -> None:
    played = [play(128, 0, seed, rack=16, between=1) for seed in range(4)]
    assert all(each.right and each.rounds < 20 for each in played)
    [suspect] = played[0].isolation.result.suspects if played[0].isolation.result else []
    assert str(suspect) == f"uplink of {suspect.racks[0]}" and suspect.nodes == () and len(suspect.without) == 16


def test_the_evidence_of_belief_propagation_is_that_of_all_combinations() -> None:
    draw, noise, prior = random.Random(3), Noise(), np.full(8, 0.02)
    for _ in range(10):
        groups = [draw.sample(range(8), draw.choice([2, 3, 4])) for _ in range(8)]
        failed = [(5 in group) != (draw.random() < 0.1) for group in groups]
        found, evidence = marginals(prior, groups, failed, noise)
        total, bad = 0.0, np.zeros(8)
        for nodes in itertools.product([0, 1], repeat=8):
            chance = math.prod(0.02 if each else 0.98 for each in nodes)
            for group, fails in zip(groups, failed, strict=True):
                rate = 1 - noise.missed if any(nodes[index] for index in group) else noise.false_fail
                chance *= rate if fails else 1 - rate
            total, bad = total + chance, bad + chance * np.array(nodes)
        assert evidence == pytest.approx(math.log(total), abs=0.2)
        assert np.abs(found - bad / total).max() < 0.1


class OnlyAtSize(Fleet):
    """Fails with more than so many nodes, whichever they are."""

    def _train(self, group: Group) -> Training:
        return Training(group=group, outcome="fail" if len(group.nodes) > 9 else "pass", seconds=1)


def test_what_fails_only_at_size_is_said_to_be_between_the_nodes() -> None:
    problem = Problem(nodes=names(16), noise=QUIET)
    found = search(Isolation(problem=problem), OnlyAtSize(frozenset(), random.Random(1)))
    assert found.result is not None
    assert found.result.suspects == []
    assert re.match("any 1[0-6] nodes together fail", found.result.conclusion)
    assert set(found.result.undecided) == set(names(16))
    assert found.result.verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(("count", "bad"), [(16, 6), (16, 16), (6, 3)])
def test_more_than_a_third_is_no_node(count: int, bad: int) -> None:
    found = searched(Problem(nodes=names(count), noise=QUIET), fleet(*names(bad)))
    assert found.result is not None
    assert found.result.systemic
    assert found.result.suspects == []
    assert "the cause is not a node" in found.result.conclusion
    assert found.result.verdict == Verdict.UNKNOWN


def test_two_nodes_cannot_be_told_apart() -> None:
    found = searched(Problem(nodes=names(2)), fleet("node0001"))
    assert found.result is not None
    assert "fewer than 3 nodes" in found.result.conclusion
    assert set(found.result.undecided) == set(names(2))


class Unanswered(Fleet):
    """A training with this node comes to nothing."""

    def _train(self, group: Group) -> Training:
        if "node0003" in group.nodes:
            return Training(group=group, outcome="unknown", why="no launch plan")
        return super()._train(group)


def test_a_node_that_cannot_be_tried_is_undecided_and_the_search_ends() -> None:
    found = search(Isolation(problem=Problem(nodes=names(8), noise=QUIET)), Unanswered(frozenset(), random.Random(1)))
    assert found.result is not None
    assert found.result.suspects == []
    assert "node0003" in found.result.undecided
    assert found.result.verdict == Verdict.UNKNOWN


@pytest.mark.parametrize("limit", [{"rounds": 3}, {"seconds": 200.0}])
def test_rounds_and_seconds_are_bounded(limit: dict[str, float]) -> None:
    problem = Problem.model_validate({"nodes": names(64), **limit})
    found = searched(problem, fleet("node0007", "node0050"))
    assert found.result is not None
    assert len(found.rounds) == 3  # of 60 s each
    assert found.result.conclusion.startswith("stopped after")
    assert found.result.undecided
    assert "node0007" not in found.result.cleared


def test_a_search_goes_on_from_its_file_where_it_was_interrupted() -> None:
    problem = Problem(nodes=names(32), seed=5)
    whole = searched(problem, fleet("node0009"))
    kept: list[str] = []
    asked = 0

    def after_two() -> str | None:
        nonlocal asked
        asked += 1
        return "stopped by Ctrl-C" if asked == 3 else None

    first = search(
        Isolation(problem=problem),
        fleet("node0009"),
        lambda isolation: kept.append(isolation.model_dump_json()),
        after_two,
    )
    assert first.result is not None
    assert first.result.conclusion == "stopped by Ctrl-C"
    assert first.result.undecided
    again = Isolation.model_validate_json(kept[-1])
    assert (again.result, len(again.rounds)) == (None, 2)
    assert search(again, fleet("node0009")) == whole


def test_a_launcher_that_answers_another_question_is_refused() -> None:
    with pytest.raises(ValueError, match="must return one training for each group"):
        search(Isolation(problem=Problem(nodes=names(8))), lambda groups: [])


def test_a_rack_of_good_nodes_is_estimated_to_cost_less_than_one_with_a_bad_node() -> None:
    estimated = estimate(Problem(nodes=names(16), noise=QUIET), seconds=60)
    assert all(good < bad for good, bad in zip(estimated.good, estimated.one_bad, strict=True)), estimated
    assert estimated.one_bad[1] < 16, "one after the other would take no longer"


def test_the_cost_is_told_beforehand() -> None:
    assert estimate(Problem(nodes=names(2)), seconds=60).lines() == [
        "2 nodes: a search needs at least 3 to tell which is bad"
    ]
    told = estimate(Problem(nodes=names(64)), seconds=60)
    assert told.first_round == 8
    assert told.good[0] <= told.one_bad[0] <= told.at_most
    text = "\n".join(told.lines())
    assert "the first round trains 8 groups at once" in text
    assert "assuming 60 s for a training" in text


def test_the_tree_shows_how_the_suspect_was_found() -> None:
    found = searched(Problem(nodes=names(16), noise=QUIET), fleet("node0010"))
    shown = list(lines(found))
    assert any(line.startswith("fail") and "groups" in line for line in shown)
    assert any("- fail" in line and "confirm" in line for line in shown)
    assert any(line.startswith("suspect    node0010") for line in shown)
    assert shown[-1].startswith("cleared    node[0001-0009,0011-0016]")
    assert [line for line in shown if line.startswith("round 1:")] == ["round 1: 3 groups passed"]
    assert len([line for line in shown if line.startswith("pass") and " closing " in line]) == 1

    def walk(branches: Sequence[object]) -> int:
        return sum(1 + walk(branch.parts) for branch in branches)  # type: ignore[attr-defined]

    assert walk(tree(found)) == len(found.trainings)
