"""Nodes that need longer than others for the same work: what is read, who is named, and what is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import stragglers as bench
from bench.trials import USUAL
from shakedown.evidence.stragglers import model
from shakedown.evidence.stragglers.judge import Layout, judged
from shakedown.evidence.stragglers.model import (
    MAX_WINDOWS,
    Limits,
    Measured,
    Stragglers,
    Window,
    WindowReader,
    lines,
    sentence,
)
from shakedown.gates.judgement import stragglers_of
from shakedown.gates.nodes import no_straggler
from shakedown.isolation.hints import from_stragglers
from shakedown.state.findings import Verdict
from tests import plans

QUIET = (1.0, 1.01, 0.99, 1.0, 1.02, 0.98)
# Megatron's own lines (megatron/core/README_STRAGGLER.md), with the halves of eight ranks.
MEGATRON = """\
 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | MnPwr/Rnk: \
601796W/8 | MxPwr/Rnk: 683801W/18 | MnEtpt/Rnk: {low}TF/5 | MxEtpt/Rnk: 297.32TF/7
 0: INFO:megatron.core.utils:^^^^ Bottom 4 Ranks with lowest  Etpt(TF): {low}/5, 296.17/2, 296.23/1, 296.23/4,
 0: INFO:megatron.core.utils:^^^^ Top    4 Ranks with highest Etpt(TF): 297.28/6, 297.28/3, 297.32/0, 297.32/7,
