"""Gates and what they rest on, at the edges of their conditions: tests/data/cases/gates.jsonl, and levels by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shakedown.gates import loss_curve
from shakedown.gates.iterations import GREATEST_LOSS, is_loss
from shakedown.gates.loss_curve import Point, _at_most, _ends_in_spike, _falls, _Levels, _risen
from tests.cases import cases, wrong

CASES = cases("gates")


@pytest.mark.parametrize("call", CASES)
def test_a_gate_returns_what_its_evidence_says(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(CASES[call], monkeypatch) is None


def test_the_largest_float32_is_a_loss_and_nothing_beyond() -> None:
    """Megatron averages losses in this precision."""
    assert [is_loss(value) for value in (GREATEST_LOSS, -GREATEST_LOSS, 3.5e38, -3.5e38, None)] == [
        True, True, False, False, False,
    ]  # fmt: skip


LIMITS = {
    "loss.rise": 0.25, "loss.small_rise": 0.125, "loss.lost_again": 0.5, "loss.far_above": 0.5, "loss.fall": 0.125,
    "loss.beyond_scatter": 8, "loss.beyond_wander": 80, "loss.spike": 0.5, "loss.end_rise": 0.25, "loss.end_scatter": 4,
}  # fmt: skip
"""Limits that numbers without rounding meet exactly."""


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_curve, "threshold", LIMITS.__getitem__)


def levels(
    losses: Sequence[float], scatter: float = 0, points: Sequence[float] | None = None, resolution: float = 0
) -> _Levels:
    """Levels of one line each. `points`: the losses, where they are others."""
    of_levels = [Point(at, float(loss)) for at, loss in enumerate(losses, 1)]
    lines = of_levels if points is None else [Point(at, float(loss)) for at, loss in enumerate(points, 1)]
    return _Levels(lines, 1, of_levels, scatter, resolution)


@pytest.mark.parametrize(
    ("losses", "scatter", "word"),
    [
        ((40, 8, 10), 0, "jumps"),  # a quarter above the best level, and no tenth of the fall
        ((40, 8, 9.9), 0, None),
        ((18, 8, 9), 0, "jumps"),  # an eighth, and a tenth of the fall
        ((19, 8, 9), 0, None),
        ((18, 8.5, 9.5), 0, None),
        ((20, 16, 17), 0, None),
        ((18, 16, 17), 0, "jumps"),  # half of the fall, and a fiftieth of the best level
        ((52, 50, 51), 0, "jumps"),
        ((53, 51, 52), 0, None),
        ((52.125, 50, 51), 0, None),
        ((8, 4, 8), 0, "jumps"),
        ((8, 4, 8.5), 0, "above its start"),
        ((8, 8, 12), 100, "above its start"),  # however the losses scatter
        ((8, 8, 11.9), 100, None),
        ((10, 9, 11), 0.125, "above its start"),  # by 8 scatters, since the loss has fallen by a tenth
        ((10, 9, 11), 0.25, None),
        ((10, 9.5, 13), 0.25, None),  # else by 80
        ((10, 9.5, 13), 0.03125, "above its start"),
        ((8, 4, 6, 8), 0, "jumps"),  # one step of half the rise
        ((8, 4, 5.5, 7, 8), 0, "rises"),
        ((8, 4, 5, 6, 7, 8), 0, "rises"),
        ((16, 4, 8, 2, 3, 4), 0, "jumps"),
        ((16, 4, 12, 2, 2.5, 3, 3.5, 4), 0, "rises"),  # what came before the best level is no part of the rise
    ],
)
@pytest.mark.usefixtures("exact")
def test_a_rise_counts_from_its_limits_on(losses: Sequence[float], scatter: float, word: str | None) -> None:
    assert _risen(levels(losses, scatter)) == word


@pytest.mark.parametrize(
    ("losses", "scatter", "resolution", "falls"),
    [
        ((4, 3.75, 3.5, 3.5), 0, 0.5, False),  # no more than the resolution
        ((4, 3.75, 3.5, 3.25), 0, 0.5, True),
        ((8, 7.75, 7.5, 7), 0, 0, False),  # no more than an eighth
        ((8, 7.75, 7.5, 6.75), 0, 0, True),
        ((8, 7.75, 7.5, 7.25, 7, 6.75, 6.5), 0.5, 0, True),  # of few losses, by the order of all
        ((8, 7.75, 7.5, 7.25, 7, 6.75, 6.75, 6.5), 0.25, 0, True),
        ((8, 7.75, 7.5, 7.25, 7, 6.75, 6.75, 6.5), 0.5, 0, False),  # of more, the levels are apart as well
        ((8, 7.75, 7.5, 7.25, 7, 6.75, 6.5), 0.5, 0, True),
        ((8, 9, 9.5, 9.75, 6), 0.25, 0, True),  # the levels are far apart, whatever the order is
        ((8, 9, 9.5, 9.75, 6), 0.5, 0, False),
    ],
)
@pytest.mark.usefixtures("exact")
def test_a_fall_is_more_than_resolution_and_scatter(
    losses: Sequence[float], scatter: float, resolution: float, falls: bool
) -> None:
    assert _falls(levels(losses, scatter, resolution=resolution)) == falls


def test_a_plateau_has_surely_fallen_by_less_than_its_share() -> None:
    assert not _at_most(levels((4, 3)), 0.25)
    assert _at_most(levels((4, 3.125)), 0.25)
    assert not _at_most(levels((4, 3.125), 0.0625), 0.25)


@pytest.mark.parametrize(
    ("points", "of_levels", "scatter", "word"),
    [
        ((4, 4, 4, 4, 4, 4, 4, 6), (5, 4, 4), 0.25, None),  # 8 scatters above the end, and half above the best level
        ((4, 4, 4, 4, 4, 4, 4, 6.5), (5, 4, 4), 0.25, "above its start"),
        ((4, 4, 4, 4, 4, 4, 4, 8), (8, 4, 4), 0, "spike at its end"),
        ((4, 4, 4, 4, 4, 4, 8.5), (8, 4, 4), 0, "above its start"),
        ((4, 4, 4, 4, 4, 4, 6), (8, 4, 4), 0, None),
        ((4, 4, 4, 4, 4, 4, 7), (8, 4, 4), 0, "spike at its end"),
        ((4, 4, 4, 4, 4, 4, 4, 7), (8, 4, 6), 0.125, "spike at its end"),  # above the best level alone
        ((4, 4, 4, 4, 4, 4, 7), (8, 4, 6), 0.125, None),  # which of so few lines is no level
        ((4, 4, 4, 4, 4, 4, 4, 7), (8, 4, 7), 0.5, None),  # 6 scatters
        ((4, 4, 4, 4, 4, 4, 4, 6), (8, 4, 6), 0, None),
        ((4, 4, 4, 4, 4, 5, 5, 5), (8, 4, 4), 0.25, None),  # 4 scatters
        ((4, 4, 4, 4, 4, 5, 5, 5), (8, 4, 4), 0, None),  # a quarter above the best level
        ((4, 4, 4, 4, 4, 5.5, 5.5, 5.5), (8, 4, 4), 0.25, "rise at its end"),
        ((4, 4, 4, 4, 5.5, 5.5, 5.5), (8, 4, 4), 0.1875, None),
        ((4, 4, 4, 4, 4, 4, 5.5, 5.5), (8, 4, 4), 0.25, "rise at its end"),
        ((4, 4, 4, 4, 4, 4, 4, 5.5), (8, 4, 4), 0.25, None),
    ],
)
@pytest.mark.usefixtures("exact")
def test_what_the_last_lines_do_counts_beyond_scatter_and_limit(
    points: Sequence[float], of_levels: Sequence[float], scatter: float, word: str | None
) -> None:
    assert _ends_in_spike(levels(of_levels, scatter, points)) == word


def test_a_learning_rate_or_the_iterations_show_that_a_run_has_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_curve, "threshold", {"loss.learned": 4.0, "loss.learned_iterations": 40}.__getitem__)

    def learned(count: int, step: int, rate: Any, first: Any = ...) -> bool:
        rates = [rate if first is ... else first] + [rate] * (count - 1)
        return loss_curve._has_learned([Point(step * at, 1.0, one) for at, one in enumerate(rates, 1)])

    assert [learned(count, 2, 0.25) for count in (7, 8, 9)] == [False, True, True]
    assert [learned(count, 10, None) for count in (3, 4, 5)] == [False, True, True]
    assert not learned(39, 1, 0.25, first=None) and learned(40, 1, 0.25, first=None)
