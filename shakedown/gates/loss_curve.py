"""What a loss does over a run, in one word: falls, rises, jumps, oscillates, stays at a plateau, and so on.

Every judgement compares observed values. A level is the median of an odd number of neighbouring losses, so a value of
the log: the level at the start, the best level, and the level at the end. The scatter of a single loss is estimated
from second differences, which neither a slope nor a few spikes change. The thresholds are data: `thresholds.toml`.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Literal, NamedTuple

from shakedown.common.text import decimal
from shakedown.gates.model import threshold

MIN_LOSSES = 4  # fewer show nothing
MAX_POINTS = 400  # longer curves are reduced to medians of blocks: Kendall's count compares every pair
_STUCK = 8  # last losses that are the same: no healthy one of the public curves has so many in so fine a print
_LOOKED_AT = 1000  # losses whose digits show the resolution
_FEW = 8  # of fewer losses each one is a level

Word = Literal[
    "falls", "few", "negative", "no cross-entropy", "zero", "constant", "coarse", "oscillates", "swings", "rises",
    "jumps", "above its start", "plateau", "flat", "spike at its end", "rise at its end",
]  # fmt: skip
BAD: frozenset[Word] = frozenset(
    {"negative", "no cross-entropy", "zero", "constant", "oscillates", "rises", "jumps", "above its start", "plateau"}
)


class Point(NamedTuple):
    """One loss. `learning_rate` None: the line has none."""

    iteration: int
    loss: float
    learning_rate: float | None = None


@dataclass(frozen=True)
class Curve:
    """What a curve does, with the figures that show it. `share`: the fall of the level, as a share of the start."""

    word: Word
    text: str
    share: float = 0.0


@dataclass(frozen=True)
class _Levels:
    """A curve's levels and scatter. `width`: losses of one level."""

    points: Sequence[Point]
    width: int
    levels: list[Point]
    scatter: float
    resolution: float

    @property
    def start(self) -> Point:
        return self.levels[0]

    @property
    def end(self) -> Point:
        return self.levels[-1]

    @property
    def best(self) -> Point:
        return min(self.levels, key=lambda level: level.loss)

    @property
    def error(self) -> float:
        """Return the standard error of a level: that of a median of normal values."""
        return math.sqrt(math.pi / 2) * self.scatter / math.sqrt(self.width)


def curve(points: Sequence[Point], vocabulary: int | None = None) -> Curve:
    """Return what the losses of a run do, in the order of its iterations. `vocabulary`: entries, None: not known."""
    if len(points) < MIN_LOSSES:
        return Curve("few", f"only {len(points)} finite {'loss' if len(points) == 1 else 'losses'}")
    if impossible := _impossible(points, vocabulary):
        return impossible
    levels = _levels(_reduced(points))
    limit = 0.9 * math.log(vocabulary) if vocabulary else threshold("loss.untrained")
    untrained = levels.start.loss >= limit
    swings = _swings([point.loss for point in points], levels)
    share = (levels.start.loss - levels.end.loss) / levels.start.loss if levels.start.loss else 0.0
    word: Word
    if swings or (len(points) >= 10 and levels.scatter > 0.4 * levels.start.loss):
        word = "oscillates" if untrained else "swings"
    elif (risen := _risen(levels)) is not None:
        word = risen
    elif untrained and _has_learned(points) and _at_most(levels, threshold("loss.plateau")):
        word = "plateau"
    elif not _falls(levels):
        word = "flat"
    elif (spike := _ends_in_spike(levels)) is not None:
        word = spike
    else:
        word = "falls"
    return Curve(word, _text(word, points, levels, vocabulary), share)


