"""The gates on iteration lines at their boundaries: one line, number or step further, and the verdict differs."""

from __future__ import annotations

import math

import pytest

from shakedown.common.text import counted
from shakedown.gates import judge_log, read_log
from shakedown.gates.iterations import GREATEST_LOSS, iterations_complete, loss_finite, no_skipped_or_nan
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict
from tests.gates import training

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


def lines(numbers: list[int] | range, total: int, **fields: object) -> list[Iteration]:
    whole = {"lm_loss": 1.0, "skipped_iterations": 0, "nan_iterations": 0} | fields
    return [Iteration(iteration=n, total_iterations=total, **whole) for n in numbers]


def curve(losses: list[float | None]) -> list[Iteration]:
    return [
        Iteration(iteration=i, total_iterations=len(losses), lm_loss=loss, skipped_iterations=0, nan_iterations=0)
        for i, loss in enumerate(losses, start=1)
    ]


# -------------------------------------------------------------------------------------------------------- complete


@pytest.mark.parametrize(
    ("numbers", "total", "said"),
    [
        ([], 3, "no iteration line"),
        ([1, 2], 3, "the last iteration seen is 2 of 3; 1 of 3 lines are missing, the first is 3"),
        ([2, 3], 3, "1 of 3 lines are missing, the first is 1"),
        ([1, 3], 3, "1 of 3 lines are missing, the first is 2"),
        ([1], 3, "the last iteration seen is 1 of 3; 2 of 3 lines are missing, the first is 2"),
        ([3], 3, "2 of 3 lines are missing, the first is 1"),
        ([1, 2, 3, 4], 3, "there are iterations outside 1 to 3"),
        ([0, 1, 2, 3], 3, "there are iterations outside 1 to 3"),
        (
            [0],
            3,
            "the last iteration seen is 0 of 3; 3 of 3 lines are missing, the first is 1;"
            " there are iterations outside 1 to 3",
        ),
        ([1, 3, 2], 3, "the lines are out of order"),
        ([1, 2, 2, 3], 3, "more than once in the log: iteration 2"),
        ([1, 2, 3, 1], 3, "more than once in the log: iteration 1"),
    ],
)
def test_what_is_wrong_with_the_lines_is_said_and_nothing_else(numbers, total, said) -> None:
    gate = iterations_complete(training(lines(numbers, total), total))
    assert gate.verdict is FAIL
    assert gate.evidence == said
    assert (gate.wanted, gate.unit) == (total, "iterations")
    assert gate.remedy


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_all_lines_in_order_are_complete(count) -> None:
    gate = iterations_complete(training(lines(range(1, count + 1), count)))
    assert (gate.verdict, gate.wanted, gate.actual, gate.remedy) == (OK, count, count, None)
    assert gate.evidence == f"{counted(count, 'line')}, 1 to {count} of {count}"


def test_lines_that_count_to_another_number_fail() -> None:
    gate = iterations_complete(training(lines(range(1, 4), 3), 4))
    assert gate.verdict is FAIL
    assert "the lines count to 3, not to 4" in gate.evidence
    every = iterations_complete(training(lines(range(2, 9, 2), 8), 9))
    assert every.verdict is FAIL
    assert "the lines count to 8, not to 9" in every.evidence