"""


def fleet(
    factors: dict[str, float], ranks: int = 1, tensor: int = 1, pipeline: int = 1, base: float = 100.0
) -> tuple[dict[str, Measured | None], Layout]:
    """Nodes whose ranks need so many times as long as others."""
    layout = Layout(
        {name: range(place * ranks, (place + 1) * ranks) for place, name in enumerate(factors)}, tensor, pipeline
    )
    measured: dict[str, Measured | None] = {
        name: Measured(own=tuple(
            Window(rank=rank, first=3 + 2 * at, last=4 + 2 * at, own=base * factors[name] * noise)
            for rank in its
            for at, noise in enumerate(QUIET[rank % 3 :] + QUIET[: rank % 3])
        ))
        for name, its in layout.nodes.items()
    }  # fmt: skip
    return measured, layout


def found(factors: dict[str, float], **options: int) -> Stragglers:
    return judged(*fleet(factors, **options), Limits())


def verdict(stragglers: Stragglers) -> Verdict:
    return no_straggler(stragglers).verdict


@pytest.mark.parametrize(("factor", "level"), [(1.0, None), (1.03, None), (1.15, "warn"), (1.5, "fail"), (4.0, "fail")])
def test_the_ladder(factor: float, level: str | None) -> None:
    its = found({"a": 1, "b": 1, "c": factor, "d": 1, "e": 1}, ranks=2)
    assert {each.node: each.level for each in its.slow} == ({"c": level} if level else {})
    assert verdict(its) is (Verdict.FAIL if level == "fail" else Verdict.OK)
    told = "\n".join(lines(its))
    assert ("c needs" in told and "windows 3-14, in every one" in told) == bool(level)
    assert bool(told) == bool(level), "nothing is said where nobody is slow"


def test_the_slowest_comes_first() -> None:
    its = found({"a": 1, "b": 1, "c": 1.5, "d": 1.15, "e": 1, "f": 1, "g": 4})
    assert [each.node for each in its.slow] == ["g", "c", "d"] and its.own[0].node == "g"


def test_of_a_node_s_roles_the_worst_counts_and_what_is_sure_before_what_is_not() -> None:
    """Tensor rank 0 of d is slow among ranks that scatter, too few windows for that; its rank 1 beside equals."""
    of_role = {"a": (0.9, 1.0), "b": (1.0, 1.0), "c": (1.12, 1.0), "d": (1.7, 4.0)}
    measured, layout = fleet(dict.fromkeys(of_role, 1.0), ranks=2, tensor=2)
    given = {
        name: Measured(own=tuple(
            each.model_copy(update={"own": each.own * of_role[name][each.rank % 2]})
            for each in its.own if each.first < 13
        ))
        for name, its in measured.items() if its
    }  # fmt: skip
    (slow,) = judged(given, layout, Limits()).slow
    assert (slow.node, slow.level, slow.role) == ("d", "fail", "tensor rank 1")


def test_only_windows_that_all_ranks_have_are_compared() -> None:
    measured, layout = fleet({"a": 1, "b": 1, "c": 3, "d": 1, "e": 1})
    less = {name: Measured(own=each.own[:2] + each.own[3:]) for name, each in measured.items() if each}
    (slow,) = judged(measured | {"b": less["b"]}, layout, Limits()).slow
    assert (slow.node, slow.windows) == ("c", "3-6, 9-14")
    two = {name: Measured(own=each.own[:2]) for name, each in measured.items() if each}
    assert [each.node for each in judged(two, layout, Limits()).slow] == ["c"], "two are enough"


def test_who_is_last_in_each_of_many_windows_is_named_however_few_peers_scatter() -> None:
    """Three peers that differ by chance know little of how far equal nodes scatter."""
    factors = {"a": 0.9, "b": 1.0, "c": 1.12, "d": 1.7}
    (slow,) = found(factors).slow
    assert (slow.node, slow.level) == ("d", "fail") and "slower than every peer in each window" in slow.why
    measured, layout = fleet(factors)
    fewer = {name: Measured(own=each.own[:5]) for name, each in measured.items() if each}
    five = judged(fewer, layout, Limits())
    assert not five.slow and "none is apart" in five.unknown and verdict(five) is Verdict.UNKNOWN, "five are too few"
    assert measured["c"] and measured["d"]
    once = (measured["c"].own[0].model_copy(update={"own": 160.0}), *measured["c"].own[1:])
    tied = judged(measured | {"c": Measured(own=once)}, layout, Limits())
    assert not tied.slow and "none is apart" in tied.unknown, "once another one was as slow"


def test_what_cannot_be_compared_is_unknown() -> None:
    few = found({"a": 1, "b": 1, "c": 4})
    assert not few.slow and verdict(few) is Verdict.UNKNOWN and "4 are needed" in few.unknown
    measured, layout = fleet({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1})
    silent = judged(measured | {"b": None}, layout, Limits())
    assert verdict(silent) is Verdict.UNKNOWN and "of b " in silent.unknown
    many, wide = fleet(dict.fromkeys("abcdefghijkl", 1.0))
    without = judged(many | dict.fromkeys("abcdefgh"), wide, Limits())
    assert "of a, b, c, d, e, f, g, h reported" in without.unknown
    halves, pairs = fleet({"a": 1, "b": 1, "c": 3, "d": 1, "e": 1}, ranks=2)
    assert halves["b"]
    half = Measured(own=tuple(each for each in halves["b"].own if each.rank == 2))
    some = judged(halves | {"b": half}, pairs, Limits())
    assert [each.node for each in some.slow] == ["c"] and "not every rank of b reported" in some.unknown
    assert "not known: not every rank of b reported" in "\n".join(lines(some))
    one = {name: Measured(own=each.own[:1]) for name, each in measured.items() if each}
    assert "1 window of all ranks" in judged(one, layout, Limits()).unknown
    assert verdict(judged({}, layout, Limits())) is Verdict.UNKNOWN


def test_ranks_are_compared_within_their_role_alone() -> None:
    stages = dict.fromkeys("abcd", 1.0) | dict.fromkeys("efgh", 2.0)  # the second stage has twice the work
    assert found(stages, pipeline=2).slow == []
    (slow,) = found(stages | {"g": 4.0}, pipeline=2).slow
    assert (slow.node, slow.role, slow.peers) == ("g", "stage 1", 3) and slow.slower == pytest.approx(1.0, rel=0.1)


def test_one_slow_rank_makes_its_node_slow_and_a_node_tells_of_no_other() -> None:
    measured, layout = fleet({"a": 1, "b": 1, "c": 1, "d": 1}, ranks=2)
    assert measured["d"] and measured["a"]
    slow = tuple(w.model_copy(update={"own": w.own * (2 if w.rank == 7 else 1)}) for w in measured["d"].own)
    assert [each.node for each in judged(measured | {"d": Measured(own=slow)}, layout, Limits()).slow] == ["d"]
    forged = tuple(w.model_copy(update={"rank": 7, "own": 900.0}) for w in measured["a"].own[:6])
    assert judged(measured | {"a": Measured(own=forged + measured["a"].own)}, layout, Limits()).slow == []


def test_a_node_cannot_choose_the_windows_in_which_another_one_was_slow() -> None:
    measured, layout = fleet(dict.fromkeys("abcde", 1.0))
    assert measured["b"] and measured["c"]
    twice = {window.first for window in measured["b"].own[1::3]}
    slow = [w.model_copy(update={"own": w.own * (1.5 if w.first in twice else 1)}) for w in measured["b"].own]
    measured |= {"b": Measured(own=tuple(slow))}
    assert judged(measured, layout, Limits()).slow == []
    chosen = Measured(own=tuple(window for window in measured["c"].own if window.first in twice))
    result = judged(measured | {"c": chosen}, layout, Limits())
    assert result.slow == [] and f"{len(twice)} windows of all ranks, and 5 are needed" in result.unknown
    assert verdict(result) is Verdict.UNKNOWN


def test_the_node_of_rank_0_reports_of_no_rank_that_reports_itself() -> None:
    measured, layout = fleet(dict.fromkeys("abcde", 1.0))
    assert measured["a"]
    forged = [
        w.model_copy(update={"rank": n, "own": 3 * w.own if n == 2 else w.own})
        for w in measured["a"].own
        for n in range(5)
    ]
    for own in (measured["a"].own, ()):
        lies = judged(measured | {"a": Measured(own=own, reported=tuple(forged))}, layout, Limits())
        assert lies.slow == [] and verdict(lies) is (Verdict.OK if own else Verdict.UNKNOWN)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0.5, 2.0), min_size=24, max_size=24), st.integers(0, 3), st.floats(1.0, 10.0))
def test_a_slower_node_never_turns_fail_into_ok(noise: list[float], which: int, more: float) -> None:
    def its(factor: float) -> Stragglers:
        measured: dict[str, Measured | None] = {}
        for node in range(4):
            times = [noise[6 * node + at] * (factor if node == which else 1.0) for at in range(6)]
            windows = tuple(Window(rank=node, first=at + 1, last=at + 1, own=time) for at, time in enumerate(times))
            measured[f"n{node}"] = Measured(own=windows)
        return judged(measured, Layout({f"n{node}": range(node, node + 1) for node in range(4)}), Limits())

    if any(each.node == f"n{which}" for each in its(1.5).named("fail")):
        assert verdict(its(1.5 * more)) is Verdict.FAIL


def test_megatron_tells_of_all_ranks_in_two_halves_and_of_two_otherwise() -> None:
    layout = Layout({f"n{node}": range(2 * node, 2 * node + 2) for node in range(4)})
    text = (MEGATRON.format(low="150.00") * 3).splitlines(keepends=True)
    reader = WindowReader()
    for each in text:
        reader.line(each)
    assert {(each.rank, each.first) for each in reader.measured().reported} == {
        (r, n) for r in range(8) for n in (1, 2, 3)
    }
    (slow,) = judged({"n0": reader.measured()}, layout, Limits()).slow
    assert (slow.node, slow.level) == ("n2", "fail") and slow.slower == pytest.approx(0.97, abs=0.02)
    assert sentence(slow).endswith("in every one, as n0 reports)"), "it is one node's word"
    assert judged({"n1": reader.measured()}, layout, Limits()).unknown == "no rank reported its own time"
    short = WindowReader()
    for each in text[0::3]:
        short.line(each)
    its = judged({"n0": short.measured()}, layout, Limits())
    assert not its.slow and "3 reports" in its.unknown and "98% apart" in its.unknown


def test_lines_of_anybody_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = WindowReader()
    line = "own time: rank 3 of 8, steps 5 to 6, 28.595 ms each, waiting 7.116 ms\n"
    odd = [line.replace("28.595", "0.000"), line.replace("3 of", "9999999 of"), line[:-4], line.replace("5 to", "7 to")]
    odd += ["x" * (1 << 20) + line]
    for each in [*odd, "x" * 100 + line, "own time: \x1b[31mrank\n", "^^^^ Top 4 Ranks with highest Etpt(TF): 1/1,\n"]:
        reader.line(each)
    assert [each.own for each in reader.measured().own] == [28.595] and not reader.measured().reported
    for each in [line] * (MAX_WINDOWS + 1):
        reader.line(each)
    assert (len(reader.measured().own), reader.measured().beyond) == (MAX_WINDOWS, 2)
    idle = WindowReader()
    for each in MEGATRON.format(low="0.00").splitlines(keepends=True):
        idle.line(each)
    assert {each.rank for each in idle.measured().reported} == set(range(8)) - {5}, "no throughput is no time"
    monkeypatch.setattr(model, "MAX_WINDOWS", 2)
    for each in MEGATRON.format(low="150.00").splitlines(keepends=True) * 4:
        idle.line(each)
    assert len(idle.measured().extremes) == 2


def test_plans_have_ranks_tell_and_megatron_only_where_it_is_judged() -> None:
    def switched(plan: object) -> bool:
        return "log-straggler" in str(plan)

    assert plans.small(3).stragglers is None and not switched(plans.small(3).nodes)
    assert plans.small(4).stragglers == Limits() and switched(plans.small(4).nodes)
    assert plans.small(4, stragglers="off").stragglers is None
    gated = plans.small(2, stragglers="gate", straggler_fail=0.5)
    assert gated.stragglers == Limits(gate=True, fail=0.5)
    outcome = stragglers_of(gated, {"node01": None, "node02": None})
    assert outcome is not None and verdict(outcome) is Verdict.UNKNOWN
    assert plans.rack("llama3.1-8b-fp8", 4).stragglers is None
    asked = plans.rack("llama3.1-8b-fp8", 4, stragglers="gate")
    assert asked.stragglers == Limits(gate=True)
    derived = {each.name: each.value for each in asked.derived if "straggler" in each.name}
    assert derived == {"log-straggler": "true", "straggler-minmax-count": "16"} and switched(asked.nodes)


def test_a_search_begins_with_them() -> None:
    (hint,) = from_stragglers(found({"a": 1, "b": 1, "c": 3, "d": 1}))
    assert hint.node == "c" and hint.odds > 10 and "longer" in hint.text


def test_equal_nodes_are_not_named_and_one_at_60_percent_is() -> None:
    """The figures of docs/developers/accuracy.md, of fewer runs. In the scatter of a busy host nobody can tell
    a node at 60 % from the others, and a quarter of the CPU shows."""
    measured = next(name for name in bench.draws() if name.startswith("measured"))
    for noise in (USUAL.name, measured):
        assert bench.row(noise, 4, 1.0, 200).innocent <= 0.01
    slow = bench.row(USUAL.name, 4, 1 / 0.6, 200)
    assert slow.found >= 0.9 and slow.innocent == 0
    busy = bench.row(measured, 4, 1 / 0.6, 100)
    assert busy.innocent == 0 and busy.found + busy.undecided > 0.8
    assert bench.row(measured, 4, 4.0, 100).found > 0.8


@pytest.mark.parametrize(("nodes", "stages"), [(8, 2), (8, 4), (16, 4), (16, 8), (32, 8)])
@pytest.mark.parametrize("extra", [1.12, 1.3, 2.0])
@pytest.mark.parametrize("stage", [0, -1])
def test_nodes_of_a_stage_that_the_layout_does_not_show_are_not_named(
    nodes: int, stages: int, extra: float, stage: int
) -> None:
    size = nodes // stages
    first = (stage % stages) * size
    factors = {f"n{place:02d}": extra if first <= place < first + size else 1.0 for place in range(nodes)}
    assert found(factors).slow == []
    assert found({**factors, "n05": 3.0}).slow == [] or found({**factors, "n05": 3.0}).slow[0].node == "n05"


@pytest.mark.parametrize(
    ("nodes", "slow", "words"),
    [
        (8, {3: 1.4, 7: 1.45}, "at equal distances"),
        (16, {1: 1.5, 5: 1.5, 9: 1.5, 13: 1.5}, "at equal distances"),
        (12, {0: 1.5, 11: 2.4}, "the first and the last"),
    ],
)
def test_nodes_that_lie_as_stages_of_replicas_do_are_not_named(nodes: int, slow: dict[int, float], words: str) -> None:
    its = found({f"n{place:02d}": slow.get(place, 1.0) for place in range(nodes)})
    assert its.slow == [] and words in its.unknown
    moved = {(place + (place == max(slow)) * 2) % nodes: factor for place, factor in slow.items()}
    assert len(found({f"n{place:02d}": moved.get(place, 1.0) for place in range(nodes)}).slow) == len(moved)


def test_options_with_which_ranks_have_unequal_work_name_no_node() -> None:
    measured, layout = fleet({"a": 1, "b": 1, "c": 4, "d": 1, "e": 1})
    its = judged(measured, layout, Limits(unequal="expert-model-parallel-size: experts are given tokens by a router"))
    assert not its.slow and verdict(its) is Verdict.UNKNOWN
    assert "does not show" in its.unknown and "expert-model-parallel-size" in its.unknown


@pytest.mark.parametrize(
    "noise", [name for name in bench.draws() if not name.startswith(("measured", "GPUs", "hosts"))]
)
@pytest.mark.parametrize("nodes", [4, 8, pytest.param(32, marks=pytest.mark.long)])
def test_equal_nodes_are_not_named_where_noise_is_heavy_or_correlated(noise: str, nodes: int) -> None:
    """At most 1 % of runs (docs/developers/accuracy.md has more); of 200, six are more than chance allows."""
    assert bench.row(noise, nodes, 1.0, 200).innocent <= 0.025
