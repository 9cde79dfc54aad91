"""How evenly iterations follow each other: share of slow ones, longest stretch, and distance of the usual from the
fastest tenth. Thresholds: `thresholds.toml`; `bench/steady.py` tries them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from shakedown.common.lists import grouped
from shakedown.common.text import decimal
from shakedown.gates.model import threshold
from shakedown.logs.figures import judged_lines
from shakedown.logs.iterations import Iteration

Word = Literal["even", "uneven", "slow iterations", "slow stretch", "slow most of the time"]
BAD: frozenset[Word] = frozenset({"slow iterations", "slow stretch", "slow most of the time"})


@dataclass(frozen=True)
class Paces:
    """The time of each judged iteration line, in any unit, and how many iterations a line stands for."""

    times: tuple[float, ...]
    first: int  # iteration of the first line
    interval: int = 1


@dataclass(frozen=True)
class Steadiness:
    """`share`: of the lines that are slow; `longest`: iterations of the longest slow stretch, which begins at `at`;
    `usual`: the median over the fastest tenth's slowest."""

    word: Word
    slow: int
    lines: int
    longest: int
    at: int | None
    usual: float
    mean: float  # over the median

    @property
    def share(self) -> float:
        return self.slow / self.lines


def paces(iterations: Sequence[Iteration], warmup: int) -> Paces | None:
    """Return the judged lines' times (or the inverse of throughput), scaled to the batch where it grows; None with
    fewer than `steady.few`."""
    lines = judged_lines(iterations, warmup)
    for field in ("elapsed_ms", "tokens_per_gpu_per_s", "tflops_per_gpu"):
        values = [(line, value) for line in lines if (value := getattr(line, field)) and 0 < value < 1e15]
        if len(values) >= threshold("steady.few"):
            times = [value if field == "elapsed_ms" else 1 / value for _, value in values]
            if field == "elapsed_ms":
                times = _of_one_batch([line.global_batch_size for line, _ in values], times)
            first, last = values[0][0].iteration, values[-1][0].iteration
            return Paces(tuple(times), first, max(1, (last - first) // (len(values) - 1)))
    return None


def _of_one_batch(batches: Sequence[int | None], times: Sequence[float]) -> list[float]:
    """Return the times as if all lines were of the last batch, which takes its median time."""
    usual = {batch: statistics.median_low(own) for batch, own in grouped(zip(batches, times, strict=True)).items()}
    return [time * (usual[batches[-1]] / usual[batch]) for batch, time in zip(batches, times, strict=True)]


def steadiness(paces: Paces) -> Steadiness:
    """Return how even the times are. Slow is what takes more than `steady.slow` times the median."""
    times = paces.times
    median = statistics.median_low(times)
    slow = [time > threshold("steady.slow") * median for time in times]
    begin, longest = _longest(slow)
    fastest = sorted(times)[len(times) // 10]
    usual, mean = median / fastest, statistics.fmean(times) / median
    share = sum(slow) / len(times)
    stretch = max(threshold("steady.stretch_lines"), threshold("steady.stretch") * len(times))
    costly = share > threshold("steady.costly") and sum(slow) >= threshold("steady.costly_lines")
    costly = costly and mean >= threshold("steady.costly_mean")
    bad = share > threshold("steady.share") or costly or longest >= stretch
    word: Word = "even"
    if usual > threshold("steady.usual"):
        word = "slow most of the time"
    elif bad and usual > threshold("steady.uneven") and mean < threshold("steady.mean"):
        word = "uneven"
    elif longest >= stretch:
        word = "slow stretch"
    elif bad:
        word = "slow iterations"
    elif usual > threshold("steady.slow"):
        word = "uneven"
    at = paces.first + begin * paces.interval if longest else None
    return Steadiness(word, sum(slow), len(times), longest * paces.interval, at, usual, mean)


def _longest(slow: Sequence[bool]) -> tuple[int, int]:
    """Return where the longest stretch of slow lines begins, and how long it is."""
    best, at = (0, 0), 0
    for is_slow, group in groupby(slow):
        length = len(list(group))
        if is_slow and length > best[1]:
            best = (at, length)
        at += length
    return best


def clock(iterations: Sequence[Iteration], stamps: Sequence[tuple[int, float]]) -> str:
    """Return how lines' times contradict iteration durations, to a second; some lines may have checkpoints between."""
    durations = {line.iteration: line.elapsed_ms for line in iterations}
    apart = [(after - before, at, later - at) for (at, before), (later, after) in pairwise(stamps)]
    if back := [at for wall, at, _ in apart if wall < -1 and abs(wall + 3600) > threshold("clock.summer_time")]:
        return f"the time of the line goes back behind iteration {back[0]}"
    pairs = [(wall, steps * ms / 1000) for wall, at, steps in apart if steps > 0 and (ms := durations.get(at + steps))]
    if len(pairs) < threshold("steady.least"):
        return ""
    wall = statistics.median_low([wall for wall, _ in pairs])
    work = statistics.median_low([work for _, work in pairs])
    if wall == 0:  # a clock that stands still shows nothing
        return ""
    if work * (1 - threshold("clock.share")) - 1 <= wall <= work * (1 + threshold("clock.share")) + 1:
        return ""
    return f"the lines come every {decimal(wall)} s by their own times, and say {decimal(work)} s"
