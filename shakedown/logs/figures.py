"""The figures of a smoke run, taken from its steady iterations: those behind the search for a loss scale.

The names are those of the ROCm/cvs configuration files, so that figures expected there can be given here as they are.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shakedown.common.frozen import Frozen
from shakedown.common.text import decimal
from shakedown.logs.iterations import Iteration, Summary, has_preview
from shakedown.logs.metrics import MEAN, METRICS, Metric

GREATEST = 2.0**32  # initial_loss_scale of Megatron-LM; a search that would have begun higher is none
_ROUNDING = 0.11  # the scale is printed with one decimal: what two roundings may add up to


@dataclass(frozen=True)
class LossScale:
    """What the iteration lines show of the search for a loss scale, with which every fp16 run begins.

    Dynamic loss scaling starts with a scale that is far too high (2^32 in Megatron-LM) and halves it at every overflow;
    each such iteration is skipped, and Megatron leaves the loss out of its line. That is no fault as long as it happens
    at the start, in one stretch, and the scale falls by half at every skip. What is skipped later is a fault, but where
    the scale had grown: after 1,000 good iterations the scaler doubles it, and takes that back at an overflow.

    Sources: DynamicGradScaler of megatron/core/optimizer/grad_scaler.py, Megatron-Core 0.16; DeepSpeed's
    DynamicLossScaler does the same. The scale that is printed is the one after the update; with the default hysteresis
    of 2 the very first overflow leaves it as it is; with a log interval above 1 a line counts several skips.
    DeepSpeed's lines count no skips: there the fall of the scale itself shows them.
    """

    lines: int = 0  # at the start, that belong to the search
    skipped: int = 0  # iterations that the search cost
    barren: frozenset[int] = frozenset()  # of those lines, the ones in which every iteration was skipped: no loss
    ended: bool = True  # an iteration went well after it
    scale: float | None = None  # where it stood last
    later: tuple[int, ...] = ()  # lines that tell, or show, of a skip that belongs to no search
    taken_back: int = 0  # lines on which a scale that had grown overflowed

    def text(self) -> str:
        """Describe the search, for evidence; empty where there was none."""
        grown = f"{self.taken_back} skipped where the loss scale had grown" if self.taken_back else ""
        if not self.lines:
            return grown
        how = f"{self.skipped} skipped at the start while the loss scale fell to {decimal(self.scale)}"
        how = how if self.ended else f"{how}: the search for it did not end"
        return f"{how}; {grown}" if grown else how


def loss_scale(iterations: Sequence[Iteration]) -> LossScale:
    """Find the search at the start of these lines, if there is one, and the lines with skips that are not part of
    it."""
    if not has_preview(iterations):
        return _loss_scale(iterations)
    found, preview = _loss_scale(iterations[1:]), iterations[0]
    if not found.lines:
        return found
    also = {preview.iteration} if preview.skipped_iterations and preview.lm_loss is None else set()
    return replace(found, lines=found.lines + 1, barren=found.barren | also)


def _loss_scale(iterations: Sequence[Iteration]) -> LossScale:
    # As a line counts or, where it counts none, as the fall of the scale shows.
    skips = [line.skipped_iterations or _fell(iterations, index) for index, line in enumerate(iterations)]
    lines, barren, over = 0, set(), False
    for index, (line, skipped) in enumerate(zip(iterations, skips, strict=True)):
        before = iterations[index - 1] if index else None
        span = line.iteration - (before.iteration if before else 0)
        # DeepSpeed's first line counts no skip and has no line before it: what follows shows whether it is of a search.
        unseen = index == 0 and skipped == 0 and _fell(iterations, 1) > 0 and not iterations[1].skipped_iterations
        if over or not (skipped or unseen) or not _is_step(before, line, skipped, span):
            break
        lines, over = index + 1, skipped < span and not unseen
        if line.lm_loss is None and line.skipped_iterations and not over:
            barren.add(line.iteration)
    grown = set(_taken_back(iterations, skips, lines))
    barren |= {iterations[at].iteration for at in grown if iterations[at].lm_loss is None}
    return LossScale(
        lines=lines,
        skipped=sum(skips[:lines]) + sum(skips[at] for at in grown),
        taken_back=len(grown),
        barren=frozenset(barren),
        ended=over or lines == 0 or lines < len(iterations),
        scale=iterations[lines - 1].loss_scale if lines else None,
        later=tuple(iterations[at].iteration for at in range(lines, len(skips)) if skips[at] and at not in grown),
    )


def _taken_back(iterations: Sequence[Iteration], skips: Sequence[int], begin: int) -> list[int]:
    """Return the lines of single skips between lines that went well, at a scale that had grown and falls by half."""
    found: list[int] = []
    lowest = math.inf
    for at in range(max(begin, 1), len(iterations) - 1):
        before, line = iterations[at - 1], iterations[at]
        scale = before.loss_scale or 0.0
        lowest = min(lowest, scale)
        alone = skips[at] == 1 and not skips[at - 1] and not skips[at + 1] and not line.nan_iterations
        if alone and scale > lowest and _halvings(scale, line.loss_scale or 0.0) in (0, 1):
            found.append(at)
    return found


def _is_step(before: Iteration | None, line: Iteration, skipped: int, span: int) -> bool:
    """Whether a line goes on with the search: as many halvings as skips, and nothing wrong but an overflow."""
    scale = line.loss_scale
    if scale is None or not 1.0 <= scale <= GREATEST or line.nan_iterations or not 0 <= skipped <= span:
        return False
    if before is None:  # the scale that it began with is not printed, and the first skip may have left it alone
        return scale > 1.0 and scale * 2.0 ** (skipped - 1) <= GREATEST
    return _halvings(before.loss_scale or 0.0, scale) == skipped


def _fell(iterations: Sequence[Iteration], index: int) -> int:
    """Count the skips that the fall of the scale from the line before shows: at least one where it fell at all."""
    if not 0 < index < len(iterations):
        return 0
    before, after = iterations[index - 1].loss_scale, iterations[index].loss_scale
    if before is None or after is None or not math.isfinite(before) or not after < before:
        return 0
    return max(1, _halvings(before, after) or 0)


def _halvings(before: float, after: float) -> int | None:
    """How many times a scale was halved; None where it was not, or by anything else than halves."""
    if not 0.0 < after <= before <= GREATEST:
        return None
    count = round(math.log2(before) - math.log2(after))  # their quotient may be more than a float holds
    return count if abs(math.ldexp(before, -count) - after) <= _ROUNDING else None


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
