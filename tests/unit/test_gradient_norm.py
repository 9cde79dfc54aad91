"""The gate on the norm of the gradient."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from dataclasses import replace

import pytest

from bench.corpus import CURVES, runs
from shakedown.gates import NodeLog, judge_log, read_log
from shakedown.gates.iterations import _medians, gradient_norm
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict
from tests.gates import judged, training

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


def run(norms: list[float | None]) -> list[Iteration]:
    return [Iteration(at, len(norms), lm_loss=9.0, grad_norm=norm) for at, norm in enumerate(norms, 1)]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_norm_that_is_no_number_fails_on_any_line(wrong: float, at: int) -> None:
    norms: list[float | None] = [2.0] * 20
    norms[at] = wrong
    gate = judged(gradient_norm(training(run(norms))))
    assert gate.verdict is FAIL and f"iteration {at + 1} " in gate.evidence


def test_nan_on_every_line_of_a_log_fails() -> None:
    line = "iteration {0:8d}/      20 | lm loss: {1:.6E} | grad norm: nan | number of skipped iterations: 0 |\n"
    gates = {each.name: each for each in judge_log(read_log([line.format(at, 9 - at / 10) for at in range(1, 21)]), {})}
    assert gates["gradient_norm"].verdict is FAIL


@pytest.mark.parametrize(
    ("norms", "actual"),
    [
        ([1.5**at for at in range(20)], "exploded"),
        ([2.0] * 15 + [2e4] * 5, "exploded"),
        ([100.0] + [1.0] * 15 + [60.0] * 4, "exploded"),
        ([0.05] * 10 + [1.2] * 10, "exploded"),
        ([1e8] * 20, "exploded"),
        ([0.0] * 20, "zero"),
        ([3.0] * 10 + [0.0] * 10, "zero"),
    ],
)
def test_a_norm_that_explodes_or_vanishes_fails(norms: list[float | None], actual: str) -> None:
    gate = judged(gradient_norm(training(run(norms))))
    assert (gate.verdict, gate.actual) == (FAIL, actual) and gate.evidence and gate.remedy


@pytest.mark.parametrize(
    "norms",
    [
        [100.0 / at for at in range(1, 21)],
        [2.0] * 10 + [960.0, 300.0] + [2.0] * 8,  # a spike that comes back, as BLOOM-176B's
        [1.9, 5.0, 9.0, 14.0, 25.0, 20.0, 15.0, 12.0, 9.0, 7.0, 6.0, 6.0],  # a warm-up
        [0.002] * 10 + [0.05] * 10,
        [3.0, 2.0],
    ],
)
def test_a_norm_that_stays_in_bounds_passes(norms: list[float | None]) -> None:
    assert judged(gradient_norm(training(run(norms)))).verdict is OK


@pytest.mark.parametrize(("falls", "expected"), [(True, UNKNOWN), (False, FAIL)])
def test_a_norm_of_0_on_every_line_proves_nothing_while_the_loss_falls(falls: bool, expected: Verdict) -> None:
    """A public run of Megatron-DeepSpeed prints 0.000 to iteration 2,400, while its loss falls from 11.0 to 9.0."""
    every = [replace(line, lm_loss=11.0 - 0.1 * line.iteration * falls) for line in run([0.0] * 20)]
    assert judged(gradient_norm(training(every))).verdict is expected
    half = [replace(line, grad_norm=0.7) if line.iteration < 10 else line for line in every]
    assert judged(gradient_norm(training(half))).verdict is FAIL


def test_a_spike_on_the_last_line_leaves_open_whether_it_comes_back() -> None:
    assert judged(gradient_norm(training(run([2.0] * 19 + [500.0])))).verdict is UNKNOWN


def test_the_search_for_a_loss_scale_does_not_count() -> None:
    lines = run([math.inf] * 6 + [2.0] * 14)
    lines = [
        replace(line, lm_loss=None if line.iteration <= 6 else 9.0, skipped_iterations=int(line.iteration <= 6),
                loss_scale=2.0 ** (32 - min(line.iteration, 6)))
        for line in lines
    ]  # fmt: skip
    assert judged(gradient_norm(training(lines))).verdict is OK
    assert judged(gradient_norm(training(lines[:6]))).verdict is UNKNOWN


def test_a_log_without_norms_is_skipped() -> None:
    gates = judge_log(NodeLog(lines=9, iterations=tuple(run([None] * 20))), {})
    assert "gradient_norm" not in [gate.name for gate in gates]


def test_public_runs_pass() -> None:
    every = [run for path in CURVES.glob("*.toml") for run in runs(path) if run.norms and run.healthy]
    lines = [[line for line in run.iterations() if not math.isnan(line.grad_norm or 0)] for run in every]
    verdicts = [judged(gradient_norm(training(each))).verdict for each in lines if each]
    assert len(verdicts) >= 50 and verdicts.count(FAIL) == 0


def test_the_median_of_each_place_is_that_of_its_norms_and_sorted_once() -> None:
    """A log of 100,000 iterations took minutes, and more with the square of its length."""
    compared = Counter[str]()

    class Norm(float):
        def __lt__(self, other: float) -> bool:
            compared["all"] += 1
            return float(self) < float(other)

    dice = random.Random(5)
    norms = [Norm(dice.choice([1.0, 2.0, dice.random()])) for _ in range(2000)]
    expected = [statistics.median_low(map(float, norms[at : at + 251])) for at in range(2000 - 250)]
    assert list(_medians(norms, 251)) == expected
    assert compared["all"] < 32 * len(norms)
    assert list(_medians([3.0, 1.0, 2.0], 3)) == [2.0]
