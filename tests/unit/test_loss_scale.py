"""The search for a loss scale: what belongs to it is no failure, everything else that is skipped is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shakedown.gates import Gate, NodeLog, judge_log, read_log
from shakedown.logs.figures import LossScale, loss_scale, measure
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict

LOGS = Path(__file__).parents[1] / "data" / "logs"
OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN
START = 2.0**32


def line(number: int, scale: float | None, skipped: int | None = 0, **more: object) -> Iteration:
    loss = None if skipped else 12.0 - 0.2 * number
    fields = {"lm_loss": loss, "elapsed_ms": 100.0 if skipped else 650.0, "nan_iterations": 0}
    counted = {"iteration": number, "total_iterations": 20, "loss_scale": scale, "skipped_iterations": skipped}
    return Iteration(**(counted | fields | more))


def run(*scales: float, good: int | None = None, interval: int = 1) -> list[Iteration]:
    """A line with a skip for each scale, and then good ones until there are 20."""
    searched = [line(number, scale, 1) for number, scale in enumerate(scales, start=1)]
    rest = range(len(scales) + 1, 21 if good is None else len(scales) + 1 + good)
    return [*searched, *(line(number, scales[-1]) for number in rest)]


def halved(start: float, count: int) -> list[float]:
    return [start / 2.0**step for step in range(count)]


def judged(iterations: list[Iteration], **how: object) -> dict[str, Gate]:
    return {gate.name: gate for gate in judge_log(NodeLog(lines=1, iterations=tuple(iterations)), {}, **how)}


# -------------------------------------------------------------------------------------------------- a real fp16 run


def test_a_real_run_passes_every_gate_although_it_skips_its_first_iterations() -> None:
    """What the recipe gpt-small-fp16 printed with two ranks on a CPU: Megatron-Core's own scaler, from 2^32."""
    log = read_log(LOGS / "fp16_search.log")
    assert log.iterations[0].lm_loss is None and log.iterations[0].loss_scale == START
    gates = {gate.name: gate for gate in judge_log(log, {}, 30)}
    assert {gate.verdict for gate in gates.values()} == {OK, UNKNOWN}
    assert gates["steady"].actual == "uneven: 23%", "the two ranks shared their cores with other programs"
    assert [gate.name for gate in gates.values() if gate.verdict is UNKNOWN] == ["steady"]
    found = loss_scale(log.iterations)
    assert (found.lines, found.skipped, found.ended, found.later) == (14, 14, True, ())
    assert found.barren == frozenset(range(1, 15))
    assert found.scale == START / 2**13  # the first overflow leaves it as it is
    assert (gates["loss_finite"].wanted, gates["loss_finite"].actual) == (16, 16)
    assert gates["no_skipped_or_nan"].actual == 0
    assert "14 skipped at the start while the loss scale fell to 524288" in gates["no_skipped_or_nan"].evidence
    assert "14 lines without one" in gates["loss_finite"].evidence
    assert measure(log.iterations).steady == 30 - 14 - 2 - 1


@pytest.mark.parametrize("cut", [0, 1, 7, 13])
def test_the_real_run_with_one_line_of_the_search_missing_fails(cut: int) -> None:
    iterations = list(read_log(LOGS / "fp16_search.log").iterations)
    gates = judged(iterations[:cut] + iterations[cut + 1 :])
    # Without its first line a log may be the rest of a longer one.
    assert gates["iterations_complete"].verdict is (FAIL if cut else UNKNOWN)


@pytest.mark.parametrize("number", [15, 16, 29, 30])
def test_the_real_run_with_a_later_skip_fails(number: int) -> None:
    iterations = list(read_log(LOGS / "fp16_search.log").iterations)
    at = number - 1
    later = {"skipped_iterations": 1, "lm_loss": None}
    for scale in (iterations[at].loss_scale, iterations[at].loss_scale / 2):
        spoilt = [
            *iterations[:at],
            replace(iterations[at], loss_scale=scale, **later),
            *iterations[at + 1 :],
        ]
        gates = judged(spoilt)
        search_goes_on = number == 15 and scale < iterations[at].loss_scale
        assert gates["no_skipped_or_nan"].verdict is (OK if search_goes_on else FAIL)
        assert gates["loss_finite"].verdict is (OK if search_goes_on else FAIL)


