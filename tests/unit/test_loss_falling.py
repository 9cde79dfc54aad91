"""The gate on the loss: what public runs did, and one curve for each word."""

from __future__ import annotations

import math
import random
import time

import pytest

from bench.corpus import CURVES, Run, runs
from shakedown.gates import judge_log, read_log
from shakedown.gates.iterations import GREATEST_LOSS, loss_falling
from shakedown.gates.loss_curve import MAX_POINTS, Point, curve
from shakedown.gates.model import Outcome, thresholds
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict
from tests.gates import training

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


def judged(losses: list[float | None], rate: float | None = None, vocabulary: int | None = None) -> Outcome:
    lines = [
        Iteration(iteration=at, total_iterations=len(losses), lm_loss=loss, learning_rate=rate)
        for at, loss in enumerate(losses, start=1)
    ]
    return loss_falling(training(lines, **({"vocabulary": vocabulary} if vocabulary else {})))


def trained(count: int, seed: int = 3) -> list[float]:
    """The losses of a run from random weights."""
    draw = random.Random(seed)
    return [3 + 8 * math.exp(-at / (count / 4)) + draw.gauss(0, 0.03) for at in range(count)]


@pytest.mark.parametrize("count", [60, 160])
@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_only_begins_to_go_wrong_is_not_ok(count: int, seed: int) -> None:
    healthy = trained(count, seed)
    assert judged(healthy).verdict is OK
    last = count // 10
    rising = healthy[:-last] + [loss * (1 + 0.15 * at / last) for at, loss in enumerate(healthy[-last:], start=1)]
    assert judged(rising).verdict is UNKNOWN
    assert "rise" in judged(rising).evidence
    swinging = healthy[:-last] + [loss * (1.6 if at % 2 else 0.4) for at, loss in enumerate(healthy[-last:])]
    assert judged(swinging).verdict is not OK
    spike = [
        *healthy[: -2 * last],
        *(loss + 2 for loss in healthy[-2 * last : -2 * last + 3]),
        *healthy[-2 * last + 3 :],
    ]
    assert judged(spike).verdict is OK  # it comes back


def of_run(run: Run) -> Outcome:
    return loss_falling(training(run.iterations()))


# ------------------------------------------------------------------------------------------------- runs of other people


@pytest.mark.parametrize("half", ["seen", "heldout"])
def test_of_public_runs_no_sick_one_passes_and_hardly_a_healthy_one_fails(half: str) -> None:
    known = runs(CURVES / f"{half}.toml")
    healthy = [run for run in known if run.healthy]
    failed = [run.name for run in healthy if of_run(run).verdict is FAIL]
    passed = [run.name for run in known if not run.healthy and of_run(run).verdict is OK]
    assert len(healthy) >= 50
    assert not passed
    assert len(failed) <= len(healthy) / 100, failed


SICK = [run for half in ("seen", "heldout") for run in runs(CURVES / f"{half}.toml") if not run.healthy]


@pytest.mark.parametrize("run", SICK, ids=str)
def test_every_sick_run_fails(run: Run) -> None:
    # Where lines have no loss at all, loss_finite is the gate that fails.
    assert of_run(run).verdict is FAIL or any(math.isnan(loss) for loss in run.losses), of_run(run).evidence


def test_the_log_that_rises_at_its_end_fails_in_figures_of_the_log() -> None:
    (run,) = [run for half in ("seen", "heldout") for run in runs(CURVES / f"{half}.toml") if "n16-ds-off" in run.name]
    gate = of_run(run)
    assert gate.verdict is FAIL
    assert gate.evidence.startswith(
        "the loss rises from its best level and does not come back: first 12.44238 at iteration 1,"
    )
    assert "highest 48.14127 at iteration 4" in gate.evidence
    assert "last 20.43871 at iteration 62" in gate.evidence


# ------------------------------------------------------------------------------------------------------- one for a word


def noisy(losses: list[float], share: float = 0.0008) -> list[float]:
    drawn = random.Random(3)
    return [float(f"{loss * (1 + drawn.gauss(0, share)):.7g}") for loss in losses]


FALLING = noisy([11 - 3 * (1 - math.exp(-at / 25)) for at in range(60)])

DRIFT = random.Random(3)
DRIFTING = [round(2.31 - 0.002 * at + DRIFT.gauss(0, 0.02), 4) for at in range(20)]  # Kendall's test alone shows it
DOWN_AND_A_TENTH_UP = [26.0] * 5 + [26 - at / 2 for at in range(20)] + [16.0] * 5 + [16.25, 16.5, 16.75] + [17.0] * 5