@pytest.mark.parametrize(
    ("numbers", "total", "expected", "actual"),
    [
        (range(10, 51, 10), 50, OK, 50),
        (range(10, 51, 10), 51, UNKNOWN, 50),
        (range(10, 51, 10), 59, UNKNOWN, 50),
        (range(10, 51, 10), 60, FAIL, 50),
        (range(10, 51, 10), 67, FAIL, 50),
        (range(10, 51, 10), 49, FAIL, 5),
        ([10, 20, 40, 50], 50, FAIL, 4),
        ([10, 20, 30, 40], 50, FAIL, 40),
        ([10, 20, 20, 30], 30, FAIL, 3),
        ([10, 30, 20], 30, FAIL, 3),
        ([10], 10, FAIL, 1),  # one line shows no interval
        ([2, 4], 4, OK, 4),
        # Newer versions print the first one at once.
        ([1, 10, 20, 30], 30, OK, 30),
        ([1, 3, 6], 6, OK, 6),
        ([1, 10, 20, 30], 39, UNKNOWN, 30),
        ([1, 10, 20, 30], 40, FAIL, 30),
        ([1, 10, 30], 30, FAIL, 3),
        ([1, 20, 30], 30, FAIL, 3),
        ([1, 2, 4], 4, FAIL, 3),  # the third is missing
        ([2, 10, 20], 20, FAIL, 3),
        ([1, 10], 10, FAIL, 2),
        ([1, 3, 5], 5, FAIL, 3),
    ],
)
def test_a_log_interval_shows_in_the_lines(numbers, total, expected, actual) -> None:
    gate = iterations_complete(training(lines(numbers, total)))
    assert (gate.verdict, gate.actual) == (expected, actual)
    if actual >= 10 and expected is FAIL and numbers[-1] < total:
        assert gate.evidence == f"the last iteration seen is {numbers[-1]} of {total}"
    if expected is UNKNOWN:
        assert f"nothing is known of the last {total % 10}" in gate.evidence
        assert gate.remedy
    if expected is OK:
        assert f"one for {max(numbers[0], numbers[1] if numbers[0] == 1 else 0)} iterations" in gate.evidence


@pytest.mark.parametrize("numbers", [range(501, 601), range(510, 601, 10)])
def test_a_run_that_goes_on_from_a_checkpoint_has_only_the_rest(numbers) -> None:
    before = numbers[0] - (numbers[1] - numbers[0])
    total = numbers[-1]
    found = iterations_complete(training(lines(numbers, total), loaded=before))
    assert (found.verdict, found.actual) == (OK, total - before)
    assert f"went on from a checkpoint of iteration {before}" in found.evidence
    cut = iterations_complete(training(lines(numbers, total)))
    assert (cut.verdict, cut.actual) == (UNKNOWN, total - before)
    assert f"the log begins after iteration {before}" in cut.evidence and cut.remedy
    assert iterations_complete(training(lines(numbers, total), total)).verdict is FAIL
    gap = [*numbers[:1], *numbers[2:]]
    assert iterations_complete(training(lines(gap, total), loaded=before)).verdict is FAIL
    assert iterations_complete(training(lines(numbers[:-1], total), loaded=before)).verdict is FAIL
    assert iterations_complete(training(lines([*numbers, total], total), loaded=before)).verdict is FAIL


@pytest.mark.parametrize(("said", "exited"), [("at iteration 6", 6), ("after 55.125 minutes", 0)])
def test_a_program_that_was_told_to_exit_has_ended(said, exited) -> None:
    found = iterations_complete(training(lines(range(1, 7), 500), exited=exited))
    assert (found.verdict, found.wanted, found.actual) == (OK, 6, 6)
    assert "told to exit, of 500" in found.evidence
    assert iterations_complete(training(lines(range(1, 7), 500), 500, exited=exited)).verdict is FAIL
    assert iterations_complete(training(lines([1, 2, 4, 5, 6], 500), exited=exited)).verdict is FAIL
    assert iterations_complete(training(lines([1, 2, 3], 500), exited=6)).verdict is FAIL
    run = "".join(
        f" iteration {at:8d}/     500 | lm loss: {9 - at / 10:.6E} | number of nan iterations:   0 |\n"
        for at in range(1, 7)
    )

    def complete(*end: str):
        gates = judge_log(read_log([run, *end]), {})
        return next(gate for gate in gates if gate.name == "iterations_complete").verdict

    assert complete(f"[exiting program {said}] datetime: 2026-11-24 07:00:00\n") is OK
    assert complete("[exiting program after receiving SIGTERM.] datetime: 2026-11-24 07:00:00\n") is FAIL
    assert complete() is FAIL