# ----------------------------------------------------------------------------------------------------- its boundaries


@pytest.mark.parametrize(
    "scales",
    [
        halved(START, 5),  # hysteresis 2: the first skip changes nothing
        halved(START / 2, 5),  # hysteresis 1
        [4096.0],  # one overflow
        halved(65536.0, 4),
        [1000.0, 500.0, 250.0, 125.0, 62.5, 31.2, 15.6],  # printed with one decimal
        [2.0, 1.0],
    ],
)
def test_a_search_is_no_failure(scales: list[float]) -> None:
    gates = judged(run(*scales))
    assert {name: gate.verdict for name, gate in gates.items() if gate.verdict is not OK} == {}
    assert gates["loss_finite"].wanted == 20 - len(scales)
    found = loss_scale(run(*scales))
    assert (found.lines, found.skipped, found.scale, found.later) == (len(scales), len(scales), scales[-1], ())


@pytest.mark.parametrize(
    ("iterations", "later"),
    [
        ([line(1, 1.0, 1), *run(1.0)[1:]], (1,)),  # bf16: there is no scale to be found
        ([line(1, 0.5, 1), *run(1.0)[1:]], (1,)),
        ([line(1, None, 1), *run(4096.0)[1:]], (1,)),
        ([line(1, float("inf"), 1), *run(4096.0)[1:]], (1,)),
        ([line(1, START * 2, 1), *run(4096.0)[1:]], (1, 2)),  # and the fall after it
        (run(4096.0, 4096.0), (2,)),  # it does not fall
        (run(4096.0, 2048.0, 2048.0), (3,)),
        (run(4096.0, 1024.0), (2,)),  # too far for one skip
        (run(4096.0, 3000.0), (2,)),  # not by half
        (run(4096.0, 8192.0), (2,)),  # it grows
        (run(2.0, 1.0, 1.0), (3,)),  # at its lowest
        (run(2.0, 1.0, 0.5), (3,)),
        ([line(1, 4096.0), line(2, 2048.0, 1), *run(2048.0)[2:]], (2,)),  # not from the start
        ([*run(4096.0, 2048.0)[:3], line(4, 1024.0, 1), *run(1024.0)[4:]], (4,)),  # not in one stretch
        ([*run(4096.0)[:10], line(11, 2048.0, 1), *run(2048.0)[11:]], (11,)),
        ([line(1, 4096.0, 2), *run(4096.0)[1:]], (1,)),  # more skips than iterations
        ([line(1, 4096.0, 1, nan_iterations=1), *run(4096.0)[1:]], (1,)),  # the loss itself was NaN
        ([line(1, 4096.0, 1), line(2, 2048.0, 1, nan_iterations=1), *run(2048.0)[2:]], (2,)),
    ],
)
def test_what_is_no_search_fails(iterations: list[Iteration], later: tuple[int, ...]) -> None:
    assert loss_scale(iterations).later == later
    gates = judged(iterations)
    assert gates["no_skipped_or_nan"].verdict is FAIL
    assert gates["no_skipped_or_nan"].actual >= 1
    assert gates["no_skipped_or_nan"].remedy


def test_a_search_that_does_not_end_fails() -> None:
    never = run(*halved(START, 20))
    found = loss_scale(never)
    assert (found.lines, found.ended) == (20, False)
    gates = judged(never)
    assert {gates[name].verdict for name in ("loss_finite", "no_skipped_or_nan")} == {FAIL}
    assert gates["loss_falling"].verdict is UNKNOWN
    assert "did not end" in gates["no_skipped_or_nan"].evidence
    assert "every iteration was skipped" in gates["loss_finite"].evidence
    assert "--initial-loss-scale" in gates["no_skipped_or_nan"].remedy
    assert measure(never).steady == 0
    just = judged(run(*halved(START, 19)))
    assert just["no_skipped_or_nan"].verdict is OK
    assert just["loss_finite"].verdict is OK
    assert just["loss_falling"].verdict is UNKNOWN, "one loss is no curve"


