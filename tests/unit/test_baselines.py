"""Earlier runs say of a figure how it stands: too few of them nothing, enough of them by how much it is worse."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import baselines as simulated
from shakedown.gates.baselines.judge import judge_against
from shakedown.gates.baselines.scan import PRIOR, estimate, lengths, scan, student_quantile

BEGIN = datetime(2026, 9, 1, tzinfo=UTC)


def history(*values: float) -> list[tuple[datetime, float]]:
    return [(BEGIN + timedelta(days=day), value) for day, value in enumerate(values)]


STEADY = (386.1, 384.9, 385.4, 383.8, 385.9, 386.4, 384.2, 385.0, 385.7, 384.6)


@pytest.mark.parametrize("count", range(5))
def test_fewer_than_five_runs_judge_nothing(count: int) -> None:
    told = judge_against(history(*STEADY[:count]), 1.0, "at least")
    assert (told.lost, told.count, told.needed, told.bound) == (None, count, 5, None)


def test_a_loss_is_one_in_the_direction_of_the_metric() -> None:
    assert judge_against(history(*STEADY), 385.0, "at least").lost is False
    assert judge_against(history(*STEADY), 366.0, "at least").lost is True
    assert judge_against(history(*STEADY), 366.0, "at most").lost is False
    slow = judge_against(history(*STEADY), 404.0, "at most")
    assert slow.lost is True and slow.bound is not None and 385 < slow.bound < 404


def test_what_decided_is_told() -> None:
    told = judge_against(history(*STEADY), 366.0, "at least")
    assert (told.runs, told.earlier, told.count, told.recent) == (1, 10, 10, 366.0)
    assert told.centre == pytest.approx(385.2, abs=0.3)
    assert str(told).startswith("this run is worse: at least 3") and " by 10 runs around 385." in str(told)
    assert told.spread is not None and told.error == pytest.approx(told.spread / math.sqrt(10))


def test_one_outlier_among_the_earlier_runs_does_not_hide_a_loss() -> None:
    seen = judge_against(history(*STEADY, 300.0), 360.0, "at least")
    assert seen.lost is True and seen.centre == pytest.approx(384, abs=2)


def test_a_small_loss_is_found_once_it_stays() -> None:
    values = [*STEADY, *STEADY]
    by = []
    for _ in range(5):
        told = judge_against(history(*values), 376.0, "at least")
        by.append(told.lost)
        values.append(376.0)
    assert by[0] is False and by[-1] is True
    told = judge_against(history(*values), 376.0, "at least")
    assert told.runs > 1 and told.earlier + told.runs == len(values) + 1
    assert told.recent == pytest.approx(376.5, abs=1.5)


def test_the_order_of_time_counts_and_not_the_one_given() -> None:
    values = history(*STEADY, *STEADY, 376.0, 376.0, 376.0)
    told = judge_against(values[::-1], 376.0, "at least")
    assert told == judge_against(values, 376.0, "at least") and told.runs > 1


def test_too_small_a_loss_is_not_told_however_even_the_runs_are() -> None:
    assert judge_against(history(*[100.0] * 500), 99.6, "at least").lost is False


def test_figures_that_are_no_numbers_are_refused() -> None:
    for values, value in (((1.0, math.nan), 1.0), ((1.0, 1.0), math.inf)):
        with pytest.raises(ValueError, match="finite"):
            judge_against(history(*values), value, "at least")


FIGURE = st.floats(0.0, 1e15)


@settings(deadline=None, max_examples=80)
@given(st.lists(FIGURE, min_size=5, max_size=40), FIGURE, FIGURE, st.sampled_from(["at least", "at most"]))
def test_a_worse_value_never_turns_a_loss_into_none(
    earlier: list[float], one: float, other: float, direction: str
) -> None:
    worse, better = (min, max) if direction == "at least" else (max, min)
    by_better = judge_against(history(*earlier), better(one, other), direction)  # type: ignore[arg-type]
    by_worse = judge_against(history(*earlier), worse(one, other), direction)  # type: ignore[arg-type]
    assert by_worse.lost or not by_better.lost


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(1.0, 1e6), min_size=6, max_size=30), st.integers(-6, 6))
def test_the_unit_decides_nothing(values: list[float], exponent: int) -> None:
    scaled = [value * 2.0**exponent for value in values]  # a power of two: nothing is rounded
    told = judge_against(history(*values[:-1]), values[-1], "at least")
    assert judge_against(history(*scaled[:-1]), scaled[-1], "at least").lost == told.lost


def test_comparisons_go_back_half_way_at_most() -> None:
    assert lengths(5) == [] and lengths(6) == [1] and lengths(9) == [1, 2, 3, 4]
    assert max(lengths(100)) <= 50 and len(lengths(10_000)) < 30


def test_a_run_is_worse_where_any_comparison_says_so() -> None:
    random = np.random.default_rng(5)
    values = 1 + 0.01 * random.standard_normal((50, 13)) - 0.02 * (random.random((50, 1)) < 0.5)
    values[:, -1] -= 0.02
    lost = [any(window.lost for window in scan(row, 1)) for row in values.tolist()]
    assert 0 < sum(lost) < 50
    assert [judge_against(history(*row[:-1]), row[-1], "at least").lost for row in values.tolist()] == lost


@pytest.mark.parametrize(
    "freedom, chance, value",
    # Tables of Student's t, as in Fisher and Yates' and NIST's handbooks.
    [
        (1, 0.01, 31.821),
        (4, 0.005, 4.604),
        (5, 0.001, 5.893),
        (10, 0.01, 2.764),
        (30, 0.0005, 3.646),
        (100, 0.005, 2.626),
    ],
)
def test_quantiles_are_those_of_the_tables(freedom: int, chance: float, value: float) -> None:
    assert student_quantile(freedom, chance) == pytest.approx(value, abs=0.0006)


def test_quantiles_between_whole_degrees_of_freedom_lie_between_theirs() -> None:
    values = [student_quantile(4 + step / 10, 0.0018) for step in range(200)]
    assert values == sorted(values, reverse=True)
    assert student_quantile(1e6, 0.0078) == pytest.approx(NormalDist().inv_cdf(1 - 0.0078), rel=1e-5)


# The same simulation as `make bench`, smaller: docs/developers/accuracy.md has its tables.
HEAVIEST = "Student's t, 3 degrees of freedom"


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(noise, id=noise.name, marks=[] if noise.name in ("normal", HEAVIEST) else [pytest.mark.long])
        for noise in simulated.NOISES
    ],
)
def test_false_alarms_stay_rare(noise: simulated.Noise) -> None:
    series = simulated.Series(simulated.baseline, noise, 300, np.random.default_rng(7))
    assert series.healthy(14) < 0.012
    naive = simulated.Series(simulated.three_sigma, noise, 500, np.random.default_rng(7))
    assert naive.healthy(10) > 0.015


def test_losses_are_found() -> None:
    random = np.random.default_rng(11)
    series = simulated.Series(simulated.baseline, simulated.NOISES[0], 800, random)
    assert series.found([0.95])[0] > 0.93
    series.healthy(10)
    shares = series.found([0.97] * 4)
    assert shares[0] > 0.25 and shares[3] > 0.87
    best = [simulated.best_of_several(0.03, 10, runs) for runs in range(1, 5)]
    assert all(share < bound for share, bound in zip(shares, best, strict=True))


def test_a_slow_decay_is_found() -> None:
    series = simulated.Series(simulated.baseline, simulated.NOISES[0], 40, np.random.default_rng(13))
    series.passes = 1 + 0.01 * np.random.default_rng(14).standard_normal((40, 40))
    loss = simulated.weekly(5, 0, 10, 0.002)
    assert series.found([1 - each for each in loss])[-1] > 0.93


def test_a_spread_rests_on_the_prior_and_on_one_run_less_than_there_are() -> None:
    assert estimate([10.0] * 8, 1).freedom == PRIOR.weight + 7