@pytest.mark.parametrize(
    ("losses", "rate", "verdict", "words"),
    [
        (FALLING, 1e-4, OK, "the loss falls: first"),
        ([12.0, 11.0, 10.0, 9.0], None, OK, "the loss falls"),
        ([12.0, 11.0, 10.0], None, UNKNOWN, "only 3 finite losses"),
        ([12.0, 12.1, 11.9, 12.05], None, UNKNOWN, "does not fall by more than its scatter"),
        ([2.0, 3.0, 4.0, 5.0], None, FAIL, "the loss ends above its start"),
        ([12.0, 11.0, 10.0, 9.0], None, OK, "levels (single lines)"),
        (DOWN_AND_A_TENTH_UP, None, FAIL, "the loss rises"),
        (DRIFTING, None, OK, "the loss falls"),
        ([5.0, 4.9, 4.8, 4.7, 4.6] * 2, None, UNKNOWN, "does not fall by more than its scatter"),
        ([9.0, 1.0] * 10, None, FAIL, "oscillates"),  # from the first line on
        (
            [*FALLING[:50], *(loss * (1.3, 0.7)[at % 2] for at, loss in enumerate(FALLING[50:]))],
            None,
            FAIL,
            "oscillates",
        ),
        ([*FALLING[:40], *(loss * 1.15 for loss in FALLING[40:])], 1e-4, FAIL, "the loss jumps and does not come back"),
        (
            [*FALLING[:40], *(loss * (1 + at / 100) for at, loss in enumerate(FALLING[40:]))],
            1e-4,
            FAIL,
            "the loss rises",
        ),
        ([*FALLING[:59], 30.0], 1e-4, FAIL, "the loss ends above its start"),
        ([*FALLING[:59], 10.6], 1e-4, UNKNOWN, "the log ends in a spike"),
        ([*FALLING[:30], 30.0, 20.0, *FALLING[32:]], 1e-4, OK, "the loss falls"),  # a spike that recovers
        (
            [*FALLING[:30], *(loss * (1.5, 0.6)[at % 2] for at, loss in enumerate(FALLING[30:]))],
            1e-4,
            FAIL,
            "oscillates",
        ),
        (noisy([10.83] * 60), 1e-4, FAIL, "the loss stays at the level of random weights"),
        (noisy([10.83] * 60), 1e-7, UNKNOWN, "does not fall"),  # the optimizer has hardly moved
        (noisy([10.83] * 60), None, UNKNOWN, "does not fall"),
        (noisy([10.83] * 120), None, FAIL, "the loss stays at the level of random weights"),
        ([7.0, 7.01] * 60, None, FAIL, "the loss stays at the level of random weights"),  # where that level begins
        (noisy([2.31] * 60, 0.01), 1e-4, UNKNOWN, "does not fall"),  # a model that was trained before
        ([10.8259] * 24, 1e-4, FAIL, "the loss is 10.8259 on each of 24 lines"),
        ([11.03] * 20, 1e-7, UNKNOWN, "each of 20 lines prints 11.03: too coarse to show a fall"),
        ([11.03] * 12 + [11.02] * 8, 1e-4, FAIL, "the loss stays at the level of random weights"),
        (
            [11.03, 11.03, 11.02, 11.03, 11.02, 11.01, 11.01, 11.0, 11.0, 10.98, 10.96, 10.95],
            1e-6,
            OK,
            "the loss falls",
        ),
        ([0.0] * 20, 1e-4, FAIL, "the loss is exactly 0 on each of 20 lines"),
        ([*FALLING, 0.0], 1e-4, FAIL, "to exactly 0 at 61"),
        (
            [2.0, 0.9, 0.3, 0.1, 0.02, 0.004, 0.0005, 0.0001, 0.0, 0.0],
            1e-4,
            OK,
            "the loss falls",
        ),  # mock data, 4 digits
        ([*FALLING, -0.4], 1e-4, FAIL, "the loss is -0.4 at iteration 61, and a cross-entropy is never negative"),
        ([8700.0 - at for at in range(20)], 1e-4, FAIL, "690 times that of guessing among 300000 tokens"),
        ([63.84, 40.0, 25.0, 14.0, 12.0, 11.0, 10.5, 10.1, 9.9, 9.8], 1e-4, OK, "the loss falls"),  # as BLOOM began
    ],
)
def test_each_course_has_its_own_words(losses: list[float], rate: float | None, verdict: Verdict, words: str) -> None:
    gate = judged(list(losses), rate)
    assert (gate.verdict, words in gate.evidence) == (verdict, True), gate.evidence
    assert (gate.remedy is None) == (verdict is OK)


def test_a_vocabulary_shows_what_guessing_costs() -> None:
    trained = noisy([6.4] * 60)
    assert judged(trained, 1e-4).verdict is UNKNOWN
    small = judged(trained, 1e-4, vocabulary=640)  # ln(640) is 6.46: at that level nothing was learned
    assert small.verdict is FAIL
    assert "guessing among 640 tokens costs 6.461" in small.evidence


def test_a_curve_with_a_hole_proves_nothing_and_one_that_rises_fails() -> None:
    holed = judged([9.0, 8.0, None, 7.0, 6.0, 5.0])
    assert holed.verdict is UNKNOWN
    assert "no finite loss in 1 iteration, so" in holed.evidence
    assert judged([5.0, 6.0, None, 7.0, 8.0, 9.0]).verdict is FAIL


