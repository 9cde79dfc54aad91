"""The figures: which iterations count, which way is better, and what cannot be had."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from shakedown.logs.figures import measure
from shakedown.logs.iterations import Iteration
from shakedown.logs.metrics import GREATEST, METRICS
from tests.training_logs import parse

LOGS = Path(__file__).parents[1] / "data" / "logs"


def run(elapsed: list[float], **fields: float) -> list[Iteration]:
    return [
        Iteration(iteration=i, total_iterations=len(elapsed), elapsed_ms=ms, **fields)
        for i, ms in enumerate(elapsed, start=1)
    ]


def test_the_first_two_and_the_last_iteration_do_not_count():
    figure = measure(run([9000, 800, 100, 110, 120, 7000])).elapsed_time_per_iteration
    assert (figure.value, figure.mean, figure.count) == (110, 110, 3)
    assert figure.spread == 10  # between the quartiles 105 and 115


def test_one_slow_iteration_does_not_move_the_figure():
    figure = measure(run([0, 0, 100, 100, 5000, 100, 100, 0])).elapsed_time_per_iteration
    assert figure.value == 100
    assert figure.mean == 1080


def test_the_means_are_those_of_the_scripts_own_summary():
    with (LOGS / "rocm.log").open() as file:
        figures = measure(list(parse(file)))
    assert figures.throughput_per_gpu.mean == pytest.approx(1443.0470588235296)
    assert figures.elapsed_time_per_iteration.mean == pytest.approx(657.6470588235293)
    assert figures.mem_usage.value == 0.5462


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_too_short_a_run_has_no_figures(count):
    figures = measure(run([100.0] * count))
    assert figures.steady == 0
    assert all(figures.get(name) is None for name in METRICS)


def test_one_steady_iteration_has_a_figure_without_a_spread():
    figure = measure(run([1, 2, 100, 4])).elapsed_time_per_iteration
    assert (figure.value, figure.spread, figure.count) == (100, None, 1)


def test_tokens_are_derived_only_where_the_lines_have_none_and_everything_is_known():
    iterations = run([1, 1, 650, 650, 1], global_batch_size=16)
    figure = measure(iterations, seq_length=2048, world_size=8).tokens_per_gpu
    assert figure.value == pytest.approx(16 * 2048 * 1000 / (650 * 8))
    assert figure.derived
    assert measure(iterations, seq_length=2048).tokens_per_gpu is None
    assert measure(iterations, world_size=8).tokens_per_gpu is None
    printed = run([1, 1, 650, 650, 1], global_batch_size=16, tokens_per_gpu_per_s=5.0)
    figure = measure(printed, seq_length=2048, world_size=8).tokens_per_gpu
    assert (figure.value, figure.derived) == (5.0, False)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_no_figure(value):
    iterations = run([1, 1, 650, 650, 650, 1])
    iterations[3] = replace(iterations[3], elapsed_ms=value)
    iterations = [replace(it, global_batch_size=16) for it in iterations]
    figures = measure(iterations, seq_length=2048, world_size=8)
    assert figures.elapsed_time_per_iteration is None
    assert figures.tokens_per_gpu is None


def test_each_metric_knows_which_way_is_better():
    assert {name: metric.direction for name, metric in METRICS.items()} == {
        "throughput_per_gpu": "at least",
        "tokens_per_gpu": "at least",
        "elapsed_time_per_iteration": "at most",
        "mem_usage": "at most",
    }
    assert METRICS["throughput_per_gpu"].meets(380.0, 380.0)
    assert not METRICS["throughput_per_gpu"].meets(379.9, 380.0)
    assert not METRICS["elapsed_time_per_iteration"].meets(12000.1, 12000.0)
    assert not any(metric.meets(math.nan, 1.0) for metric in METRICS.values())


def test_a_name_that_is_no_metric_is_an_error():
    with pytest.raises(KeyError):
        measure([]).get("steady")


@pytest.mark.parametrize(
    ("name", "value", "possible"),
    [
        ("elapsed_time_per_iteration", 0.0, False),
        ("elapsed_time_per_iteration", 0.1, True),
        ("elapsed_time_per_iteration", -0.1, False),
        ("mem_usage", 0.0, True),  # rounded
        ("mem_usage", -0.1, False),
        ("throughput_per_gpu", 0.0, True),
        ("throughput_per_gpu", GREATEST, True),
        ("throughput_per_gpu", GREATEST * 1.01, False),
        ("throughput_per_gpu", math.inf, False),
        ("tokens_per_gpu", math.nan, False),
    ],
)
def test_a_value_that_no_machine_has_is_no_figure(name, value, possible):
    assert METRICS[name].possible(value) is possible
    iterations = [Iteration(iteration=i, total_iterations=5, **{METRICS[name].source: value}) for i in range(1, 6)]
    assert (measure(iterations).get(name) is not None) is possible


def test_tokens_are_not_derived_from_a_time_that_cannot_be():
    for wrong in (0.0, -650.0, 1e308):
        iterations = run([1, 1, 650, wrong, 650, 1], global_batch_size=16)
        assert measure(iterations, seq_length=2048, world_size=8).tokens_per_gpu is None