def test_the_log_says_from_which_checkpoint_a_run_goes_on() -> None:
    run = [f" iteration {at:8d}/      60 | lm loss: {9 - at / 10:.6E} |\n" for at in range(41, 61)]
    load = "  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 40\n"
    for before, expected in ((load, OK), ("", UNKNOWN), (load.replace("40", "0"), UNKNOWN)):
        gates = judge_log(read_log([before, *run]), {})
        assert next(gate for gate in gates if gate.name == "iterations_complete").verdict is expected


def test_a_damaged_line_makes_a_complete_run_unknown_and_no_better_an_incomplete_one() -> None:
    assert iterations_complete(training(lines(range(1, 4), 3), damaged=[2])).verdict is UNKNOWN
    assert iterations_complete(training(lines(range(1, 3), 3), damaged=[2])).verdict is FAIL
    assert (
        "the line of iteration 2 was cut" in iterations_complete(training(lines(range(1, 4), 3), damaged=[2])).evidence
    )


# ---------------------------------------------------------------------------------------------------------- finite


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (GREATEST_LOSS, OK),
        (-GREATEST_LOSS, OK),
        (GREATEST_LOSS * 1.001, FAIL),
        (-GREATEST_LOSS * 1.001, FAIL),
        (0.0, OK),
        (math.nan, FAIL),
        (math.inf, FAIL),
        (-math.inf, FAIL),
        (None, FAIL),
    ],
)
def test_what_is_a_finite_loss(loss, expected) -> None:
    gate = loss_finite(training(curve([3.0, loss, 2.0])))
    assert gate.verdict is expected
    assert (gate.wanted, gate.actual, gate.unit) == (3, 3 if expected is OK else 2, "iterations")
    assert (gate.remedy is None) == (expected is OK)
    if expected is FAIL:
        assert "of iteration 2" in gate.evidence
    else:
        assert gate.evidence == "a finite loss on each of 3 lines"


def test_each_fault_of_the_losses_is_counted_and_said() -> None:
    gate = loss_finite(training(curve([3.0, None, math.inf, None, 2.0]), damaged=[4]))
    assert (gate.verdict, gate.wanted, gate.actual) == (FAIL, 5, 2)
    for said in (
        "on the line of iteration 2 (",
        "the loss of iteration 3 is not finite",
        "iteration 4 was cut or mixed",
    ):
        assert said in gate.evidence
    assert loss_finite(training(curve([3.0, None, 2.0]), damaged=[2])).verdict is UNKNOWN
    assert loss_finite(training(curve([3.0, None, 2.0]), damaged=[3])).verdict is FAIL
    assert loss_finite(training([])).verdict is FAIL


# --------------------------------------------------------------------------------------------------------- skipped


@pytest.mark.parametrize(
    ("skipped", "nan", "expected", "actual"),
    [
        (0, 0, OK, 0),
        (1, 0, FAIL, 1),
        (0, 1, FAIL, 1),
        (2, 3, FAIL, 5),
        (None, 0, UNKNOWN, 0),
        (0, None, UNKNOWN, 0),
        (None, 1, FAIL, 1),
        (1, None, FAIL, 1),
    ],
)
def test_what_is_counted_as_skipped_or_nan(skipped, nan, expected, actual) -> None:
    changed = lines([2], 3, skipped_iterations=skipped, nan_iterations=nan)
    gate = no_skipped_or_nan(training([*lines([1], 3), *changed, *lines([3], 3)]))
    assert (gate.verdict, gate.actual, gate.wanted) == (expected, actual, 0)
    assert ("at iteration 2" in gate.evidence) == (expected is FAIL)
    assert ("the line of iteration 2 does not say" in gate.evidence) == (skipped is None or nan is None)
    assert f"{skipped or 0} skipped and {nan or 0} NaN on 3 lines" in gate.evidence
    assert (gate.remedy is None) == (expected is OK)


def test_without_lines_nothing_is_known_of_skips() -> None:
    gate = no_skipped_or_nan(training([]))
    assert (gate.verdict, gate.actual, gate.evidence) == (UNKNOWN, None, "no iteration line")