def test_a_loss_that_is_missing_after_the_search_or_infinite_in_it_fails() -> None:
    iterations = run(*halved(START, 5))
    missing = [*iterations[:9], line(10, iterations[9].loss_scale, lm_loss=None), *iterations[10:]]
    assert judged(missing)["loss_finite"].verdict is FAIL
    assert "iteration 10 (" in judged(missing)["loss_finite"].evidence
    infinite = [line(1, START, 1, lm_loss=float("inf")), *iterations[1:]]
    assert judged(infinite)["loss_finite"].verdict is FAIL
    assert judged(infinite)["loss_falling"].verdict is UNKNOWN


def test_a_loss_that_is_printed_for_a_skipped_iteration_counts() -> None:
    """GPT-NeoX and DeepSpeed print it."""
    iterations = [replace(it, lm_loss=12.0) for it in run(*halved(START, 3))[:3]]
    gates = judged([*iterations, *run(*halved(START, 3))[3:]])
    assert gates["loss_finite"].wanted == 20
    assert gates["loss_finite"].verdict is OK


# --------------------------------------------------------------------------------------------- several in one line


def every_ten(*rows: tuple[float, int]) -> list[Iteration]:
    rest = [(rows[-1][0], 0)] * (20 - len(rows))
    return [
        line(10 * index, scale, skipped, total_iterations=200, lm_loss=None if skipped == 10 else 12.0 - 0.2 * index)
        for index, (scale, skipped) in enumerate([*rows, *rest], start=1)
    ]


@pytest.mark.parametrize(
    ("rows", "skipped", "barren"),
    [
        # Seen in public: BERT of Megatron-LM, issue 743 of NVIDIA/nccl (October 2022), a line for ten iterations.
        ([(2.0**23, 10), (2.0**15, 8)], 18, {10}),
        ([(2.0**29, 4)], 4, set()),
        ([(2.0**23, 10), (2.0**13, 10), (2.0**12, 1)], 21, {10, 20}),
    ],
)
def test_a_line_may_tell_of_several_skips(rows, skipped, barren) -> None:
    iterations = every_ten(*rows)
    found = loss_scale(iterations)
    assert (found.lines, found.skipped, found.barren, found.later) == (len(rows), skipped, barren, ())
    assert {gate.verdict for gate in judged(iterations).values()} == {OK}


@pytest.mark.parametrize(
    "rows",
    [
        [(2.0**29, 5)],  # from 2^33, or higher
        [(2.0**23, 10), (2.0**16, 8)],  # eight skips, seven halvings
        [(2.0**23, 10), (2.0**14, 8)],
        [(2.0**29, 4), (2.0**28, 1)],  # it had ended: six went well
        [(1.0, 4)],
    ],
)
def test_as_many_halvings_as_skips_or_it_is_no_search(rows) -> None:
    assert judged(every_ten(*rows))["no_skipped_or_nan"].verdict is FAIL


def test_the_first_line_ahead_of_its_time_is_part_of_the_search_and_counted_once() -> None:
    first = line(1, START, 1, total_iterations=200)
    iterations = [first, *every_ten((2.0**23, 10), (2.0**15, 8))]
    found = loss_scale(iterations)
    assert (found.lines, found.skipped, found.barren, found.later) == (3, 18, {1, 10}, ())
    assert {gate.verdict for gate in judged(iterations).values()} == {OK}
    good = line(1, 4096.0, total_iterations=200)
    assert loss_scale([good, *every_ten((4096.0, 0))]) == LossScale()
    assert loss_scale([first, *every_ten((2.0**29, 4))]).barren == {1}
    assert judged([first, *every_ten((1.0, 4))])["no_skipped_or_nan"].verdict is FAIL


