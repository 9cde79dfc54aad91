"""The figures of a smoke run, taken from its steady iterations.

The names are those of the ROCm/cvs configuration files, so that figures expected there can be given here as they are.
"""

import statistics
from collections.abc import Sequence

from shakedown.common.frozen import Frozen
from shakedown.logs.iterations import Iteration, Summary
from shakedown.logs.loss_scale import loss_scale
from shakedown.logs.metrics import MEAN, METRICS, Metric

WARMUP = 2  # iterations, as the ROCm training scripts leave out; the last one is left out as well


class Figure(Frozen):
    """One metric over the judged iterations, in its own unit. `value` is the median and `mean` the mean, as published
    figures are; `spread` the distance between the quartiles, None with fewer than two values; `count` how many
    iterations had the field."""

    metric: Metric
    value: float
    mean: float
    spread: float | None
    count: int
    derived: bool = False  # computed from batch, sequence length, time and world size; not printed by the job
    summary: bool = False  # a mean that the job's script printed at its end; no iteration line has it


class Figures(Frozen):
    """The four metrics; None for one that the log cannot give. `steady` says how many iterations they rest on."""

    steady: int
    throughput_per_gpu: Figure | None = None
    tokens_per_gpu: Figure | None = None
    elapsed_time_per_iteration: Figure | None = None
    mem_usage: Figure | None = None

    def get(self, name: str) -> Figure | None:
        """Return the figure of that metric. Raises KeyError for a name that is no metric."""
        figure: Figure | None = getattr(self, METRICS[name].name)
        return figure

    def values(self) -> dict[str, float]:
        """Return the median of each figure, by its metric, and its mean, by the metric's name with `MEAN`: of all but
        the memory, which varies too little for two."""
        found = {name: figure for name in METRICS if (figure := self.get(name)) is not None}
        means = {name + MEAN: figure.mean for name, figure in found.items() if name != "mem_usage"}
        return {name: figure.value for name, figure in found.items()} | means


def measure(
    iterations: Sequence[Iteration],
    warmup: int = WARMUP,
    seq_length: int | None = None,
    world_size: int | None = None,
    global_batch: int | None = None,
    summary: Summary | None = None,
) -> Figures:
    """Measure the figures over the iterations without the first `warmup` and the last.

    The search for a loss scale comes before the warm-up: an iteration that is skipped does not run the optimizer, so
    its time is none of a training step's, and the first real step still has to set the optimizer up.

    Tokens per second and GPU are derived, as global batch x `seq_length` x 1000 / (ms x `world_size`), only where no
    line has them; `global_batch` counts where a line does not tell its own. What no line has and cannot be derived is
    taken from the `summary` of the job's script.

    A metric with a value that is not finite, or that no machine has, has no figure: there is no
    telling what it would have been.
    """
    steady = judged_lines(iterations, warmup)
    figures = {name: _figure(metric, _values(steady, metric.source)) for name, metric in METRICS.items()}
    if figures["tokens_per_gpu"] is None and figures["elapsed_time_per_iteration"] and seq_length and world_size:
        tokens = [
            batch * seq_length * 1000.0 / (it.elapsed_ms * world_size)
            for it in steady
            if (batch := it.global_batch_size or global_batch) and it.elapsed_ms is not None and it.elapsed_ms > 0
        ]
        if not any(it.tokens_per_gpu_per_s is not None for it in steady):
            figures["tokens_per_gpu"] = _figure(METRICS["tokens_per_gpu"], tokens, derived=True)
    for name, metric in METRICS.items():
        if figures[name] is None and summary is not None and not _values(steady, metric.source):
            figures[name] = _of_summary(metric, getattr(summary, name), len(steady))
    return Figures(steady=len(steady), **figures)


def tokens_of_all_gpus(lines: Sequence[Iteration], seq_length: int | None, world_size: int | None) -> float | None:
    """Return the tokens a second and GPU by the lines that count the tokens or samples of all GPUs: the greater of
    their medians. None where no line does, or where the number of GPUs (or tokens) is unknown."""
    if not world_size:
        return None
    rates = [(values, 1) for values in [_values(lines, "tokens_per_s")] if values]
    rates += [(values, seq_length) for values in [_values(lines, "samples_per_s")] if values and seq_length]
    return max((statistics.median(values) * factor / world_size for values, factor in rates), default=None)


def judged_lines(iterations: Sequence[Iteration], warmup: int = WARMUP) -> Sequence[Iteration]:
    """Return the lines without the search for a loss scale, the warm-up and the last."""
    return iterations[loss_scale(iterations).lines :][warmup:-1]


def _of_summary(metric: Metric, value: float | None, steady: int) -> Figure | None:
    if value is None or not metric.possible(value):
        return None
    return Figure(metric=metric, value=value, mean=value, spread=None, count=steady, summary=True)


def _values(iterations: Sequence[Iteration], field: str) -> list[float]:
    return [value for iteration in iterations if (value := getattr(iteration, field)) is not None]


def _figure(metric: Metric, values: list[float], derived: bool = False) -> Figure | None:
    if not values or not all(metric.possible(value) for value in values):
        return None
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else None
    return Figure(
        metric=metric,
        value=statistics.median(values),
        mean=statistics.fmean(values),
        spread=quartiles[2] - quartiles[0] if quartiles else None,
        count=len(values),
        derived=derived,
    )
