"""Figures are judged by their mean, and a gate of its own says how even the iterations are."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bench.steady import EVEN, LENGTHS, UNEVEN, corpus, row
from shakedown.catalogue import advice
from shakedown.gates import Gate, NodeLog, Observed, judge, judge_log, read_log
from shakedown.gates.observed import Alone, Expected, OneAlone, Speed
from shakedown.gates.steadiness import BAD, Paces, paces, steadiness
from shakedown.logs.figures import measure
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


def run(times: list[float], **fields: float) -> list[Iteration]:
    """The lines of a run whose throughput is that of 400 TFLOP/s in 1000 ms."""
    return [
        Iteration(
            iteration=at,
            total_iterations=len(times),
            elapsed_ms=ms,
            tflops_per_gpu=400_000 / ms,
            lm_loss=12 - 0.1 * at,
            skipped_iterations=0,
            nan_iterations=0,
            **fields,
        )
        for at, ms in enumerate(times, 1)
    ]


def judged(times: list[float], **expect: float) -> dict[str, Gate]:
    log = NodeLog(lines=100, iterations=tuple(run(times)))
    return {gate.name: gate for gate in judge_log(log, expect)}


def slow(count: int, share: float, factor: float) -> list[float]:
    return [1000.0 * (factor if at % 10 < 10 * share else 1) for at in range(count)]


def test_a_run_of_which_two_fifths_are_ten_times_slower_is_below_its_bound() -> None:
    gates = judged(slow(53, 0.4, 10), throughput_per_gpu=380, elapsed_time_per_iteration=1100)
    assert gates["throughput_per_gpu"].verdict is FAIL and gates["throughput_per_gpu"].actual == pytest.approx(256)
    assert "median 400" in gates["throughput_per_gpu"].evidence
    assert gates["elapsed_time_per_iteration"].verdict is FAIL
    assert gates["steady"].verdict is FAIL and gates["steady"].actual.startswith("slow")


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("family", EVEN)
def test_an_even_run_passes(family, count) -> None:
    seen = row(EVEN, family, count, draws=40, seed=3)
    assert seen.bad <= 0.02 and seen.unknown <= 0.05


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("family", UNEVEN)
def test_an_uneven_run_fails(family, count) -> None:
    assert row(UNEVEN, family, count, draws=40, seed=3).bad >= 0.95


def test_public_runs_pass() -> None:
    found = corpus()
    assert len(found) >= 50
    assert sum(word in BAD for _, word in found) <= len(found) // 100


def test_the_stretch_is_named_with_its_first_iteration() -> None:
    times = [1000.0] * 30
    times[12:18] = [2000.0] * 6
    gate = judged(times)["steady"]
    assert gate.verdict is FAIL and "6 iterations from 13 on" in gate.evidence


def test_times_that_scatter_both_ways_prove_nothing() -> None:
    times = [1000.0 * (0.6 + 0.1 * (at * 7 % 10)) for at in range(60)]
    assert judged(times)["steady"].verdict is UNKNOWN


def test_a_short_run_never_passes_for_even_and_never_fails() -> None:
    assert judged(slow(13, 0.4, 10))["steady"].verdict is FAIL
    for count in range(8, 13):  # 5 to 9 judged lines
        found = judged([1000, 1000, 1000, *slow(count - 3, 0.4, 10)])["steady"]
        assert found.verdict is UNKNOWN and "fewer than 10 judged lines" in found.evidence
        assert "steady" not in judged([1000.0] * count)
    assert "steady" not in judged(slow(7, 0.4, 10))


def test_lines_without_a_time_are_judged_by_their_throughput() -> None:
    lines = run(slow(40, 0.4, 3))
    bare = [Iteration(it.iteration, it.total_iterations, tflops_per_gpu=it.tflops_per_gpu) for it in lines]
    given = paces(bare, 2)
    assert given is not None and steadiness(given).word in BAD


def test_a_line_for_several_iterations_counts_as_so_many() -> None:
    found = steadiness(Paces((1.0,) * 10 + (2.0,) * 4, first=10, interval=10))
    assert (found.longest, found.at) == (40, 110)


def test_the_search_for_a_loss_scale_is_no_slow_stretch() -> None:
    times = [3000.0] * 6 + [1000.0] * 20
    lines = [
        Iteration(at, 26, elapsed_ms=ms, loss_scale=2.0 ** (32 - min(at, 6)), skipped_iterations=int(at <= 6))
        for at, ms in enumerate(times, 1)
    ]
    given = paces(lines, 2)
    assert given is not None and steadiness(given).word == "even"


def test_together_the_mean_is_held_against_the_means() -> None:
    alone = Alone(
        share=0.9,
        nodes={"a": OneAlone(runs=["r"], ranks=8, figures={"throughput_per_gpu": 400, "throughput_per_gpu.mean": 400})},
    )
    for times, verdict in ((slow(33, 0.2, 10), FAIL), ([1000.0] * 33, OK)):
        (gate,) = judge(Observed(speed=Speed(measure(run(times)), ranks=8), expected=Expected(alone=alone)))
        assert gate.verdict is verdict, gate


def test_runs_of_before_without_means_are_compared_by_their_medians() -> None:
    alone = Alone(share=0.9, nodes={"a": OneAlone(runs=["r"], ranks=8, figures={"throughput_per_gpu": 400})})
    (gate,) = judge(Observed(speed=Speed(measure(run([1000.0] * 20)), ranks=8), expected=Expected(alone=alone)))
    assert gate.verdict is OK


@pytest.mark.parametrize(("share", "factor"), [(0.2, 2.5), (0.2, 10), (0.14, 10)])
@pytest.mark.parametrize("count", [53, 203])
def test_fewer_slow_iterations_fail_where_they_cost_as_much(share: float, factor: float, count: int) -> None:
    draw = random.Random(4)
    slow_ones = set(draw.sample(range(2, count - 1), round(share * (count - 3))))
    times = [1000.0 * (factor if at in slow_ones else draw.gauss(1, 0.01)) for at in range(count)]
    assert judged(times)["steady"].verdict is FAIL
    checkpoints = [1000.0 * (1.5 if at % 6 == 5 else 1) for at in range(count)]
    assert judged(checkpoints)["steady"].verdict is OK


def test_a_batch_that_grows_is_no_slow_stretch_and_a_slow_stretch_within_it_is() -> None:
    def of_batches(factor: float) -> Gate:
        lines = [
            replace(
                line,
                global_batch_size=16 * (1 + at // 50),
                elapsed_ms=(300.0 + 300 * (at // 50)) * (factor if 160 <= at < 182 else 1),
            )
            for at, line in enumerate(run([1000.0] * 200))
        ]
        gates = judge_log(NodeLog(lines=200, iterations=tuple(lines)), {})
        return next(gate for gate in gates if gate.name == "steady")

    assert of_batches(1.0).verdict is OK
    assert of_batches(1.5).verdict is not OK


def stamped(every: float, back: float = 0.0) -> Gate:
    lines = []
    for at in range(1, 61):
        seconds = at * every - (back if at > 30 else 0)
        time = datetime(2026, 11, 24, 7) + timedelta(seconds=seconds)
        lines.append(
            f" [{time:%Y-%m-%d %H:%M:%S}] iteration {at:8d}/      60 | elapsed time per iteration (ms): 2000.0 |"
            f" lm loss: {9 - at / 10:.6E} |\n"
        )
    return next(gate for gate in judge_log(read_log(lines), {}) if gate.name == "steady")


@pytest.mark.parametrize("every", [1.9, 2.0, 2.9, 0.0])
def test_lines_that_come_as_they_tell_are_even(every: float) -> None:
    assert stamped(every).verdict is OK


def test_lines_that_come_at_other_times_than_they_tell_are_unknown() -> None:
    for every in (60.0, 5.0):
        assert stamped(every).verdict is UNKNOWN and f"every {every:g} s by their own times" in stamped(every).evidence
        assert stamped(every).remedy == advice("clock")
    assert "goes back behind iteration 30" in stamped(2.0, back=40.0).evidence
    assert stamped(2.0, back=40.0).verdict is UNKNOWN
    assert stamped(2.0, back=3600.0).verdict is OK  # the end of summer time
