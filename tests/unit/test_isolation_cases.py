"""The search's decisions at the edges of their conditions: tests/data/cases/isolation.jsonl, and groups by hand."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from shakedown.isolation import groups, strategy, tree
from shakedown.isolation.causes import Cause
from shakedown.isolation.groups import _Wanted, first_groups
from shakedown.isolation.knowledge import ANSWERS, GIVEN_UP, Knowledge
from shakedown.isolation.strategy import next_step
from shakedown.runs.isolation import Group, Hint, Isolation, Problem, Result, Training
from tests.cases import cases, wrong

CASES = cases("isolation")


@pytest.mark.parametrize("call", CASES)
def test_a_search_goes_on_as_its_trainings_say(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(CASES[call], monkeypatch) is None


def problem(count: int, racks: str = "", **more: Any) -> Problem:
    """Nodes a, b, c and so on; `racks` has a letter for each."""
    nodes = [chr(ord("a") + index) for index in range(count)]
    return Problem(nodes=nodes, racks=dict(zip(nodes, racks, strict=False)), **more)


def training(group: str, nodes: str, outcome: str = "pass", **more: Any) -> Training:
    return Training(
        group=Group(id=group, nodes=tuple(nodes), purpose="groups"), outcome=outcome, why="w", **more  # type: ignore[arg-type]
    )  # fmt: skip


def knowledge(of: Problem, *rounds: list[Training], cleared: str = "") -> Knowledge:
    found = Knowledge(of, rounds)
    found.__dict__["cleared"] = set(cleared)
    return found


def joined(parts: list[list[str]]) -> list[str]:
    return ["".join(part) for part in parts]


@pytest.mark.parametrize(
    ("racks", "smallest", "parts"),
    [
        ("", 2, ["abc", "de", "fgh"]),
        ("xxxxxxxx", 2, ["abc", "de", "fgh"]),  # one rack tells nothing
        ("xxxxyyyy", 4, ["abcd", "efgh"]),
        ("xxxxyyyy", 5, ["abc", "de", "fgh"]),
        ("xxxxxxyy", 2, ["abcdef", "gh"]),
        ("xxxxxxyy", 3, ["abc", "de", "fgh"]),
        ("xxxxxxxy", 2, ["abc", "de", "fgh"]),
        ("xyxyxyxy", 2, ["aceg", "bdfh"]),
    ],
)
def test_the_first_groups_are_racks_that_are_large_enough(racks: str, smallest: int, parts: list[str]) -> None:
    assert joined(first_groups(problem(8, racks, smallest=smallest))) == parts


@pytest.mark.parametrize(
    ("count", "hinted", "smallest", "parts"),
    [
        (9, "e", 2, ["ec", "ab", "df", "ghi"]),
        (9, "ea", 2, ["ai", "e", "bc", "df", "gh"]),
        (9, "e", 3, ["e", "abc", "df", "ghi"]),  # the largest would be too small itself
        (4, "a", 2, ["a", "b", "cd"]),
        (16, "a", 2, ["ah", "bcd", "efg", "ijkl", "mnop"]),
        (25, "a", 3, ["aij", "bcde", "fgh", "klmno", "pqrst", "uvwxy"]),
    ],
)
def test_a_hinted_node_begins_in_a_small_group_of_its_own(
    count: int, hinted: str, smallest: int, parts: list[str]
) -> None:
    hints = [Hint(node=node, source="x") for node in hinted]
    assert joined(groups._by_hints(Knowledge(problem(count, hints=hints, smallest=smallest), []))) == parts


def wanted(*of: tuple[str, str | None]) -> list[_Wanted]:
    return [_Wanted(list(nodes), "halves", parent) for nodes, parent in of]


@pytest.mark.parametrize(
    ("kept", "alone", "cleared", "result"),
    [
        ([("abc", "1.1"), ("defg", "2.1")], [("h", "1.1")], "", ["abc", "defgh"]),  # not the other half
        ([("abc", "1.1"), ("defg", None)], [("h", "1.1")], "", ["abc", "defgh"]),
        ([("abc", None), ("defg", "1.1")], [("h", None)], "", ["abch", "defg"]),
        ([("abcd", None), ("efg", "1.1")], [("h", None)], "", ["abcd", "efgh"]),
        ([("abc", "1.1")], [("h", "1.1")], "", ["abch"]),
        ([("abc", "1.1")], [("h", "1.1")], "a", ["abc"]),  # with cleared nodes it waits
        ([], [("a", "1.1"), ("b", "2.1"), ("c", "3.1"), ("d", "4.1")], "", ["abcd"]),
        ([], [("ab", "1.1"), ("cd", "2.1"), ("e", "3.1"), ("fg", "3.1")], "", ["abcd", "efg"]),
        ([], [("ab", "1.1")], "", []),
    ],
)
def test_groups_for_which_no_node_is_left_join_others(
    kept: list[tuple[str, str | None]], alone: list[tuple[str, str | None]], cleared: str, result: list[str]
) -> None:
    of = knowledge(problem(9, smallest=3), cleared=cleared)
    before, small = wanted(*kept), wanted(*alone)
    after = [*before, *groups._joined(of, before, small)]
    assert ["".join(group.nodes) for group in after] == result


@pytest.mark.parametrize(
    ("kind", "which", "words"),
    [
        ("size", (6,), "6 nodes or more"),
        ("link", (0, 2), "link a - c"),
        ("uplink", (1,), "uplink y"),
        ("trunk", (0, 1), "trunk x - y"),
    ],
)
def test_a_shared_cause_is_named_by_its_nodes_or_racks(kind: Any, which: tuple[int, ...], words: str) -> None:
    assert Knowledge(problem(4, "xxyy"), []).words(Cause(kind, which)) == words


def test_partners_are_those_of_groups_up_to_twice_the_smallest() -> None:
    of = knowledge(problem(6), [training("1.1", "abcd"), training("1.2", "ef")], [training("2.1", "abcde")])
    assert of.partners["a"] == Counter("abcd") and of.partners["e"] == Counter("ef")


def test_a_part_of_the_knowledge_has_the_trainings_of_its_nodes_alone() -> None:
    part = knowledge(problem(4), [training("1.1", "ab"), training("1.2", "bc"), training("1.3", "b")]).restrict(
        set("ab")
    )
    assert [one.group.id for one in part.trainings] == ["1.1", "1.3"] and part.problem.nodes == ["a", "b"]


@pytest.mark.parametrize(
    ("outcomes", "worth", "undecided"),
    [
        ([], True, True),
        (["pass"], True, False),
        (["pass", "fail"], True, True),
        (["pass", "pass"], False, False),
        (["fail", "fail"], False, False),
        (["unknown"], False, False),
        (["near"], True, True),
        (["near", "near"], True, True),
        (["near"] * ANSWERS, False, False),
    ],
)
def test_a_group_trains_until_two_of_three_decide(outcomes: list[str], worth: bool, undecided: bool) -> None:
    rounds = [
        [training(f"{at}.1", "ab", "unknown" if word == "near" else word, doubt="near" if word == "near" else None)]
        for at, word in enumerate(outcomes, 1)
    ]
    of = knowledge(problem(4), *rounds)
    nodes = frozenset("ab")
    assert (of.worth_trying(nodes), of.undecided(nodes)) == (worth, undecided)


def test_failures_count_with_cleared_partners_that_differ() -> None:
    failed = [training(f"1.{at}", nodes, "fail") for at, nodes in enumerate(["abc", "ab", "ac", "ad", "ade", "bc"], 1)]
    of = knowledge(problem(6), failed, cleared="bc")
    assert [one.group.id for one in of.against("a")] == ["1.2", "1.3"]
    assert [one.group.id for one in knowledge(problem(6), failed[:1], cleared="bc").against("a")] == ["1.1"]
    assert [one.group.id for one in knowledge(problem(6), failed[:1], cleared="b").against("a")] == []


@pytest.mark.parametrize(
    ("nodes", "outcomes", "given_up"),
    [
        (["ab", "ac", "ad"], ["unknown"] * 3, "a"),
        (["ab", "ab", "ad"], ["unknown"] * 3, ""),
        (["ab", "ac", "ad"], ["unknown", "unknown", "pass"], ""),
        (["abcd", "abce", "abde"], ["unknown"] * 3, "ab"),
        (["abcde", "abcdf", "abcef"], ["unknown"] * 3, ""),
    ],
)
def test_a_node_is_given_up_after_small_groups_without_a_result(
    nodes: list[str], outcomes: list[str], given_up: str
) -> None:
    assert len(nodes) == GIVEN_UP
    rounds = [[training(f"{at}.1", *one)] for at, one in enumerate(zip(nodes, outcomes, strict=True), 1)]
    assert "".join(sorted(knowledge(problem(6), *rounds).given_up)) == given_up


def end(of: Problem, *rounds: list[Training]) -> str:
    """Why the search ends after these rounds; empty: it goes on."""
    step = next_step(Isolation(problem=of, rounds=list(rounds)))
    return step.conclusion if isinstance(step, Result) else ""


def test_a_search_ends_at_its_limits_and_not_before() -> None:
    one = [training("1.1", "ab", seconds=40), training("1.2", "cd", seconds=30)]
    assert end(problem(4, rounds=1), one) == "stopped after 1 round, the limit"
    assert end(problem(4, rounds=2), one) == ""
    assert end(problem(4, seconds=80), one) == ""
    assert end(problem(4, seconds=79), one) == "stopped after 40 s: the next round would exceed the time limit"
    assert end(problem(2)) == "fewer than 3 nodes: a search could not tell which is bad"
    assert end(problem(3)) == ""


@pytest.mark.parametrize(("rounds", "again", "ends"), [(2, 0, False), (3, 0, True), (4, 0, True), (4, 2, False)])
def test_a_search_without_results_ends_after_three_rounds(rounds: int, again: int, ends: bool) -> None:
    silent = [[training(f"{at}.1", "abcdef", "unknown")] for at in range(1, rounds + 1)]
    isolation = Isolation(problem=problem(6, again=again), rounds=silent)
    assert strategy._without_results(isolation) == ends
    near = [[training(f"{at}.1", "abcdef", "unknown", doubt="near")] for at in range(1, rounds + 1)]
    assert not strategy._without_results(Isolation(problem=problem(6), rounds=near))
    mixed = [*silent[:-1], [training("9.1", "ab"), training("9.2", "cd", "unknown")]]
    assert not strategy._without_results(Isolation(problem=problem(6), rounds=mixed))


@pytest.mark.parametrize("length", [59, 60, 61])
def test_a_long_list_of_nodes_is_cut(length: int) -> None:
    name = "x" * (length - 3) + "y-z"
    group = Group(id="1.1", nodes=(name,), purpose="closing")
    (_head, line, *_) = tree.lines(Isolation(problem=problem(3), rounds=[[Training(group=group, outcome="pass")]]))
    assert line.endswith(name if length <= 60 else f"{name[:60]}...")


@pytest.mark.parametrize(
    ("kind", "which", "first"),
    [
        ("link", (0, 3), [0, 1]),
        ("link", (3, 0), [1, 0]),
        ("link", (4, 3), [1]),  # the first end is in no rack
        ("link", (0, 4), [0]),
        ("link", (4, 5), []),
        ("uplink", (0,), [0]),
        ("uplink", (2,), [2]),
        ("trunk", (0, 2), [0, 2]),
        ("size", (6,), []),
    ],
)
def test_two_racks_are_those_of_the_likely_cause_and_then_any(
    kind: Any, which: tuple[int, ...], first: list[int]
) -> None:
    rack = np.array([0, 0, 1, 1, -1, -1])
    pairs = [list(groups._pair([Cause(kind, which)], rack, 3, np.random.default_rng(seed))) for seed in range(40)]
    assert all(len(pair) == 2 and pair[: len(first)] == first for pair in pairs)
    any_of = {index for pair in pairs for index in pair[len(first) :]}
    assert any_of == (set() if len(first) == 2 else {0, 1, 2})


@pytest.mark.parametrize(("outcomes", "ends"), [("fpfp", False), ("fpfpf", True), ("pfpf", False), ("pfpff", True)])
def test_a_closing_run_is_tried_five_times_before_the_search_ends_without_a_name(outcomes: str, ends: bool) -> None:
    trainings = [[training(f"{at}.1", "abcd", {"f": "fail", "p": "pass"}[word])] for at, word in enumerate(outcomes, 1)]
    step = strategy._close(knowledge(problem(4), *trainings), 9)
    assert isinstance(step, Result) == ends
    if isinstance(step, Result):
        assert "all nodes together fail, and no part of them fails" in step.conclusion
    else:
        assert [group.nodes for group in step] == [tuple("abcd")]


def test_equally_likely_causes_come_in_one_order_on_every_processor() -> None:
    """Processors differ in the last digits of a logarithm, and in the order in which a partial sort leaves equals."""
    post = knowledge(problem(8, "xxxxyyyy"), [training("1", "abcd", "fail"), training("2", "efgh")]).model
    first = [cause for _, cause in post.likeliest(12)]
    assert first == sorted(first, key=lambda cause: [one for _, one in post.likeliest(99)].index(cause))
    links = [cause.which for cause in first if cause.kind == "link"]
    assert len(links) > 3 and links[:4] == sorted(links[:4])
    draw = np.random.default_rng(3)
    for _ in range(20):
        noisy = dataclasses.replace(post, links=post.links * (1 + 1e-13 * draw.standard_normal(post.links.shape)))
        assert [cause for _, cause in noisy.likeliest(12)] == first