def test_the_scale_at_most_begins_at_two_to_the_thirty_second() -> None:
    assert loss_scale(every_ten((2.0**29, 4))).lines == 1
    assert loss_scale(every_ten((2.0**29 + 1, 4))).lines == 0


# -------------------------------------------------------------------------------------------- DeepSpeed counts none


def deepspeed(*scales: float) -> list[Iteration]:
    rest = [scales[-1]] * (20 - len(scales))
    return [line(number, scale) for number, scale in enumerate([*scales, *rest], start=1)]


def test_a_scale_that_falls_is_a_skip_whatever_the_line_counts() -> None:
    search = loss_scale(deepspeed(*halved(65536.0, 4)))
    assert (search.lines, search.skipped, search.later, search.barren) == (4, 3, (), frozenset())
    assert judged(deepspeed(*halved(65536.0, 4)))["no_skipped_or_nan"].verdict is OK
    assert judged(deepspeed(65536.0))["no_skipped_or_nan"].verdict is OK
    later = judged(deepspeed(65536.0, 65536.0, 32768.0))["no_skipped_or_nan"]
    assert (later.verdict, later.actual) == (FAIL, 1)
    assert "at iteration 3" in later.evidence
    assert judged(deepspeed(*halved(65536.0, 20)))["no_skipped_or_nan"].verdict is FAIL, "it does not end"
    missing = [replace(it, lm_loss=None) if it.iteration == 2 else it for it in deepspeed(4.0, 2.0)]
    assert judged(missing)["loss_finite"].verdict is FAIL, "DeepSpeed prints the loss of a skipped iteration"


def test_a_scale_that_grows_is_none() -> None:
    assert judged(deepspeed(65536.0, 131072.0))["no_skipped_or_nan"].verdict is OK
    assert loss_scale(deepspeed(65536.0, 131072.0)) == LossScale()


@pytest.mark.parametrize(("at", "after", "sound"), [(12, 8192.0, True), (12, 4096.0, True), (12, 2048.0, False)])
def test_a_scale_that_had_grown_may_overflow_and_no_other(at: int, after: float, sound: bool) -> None:
    """Megatron-Core doubles the scale after 1,000 good iterations, and the first overflow may leave it alone."""
    lines = [line(number, 4096.0 if number < 9 else 8192.0) for number in range(1, at)]
    lines += [line(at, after, 1), *(line(number, after) for number in range(at + 1, 21))]
    gates = judged(lines)
    found = gates["no_skipped_or_nan"]
    if sound:
        assert {gates[name].verdict for name in ("no_skipped_or_nan", "loss_finite", "loss_falling")} == {OK}
        assert "1 skipped where the loss scale had grown" in found.evidence and found.actual == 0
    else:
        assert found.verdict is FAIL and gates["loss_finite"].verdict is FAIL
    never_grew = [replace(each, loss_scale=after) for each in lines]
    assert judged(never_grew)["no_skipped_or_nan"].verdict is FAIL
    twice = [*lines[:at], line(at + 1, after, 1), *lines[at + 1 :]]
    assert judged(twice)["no_skipped_or_nan"].verdict is FAIL


def test_without_a_search_there_is_nothing_to_say() -> None:
    assert loss_scale([]) == LossScale()
    assert loss_scale([line(1, 4096.0)]) == LossScale()
    assert loss_scale(run(1.0)[1:]) == LossScale()
    assert LossScale().text() == ""


# ----------------------------------------------------------------------------------------------------------- figures


def test_the_skipped_iterations_and_the_warm_up_after_them_are_not_steady() -> None:
    iterations = run(*halved(START, 5))
    figure = measure(iterations).elapsed_time_per_iteration
    assert (figure.value, figure.count) == (650.0, 20 - 5 - 2 - 1)
    assert measure(iterations, warmup=0).elapsed_time_per_iteration.count == 20 - 5 - 1
    assert measure(run(*halved(START, 17))).steady == 0
    assert measure(run(*halved(START, 16))).steady == 1
