"""A part among its peers, and a matrix of pairs: what is named, and what is not."""

from __future__ import annotations

import random

import pytest

from shakedown.evidence import peers
from shakedown.trials import matrix, plan

Cells = dict[tuple[str, str], list[float]]


def standing(values: dict[str, list[float]], part: str, slower: float = 0.1) -> str:
    return peers.places(values, lower_is_better=False, slower=slower)[part].standing(slower)[0]


def test_a_part_that_is_slow_in_every_repetition_is_named_and_its_peers_are_not() -> None:
    values = {"a": [100.0, 101, 99], "b": [102.0, 100, 101], "c": [99.0, 100, 100], "d": [60.0, 61, 60]}
    assert [standing(values, part) for part in values] == ["ok", "ok", "ok", "named"]


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ([60.0, 61, 100], "undecided"),  # one good repetition is enough to doubt
        ([93.0, 93, 93], "ok"),  # beyond half of the limit, and within the scatter
        ([96.0, 96, 96], "ok"),
    ],
)
def test_what_is_slow_now_and_then_or_a_little_is_not_named(slow: list[float], expected: str) -> None:
    values = {"a": [100.0, 101, 99], "b": [102.0, 100, 101], "c": [99.0, 100, 100], "d": slow}
    assert standing(values, "d") == expected


def test_a_fleet_that_scatters_widely_names_nobody() -> None:
    values = {"a": [100.0, 60, 140], "b": [130.0, 80, 90], "c": [70.0, 120, 100], "d": [55.0, 70, 62]}
    assert standing(values, "d") == "undecided"


def test_with_fewer_than_three_peers_nobody_knows_what_is_usual() -> None:
    values = {"a": [100.0], "b": [100.0], "c": [10.0]}
    assert standing(values, "c") == "unknown"


@pytest.mark.parametrize(("nodes", "liars"), [(2, 1), (3, 1), (4, 2), (5, 2), (8, 4), (9, 4), (16, 8), (32, 16)])
@pytest.mark.parametrize("gpus", [1, 8])
def test_nodes_that_report_too_much_make_no_other_node_slow(nodes: int, liars: int, gpus: int) -> None:
    for seed in range(20):
        draw = random.Random(seed)
        too_much = [draw.choice([1.15, 1.3, 3.0])] * liars if seed % 2 else [draw.uniform(1.1, 3) for _ in range(liars)]
        values = {
            (node, part): [draw.gauss(100, 1) * (too_much[node] if node < liars else 1) for _ in range(3)]
            for node in range(nodes)
            for part in range(gpus)
        }
        owners = {part: part[0] for part in values}
        places = peers.places(values, lower_is_better=False, slower=0.1, owners=owners)
        assert not [part for part, place in places.items() if place.standing(0.1)[0] == "named"]


@pytest.mark.parametrize("nodes", [5, 8, 16])
def test_a_slow_node_is_named_though_a_quarter_of_its_peers_report_too_much(nodes: int) -> None:
    values = {f"n{number}": [100.0, 101, 99] for number in range(nodes)}
    values |= {f"n{number}": [115.0, 116, 114] for number in range(1, 1 + (nodes - 1) // 4)} | {"n0": [80.0, 81, 80]}
    places = peers.places(values, lower_is_better=False, slower=0.1)
    assert [part for part, place in places.items() if place.standing(0.1)[0] == "named"] == ["n0"]


def test_a_slow_gpu_is_named_by_the_others_of_its_own_node() -> None:
    values = {("a", gpu): [100.0, 101, 99] for gpu in range(8)} | {("b", gpu): [115.0, 116, 114] for gpu in range(8)}
    values["a", 3] = [60.0, 61, 60]
    places = peers.places(values, lower_is_better=False, slower=0.1, owners={part: part[0] for part in values})
    assert [part for part, place in places.items() if place.standing(0.1)[0] == "named"] == [("a", 3)]


def test_of_times_more_is_worse() -> None:
    values = {"a": [10.0, 10], "b": [10.0, 10.1], "c": [9.9, 10], "d": [30.0, 31]}
    places = peers.places(values, lower_is_better=True, slower=0.1)
    assert {part: place.standing(0.1)[0] for part, place in places.items()} == {
        "a": "ok",
        "b": "ok",
        "c": "ok",
        "d": "named",
    }
    assert places["d"].of_peers == pytest.approx(10.0, rel=0.02)


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 8, 31, 32])
def test_every_pair_meets_once_and_no_node_twice_in_a_round(nodes: int) -> None:
    found = plan.circle(nodes)
    assert len(found) == (nodes if nodes % 2 else nodes - 1)
    pairs = [pair for each in found for pair in each]
    assert len(set(pairs)) == len(pairs) == nodes * (nodes - 1) // 2
    assert all(len({node for pair in each for node in pair}) == 2 * len(each) for each in found)


def test_beyond_32_nodes_rounds_are_drawn_by_the_run() -> None:
    drawn = plan.schedule(200, "run-1")
    assert len(drawn) == plan.DRAWN and all(len(each) == 100 for each in drawn)
    assert drawn == plan.schedule(200, "run-1") != plan.schedule(200, "run-2")