def _impossible(points: Sequence[Point], vocabulary: int | None) -> Curve | None:
    """Return what is wrong with values that no cross-entropy has, or that no training prints."""
    losses = [point.loss for point in points]
    resolution = _resolution(losses)
    lowest, highest = min(points, key=lambda point: point.loss), max(points, key=lambda point: point.loss)
    if lowest.loss < 0:
        return Curve("negative", f"the loss is {_at(lowest)}, and a cross-entropy is never negative")
    if highest.loss == 0:
        return Curve("zero", f"the loss is exactly 0 on each of {len(points)} lines")
    if lowest.loss == highest.loss:
        loss = decimal(lowest.loss, 7)
        if resolution / highest.loss > threshold("loss.resolution"):
            return Curve("coarse", f"each of {len(points)} lines prints {loss}: too coarse to show a fall")
        return Curve("constant", f"the loss is {loss} on each of {len(points)} lines: nothing is learned")
    stuck = next((n for n, loss in enumerate(reversed(losses)) if loss != losses[-1]), 0)
    if stuck >= _STUCK and 0 < resolution <= threshold("loss.resolution") * losses[-1]:
        return Curve(
            "constant",
            f"the loss is {_at(points[-stuck])} and on each of the {stuck - 1} lines behind: nothing is learned",
        )
    guess = math.log(vocabulary or threshold("loss.vocabulary"))
    if highest.loss > threshold("loss.cross_entropy") * guess:
        return Curve(
            "no cross-entropy",
            f"the loss is {_at(highest)}: {decimal(highest.loss / guess, 3)} times that of guessing among "
            f"{vocabulary or threshold('loss.vocabulary'):.0f} tokens",
        )
    for before, point in pairwise(points):
        if point.loss == 0 and before.loss > 20 * resolution:
            return Curve("zero", f"the loss falls from {_at(before)} to exactly 0 at {point.iteration}")
    return None


def _resolution(losses: Sequence[float]) -> float:
    """Return the smallest step that the losses were printed with, as far as their digits show."""
    return float(min(10.0 ** int(Decimal(repr(loss)).as_tuple().exponent) for loss in losses[:_LOOKED_AT]))


def _reduced(points: Sequence[Point]) -> list[Point]:
    """Return at most `MAX_POINTS` points: of more, the median of each block."""
    size = math.ceil(len(points) / MAX_POINTS)
    size += size % 2 == 0  # an odd block's median is an observed loss
    return (
        [_median(points[start : start + size]) for start in range(0, len(points), size)] if size > 1 else list(points)
    )


def _median(points: Sequence[Point]) -> Point:
    return sorted(points, key=lambda point: point.loss)[(len(points) - 1) // 2]


def _scatter(losses: Sequence[float], resolution: float) -> float:
    """Return the standard deviation of a single loss around the curve."""
    bends = [abs(a - 2 * b + c) for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)]
    return max(1.4826 * statistics.median(bends) / math.sqrt(6), resolution / 2)