def test_iterations_that_stand_there_twice_are_no_curve() -> None:
    lines = [Iteration(iteration=at, total_iterations=4, lm_loss=9.0 - at) for at in (1, 2, 3, 4, 1)]
    gate = loss_falling(training(lines))
    assert (gate.verdict, gate.evidence) == (UNKNOWN, "iterations are in the log twice")


def test_every_level_is_a_loss_of_the_log() -> None:
    for losses in (FALLING, FALLING[:9], FALLING * 30):
        text = judged(losses, 1e-4).evidence.partition("levels")[2]
        quoted = [float(part.split(" ")[1]) for part in text.partition(": ")[2].partition(";")[0].split(", ")]
        assert set(quoted) <= set(losses)


@pytest.mark.parametrize("count", [MAX_POINTS, MAX_POINTS + 1, 2 * MAX_POINTS + 1])
def test_long_curves_are_judged_as_short_ones(count: int) -> None:
    assert judged([12.0 - 4.0 * step / count + 0.2 * (step % 3) for step in range(count)]).verdict is OK
    assert judged([8.0 + 4.0 * step / count + 0.2 * (step % 3) for step in range(count)]).verdict is FAIL


def test_a_long_run_is_judged_quickly() -> None:
    start = time.process_time()
    assert judged([12.0 - 1e-4 * at + 0.1 * (at % 7) for at in range(20_000)]).verdict is OK
    assert judged([12.0 + 0.1 * (at % 7) for at in range(20_000)]).verdict is FAIL
    assert time.process_time() - start < 20


@pytest.mark.parametrize("loss", [GREATEST_LOSS, -GREATEST_LOSS, 1e-45, 1e-320, 5e-324])
def test_losses_at_the_end_of_what_there_is_are_judged(loss: float) -> None:
    for losses in (
        [loss] * 9,
        [loss, *[0.0] * 8],
        [loss / step for step in range(1, 10)],
        [1.0, loss, -loss, 0.0, 1.0],
    ):
        assert judged(losses).verdict in (OK, FAIL, UNKNOWN)


@pytest.mark.parametrize("first", [1, 10**17])
def test_the_number_of_the_first_iteration_changes_nothing(first: int) -> None:
    assert curve([Point(first + at, 9.0 - at) for at in range(6)]).word == "falls"


def test_every_threshold_has_a_reason_and_a_source() -> None:
    for entry in thresholds().values():
        assert entry.why and entry.source and entry.unit, entry.name


def test_the_loss_of_reinforcement_learning_is_no_cross_entropy() -> None:
    """Megatron-LM's functional tests of GRPO print policy losses around 0."""
    lines = [
        f" iteration {at:8d}/      30 | lm loss: {0.01 * (-1) ** at:.6E} |{term} loss scale: 1.0 |\n"
        for term in (" rl/kl_term: 1.0E-03 |", "")
        for at in range(1, 31)
    ]
    found = [
        next(gate for gate in judge_log(read_log(part), {}) if gate.name == "loss_falling")
        for part in (lines[:30], lines[30:])
    ]
    assert [gate.verdict for gate in found] == [UNKNOWN, FAIL]
    assert "reinforcement" in found[0].evidence


@pytest.mark.parametrize(
    ("losses", "verdict", "words"),
    [
        # eight points are enough for the scatter of the levels to count
        ([6.216, 4.202, 3.679, 5.56, 4.55, 3.17, 3.039, 2.88], UNKNOWN, "by more than its scatter"),
        ([2.3, 2.16, 2.14, 2.17, 2.11, 2.116, 2.1, 2.06], UNKNOWN, "by more than its scatter"),
        # and for a last point far above the best level
        ([11.25, 10.8, 9.877, 9.559, 9.17, 8.277, 9.079, 7.952, 11.2], UNKNOWN, "ends in a spike"),
        ([7.24, 9.607, 9.2, 8.53, 7.74, 7.1, 5.2, 9.92], UNKNOWN, "ends in a spike"),
        # losses of few digits, many of them equal
        ([8.7, 8.546, 8.43, 8.6, 8.401, 8.267, 8.2, 8.089, 8.0, 8.2, 7.9, 10.05], FAIL, "ends above its start"),
    ],
)
def test_the_least_points_that_show_something(losses: list[float], verdict: Verdict, words: str) -> None:
    outcome = judged([*losses])
    assert outcome.verdict is verdict and words in outcome.evidence


@pytest.mark.parametrize(("digits", "same", "verdict"), [(6, 16, FAIL), (6, 8, FAIL), (6, 7, OK), (2, 16, OK)])
def test_a_loss_that_falls_and_then_stays_the_same_to_the_last_digit(digits: int, same: int, verdict: Verdict) -> None:
    """Of 20 public logs whose loss was frozen from the fifth of 20 lines on, none was noticed."""
    falling = [round(11.0 * 0.93**at + 0.0123456, digits) for at in range(20)]
    outcome = judged([*falling, *[falling[-1]] * (same - 1)])
    assert outcome.verdict is verdict, outcome.evidence
    assert ("nothing is learned" in outcome.evidence) is (verdict is FAIL)