def test_a_suspect_is_measured_again_beside_others_and_first_those_that_it_has_not_met() -> None:
    chosen = plan.beside([3], 8, {(2, 3), (3, 4), (0, 3)}, "seed")
    assert chosen == [1, 3, 5, 6, 7]
    assert plan.beside([0, 1], 4, [], "seed") == [0, 1, 2, 3], "all, where there are no more"


def cells(nodes: int, slow: dict[tuple[str, str], float], seed: int = 0) -> Cells:
    chosen = random.Random(seed)
    names = [f"n{number}" for number in range(nodes)]
    return {
        (a, b): [100 * slow.get((a, b), 1.0) * chosen.uniform(0.97, 1.03) for _ in range(3)]
        for a in names
        for b in names
        if a != b
    }


def read(found: Cells, nodes: int, blocks: dict[str, str] | None = None) -> list[tuple[str, str]]:
    names = [f"n{number}" for number in range(nodes)]
    result = matrix.read(found, figure="bandwidth", lower_is_better=False, slower=0.1, nodes=names, blocks=blocks)
    return [(each.kind, each.what) for each in result.named]


def row(node: str, nodes: int, factor: float) -> dict[tuple[str, str], float]:
    return {(node, f"n{other}"): factor for other in range(nodes) if f"n{other}" != node}


def column(node: str, nodes: int, factor: float) -> dict[tuple[str, str], float]:
    return {(b, a): factor for (a, b), factor in row(node, nodes, factor).items()}


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_a_matrix_is_read_by_row_column_node_and_cell(nodes: int) -> None:
    assert read(cells(nodes, {}), nodes) == []
    assert read(cells(nodes, row("n1", nodes, 0.3)), nodes) == [("sender", "n1")]
    assert read(cells(nodes, column("n2", nodes, 0.3)), nodes) == [("receiver", "n2")]
    both = row("n0", nodes, 0.5) | column("n0", nodes, 0.5)
    assert read(cells(nodes, both), nodes) == [("node", "n0")]
    assert read(cells(nodes, {("n1", "n3"): 0.2}), nodes) == [("link", "n1 > n3")]
    assert read(cells(nodes, {("n1", "n3"): 0.2, ("n3", "n1"): 0.2}), nodes) == [("link", "n1 <> n3")]


def test_what_crosses_the_border_of_a_rack_is_told_of_the_rack() -> None:
    blocks = {f"n{number}": f"rack{number // 4}" for number in range(12)}
    inside = [f"n{number}" for number in range(4)]
    slow = {(a, b): 0.4 for a in blocks for b in blocks if a != b and (a in inside) != (b in inside)}
    assert read(cells(12, slow), 12, blocks) == [("block", "rack0")]


@pytest.mark.parametrize(("nodes", "liars"), [(3, 1), (4, 1), (4, 2), (6, 2), (8, 3), (8, 4), (10, 3), (16, 4)])
@pytest.mark.parametrize("factor", [1.15, 1.5, 4.0])
def test_senders_that_report_too_much_make_no_other_node_slow(nodes: int, liars: int, factor: float) -> None:
    lies: dict[tuple[str, str], float] = {}
    for liar in range(liars):
        lies |= row(f"n{liar}", nodes, factor)
    blocks = {f"n{number}": f"rack{number // 2}" for number in range(nodes)}
    for seed in range(5):
        named = read(cells(nodes, lies, seed), nodes, blocks if seed % 2 else None)
        assert {kind for kind, _ in named} <= {"unnamed"}


def test_what_slows_more_than_a_third_of_the_nodes_is_no_node() -> None:
    slow = row("n0", 6, 0.3) | row("n1", 6, 0.3) | row("n2", 6, 0.3)
    kinds = [kind for kind, _ in read(cells(6, slow), 6)]
    assert kinds.count("sender") <= 2 and "unnamed" in kinds


def test_a_pair_that_gave_nothing_is_slow_without_end() -> None:
    found = cells(4, {})
    lost = [("n0", "n2"), ("n2", "n0")]
    for cell in lost:
        del found[cell]
    names = ["n0", "n1", "n2", "n3"]
    result = matrix.read(found, figure="bandwidth", lower_is_better=False, slower=0.1, nodes=names, missing=lost)
    assert [(each.kind, each.what) for each in result.named] == [("link", "n0 <> n2")]


def test_a_floor_says_of_two_nodes_what_their_peers_cannot() -> None:
    def named(floor: float | None) -> tuple[float | None, list[tuple[str, str]]]:
        values = {("n0", "n1"): [100.0, 101.0], ("n1", "n0"): [40.0, 41.0]}
        result = matrix.read(
            values, figure="bandwidth", lower_is_better=False, slower=0.1, nodes=["n0", "n1"], floor=floor
        )
        return result.median, [(each.kind, each.what) for each in result.named]

    assert named(None) == (None, [])
    assert named(30.0) == (pytest.approx(70.5), [])
    assert named(50.0)[1] == [("link", "n1 > n0")]
    latency = {("n0", "n1"): [2.0, 2.1], ("n1", "n0"): [9.0, 9.1]}
    slow = matrix.read(latency, figure="latency", lower_is_better=True, slower=0.1, nodes=["n0", "n1"], floor=5.0)
    assert slow.slow == [("n1", "n0")]


def test_a_cell_that_was_well_once_is_not_named() -> None:
    found = cells(8, row("n1", 8, 0.3))
    for cell in found:
        if cell[0] == "n1":
            found[cell][1] = 100.0
    assert read(found, 8) == []