def _levels(points: Sequence[Point]) -> _Levels:
    losses = [point.loss for point in points]
    width = 1 if len(points) < _FEW else max(3, len(points) // 8) | 1
    levels = [_median(points[start : start + width]) for start in range(len(points) - width + 1)]
    resolution = _resolution(losses)
    return _Levels(points, width, levels, _scatter(losses, resolution), resolution)


def _swings(losses: Sequence[float], levels: _Levels) -> bool:
    """Return whether the last quarter or eighth scatters widely, and far more than the calmest part of that length."""
    return any(_swing(losses, levels, max(6, len(losses) // share)) for share in (4, 8))


def _swing(losses: Sequence[float], levels: _Levels, length: int) -> bool:
    if len(losses) < 2 * length:
        return False
    starts = range(0, len(losses) - 2 * length + 1, max(1, length // 2))
    calm = min(_scatter(losses[start : start + length], levels.resolution) for start in starts)
    late = _scatter(losses[-length:], levels.resolution)
    return late > threshold("loss.swing") * levels.end.loss and late > 4 * calm


def _risen(levels: _Levels) -> Word | None:
    """Return how the loss has risen from its best level to its end; None where it has not."""
    best, end, start = levels.best, levels.end, levels.start
    if end.loss >= (1 + threshold("loss.far_above")) * start.loss:
        return "above its start"
    back, fall = end.loss - best.loss, start.loss - best.loss
    beyond = "loss.beyond_scatter" if fall >= 0.1 * start.loss else "loss.beyond_wander"
    if back <= max(threshold(beyond) * levels.scatter, 5 * levels.error):
        return None
    far = back >= threshold("loss.rise") * best.loss
    again = back >= threshold("loss.small_rise") * best.loss and back >= 0.1 * fall
    lost = back >= threshold("loss.lost_again") * fall and back >= 0.02 * best.loss
    if not (far or again or lost):
        return None
    if end.loss > start.loss:
        return "above its start"
    later = [point.loss for point in levels.points if point.iteration >= best.iteration]
    steepest = max((b - a for a, b in pairwise(later)), default=0.0)
    return "jumps" if steepest >= 0.5 * back else "rises"


def _has_learned(points: Sequence[Point]) -> bool:
    """Return whether the optimizer has come so far that a run from random weights has fallen."""
    interval = max(1, points[1].iteration - points[0].iteration)
    rates = [point.learning_rate for point in points if point.learning_rate is not None]
    if len(rates) == len(points):
        return sum(rates) * interval >= threshold("loss.learned")
    return len(points) * interval >= threshold("loss.learned_iterations")


def _at_most(levels: _Levels, share: float) -> bool:
    """Return whether the fall is surely less than a share of the start."""
    fall = levels.start.loss - levels.end.loss
    return fall + 2 * math.sqrt(2) * levels.error < share * levels.start.loss


def _falls(levels: _Levels) -> bool:
    """Return whether the loss falls beyond its scatter: by levels, or Kendall's test at 99 % (95 % for four points)."""
    fall, count = levels.start.loss - levels.end.loss, len(levels.points)
    apart = math.sqrt(2) * levels.error
    if fall <= max(levels.resolution, threshold("loss.fall") * levels.start.loss, 2 * apart if count >= _FEW else 0.0):
        return False
    needed = {4: 1.64, 5: 2.2}.get(count, 2.33)
    return fall >= 4 * apart or _kendall([point.loss for point in levels.points]) <= -needed


def _kendall(losses: Sequence[float]) -> float:
    """Return Kendall's count of rising less falling pairs, in standard deviations."""
    count = sum((later > loss) - (later < loss) for at, loss in enumerate(losses) for later in losses[at + 1 :])
    ties = sum(_pairs(alike) for alike in Counter(losses).values())
    variance = (_pairs(len(losses)) - ties) / 18
    return (count - (count > 0) + (count < 0)) / math.sqrt(variance) if variance > 0 else 0.0


def _pairs(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)


def _ends_in_spike(levels: _Levels) -> Word | None:
    """Return what the last losses do that the level at the end does not show."""
    last, end = levels.points[-1].loss, levels.end.loss
    beyond = last - end > 8 * levels.scatter
    if beyond and last > levels.start.loss:
        return "above its start"
    far = 1 + threshold("loss.spike")
    above_best = len(levels.points) >= _FEW and last - levels.best.loss > 6 * levels.scatter
    if (beyond and last > far * end) or (above_best and last > far * levels.best.loss):
        return "spike at its end"
    latest = _median(levels.points[-3:]).loss
    higher = latest - levels.best.loss > threshold("loss.end_scatter") * levels.scatter
    if len(levels.points) >= _FEW and higher and latest > (1 + threshold("loss.end_rise")) * levels.best.loss:
        return "rise at its end"
    return None


def _at(point: Point) -> str:
    return f"{decimal(point.loss, 7)} at iteration {point.iteration}"


_SENTENCES: dict[Word, str] = {
    "falls": "the loss falls",
    "rises": "the loss rises from its best level and does not come back",
    "jumps": "the loss jumps and does not come back",
    "above its start": "the loss ends above its start",
    "oscillates": "the loss oscillates more and more widely",
    "swings": "the loss scatters too widely to be judged",
    "plateau": "the loss stays at the level of random weights",
    "flat": "the loss does not fall by more than its scatter",
    "spike at its end": "the log ends in a spike, and does not show whether the loss comes back",
    "rise at its end": "the log ends in a rise, and does not show whether the loss comes back",
}


def _text(word: Word, points: Sequence[Point], levels: _Levels, vocabulary: int | None) -> str:
    first, last = points[0], points[-1]
    highest, lowest = max(points, key=lambda point: point.loss), min(points, key=lambda point: point.loss)
    seen = [f"first {_at(first)}", f"highest {_at(highest)}", f"lowest {_at(lowest)}", f"last {_at(last)}"]
    several = f"medians of {levels.width} lines" if levels.width > 1 else "single lines"
    ends = {"start": levels.start, "best": levels.best, "end": levels.end}
    shown = ", ".join(f"{name} {decimal(point.loss, 7)}" for name, point in ends.items())
    guess = f"; guessing among {vocabulary} tokens costs {decimal(math.log(vocabulary), 4)}" if vocabulary else ""
    shown += f"; scatter {decimal(levels.scatter, 2)}{guess}"
    return f"{_SENTENCES[word]}: {', '.join(seen)}; levels ({several}): {shown}"
