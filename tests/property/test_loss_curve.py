"""What must hold of a loss curve, whatever run the curve is from: a run that ends badly never passes."""

from __future__ import annotations

import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.corpus import CURVES, runs
from shakedown.gates.loss_curve import BAD, Point, curve

FALLING = [
    run.losses
    for run in runs(CURVES / "seen.toml")
    if run.healthy
    and len(run.losses) >= 20
    and not any(map(math.isnan, run.losses))
    and run.losses[-1] < 0.9 * run.losses[0]
]


def word(losses: list[float], first: int = 1, interval: int = 1) -> str:
    return curve([Point(first + at * interval, loss) for at, loss in enumerate(losses)]).word


healthy = st.sampled_from(FALLING).flatmap(
    lambda losses: st.integers(16, len(losses)).map(lambda count: list(losses[:count]))
)


@given(healthy, st.floats(0.3, 0.75), st.floats(1.1, 3.0))
@settings(deadline=None)
def test_a_run_whose_end_is_above_its_start_never_passes(losses, share, factor):
    cut = int(len(losses) * share)
    worse = losses[:cut] + [factor * losses[0] * (1 + 0.001 * (at % 3)) for at in range(len(losses) - cut)]
    assert word(worse) != "falls"


@given(healthy, st.floats(0.4, 0.75))
@settings(deadline=None)
def test_a_run_that_loses_all_again_never_passes(losses, share):
    cut = int(len(losses) * share)
    assume(min(losses[:cut]) < 0.8 * losses[0])
    forgotten = losses[:cut] + [losses[0] * (1 + 0.001 * (at % 3)) for at in range(len(losses) - cut)]
    assert word(forgotten) in BAD | {"swings"}


@given(healthy, st.integers(1, 10**6), st.sampled_from([1, 5, 10, 100]))
@settings(deadline=None)
def test_where_a_run_begins_and_how_often_it_prints_change_nothing_but_a_plateau(losses, first, interval):
    low = [float(f"{loss / 3:.7g}") for loss in losses]  # below the level of random weights
    assert word(low, first, interval) == word(low)


@given(st.integers(6, 200), st.floats(2.0, 12.0), st.floats(0.02, 0.9))
def test_a_loss_that_falls_at_every_step_passes(count, start, share):
    losses = [float(f"{start * (1 - share * at / (count - 1)):.9g}") for at in range(count)]
    assert word(losses) == "falls"
    assert word(losses[::-1]) != "falls"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=60))
def test_any_finite_values_are_judged(losses):
    assert word(losses)
