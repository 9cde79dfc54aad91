"""Whether the last run, or the last few together, are worse than those before them.

One run cannot show a small loss, and its neighbours in time can: the mean of the last k runs is compared with the
baseline of the runs before those, for several k. The last one alone finds what breaks; the last two to four find a loss
that stays; longer ones find a slow decay, which looks like a step between the earlier and the later half.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from shakedown.gates.baselines.estimate import PRIOR, Prior, clipped, estimate
from shakedown.gates.baselines.model import MINIMUM
from shakedown.gates.baselines.student import student_quantile

# Chances of a false alarm of each comparison in normal noise. Their sum is more than the whole has, since they overlap;
# together with _HEAVY they keep the whole under 1 % in noise with heavier tails (bench/baselines.py).
_ONLY = 0.0078  # of the last run, as long as there are too few runs for any other comparison
_LAST = 0.0028
_FEW = 0.0018
_MANY = 0.0002
_HEAVY = 14  # degrees of freedom that one run is never given more of: its noise has tails that no few runs show
_CLIP = 2.6  # standard deviations: so much a single run among several may add to their loss
SMALLEST = 0.005  # of the centre: a smaller loss is not told, however sure it is


@dataclass(frozen=True)
class Window:
    """The last `runs` runs against those before them: `recent` is their mean, `bound` what it must not be worse than,
    `error` the standard error of `centre`."""

    runs: int
    earlier: int
    centre: float
    spread: float
    error: float
    recent: float
    bound: float
    lost: bool


def lengths(count: int) -> list[int]:
    """Return how many runs back the comparisons go, with `count` runs in all: never further than half, and never so
    far that fewer than MINIMUM are left to compare with."""
    return [runs for runs in _steps(count) if count - runs >= max(MINIMUM, runs if runs > 1 else 0)]


def _steps(count: int) -> Iterator[int]:
    runs = 1
    while runs < count:
        yield runs
        runs = runs + 1 if runs < 4 else math.ceil(1.4 * runs)


def scan(values: Sequence[float], sign: int, prior: Prior = PRIOR) -> list[Window]:
    """Return every comparison over a history, the run that is judged being the last. `sign` is 1 where more is better,
    -1 where less is. The list is empty where there are fewer than MINIMUM earlier runs.

    No comparison becomes better by a worse last run: it is in no centre and in no spread.
    """
    chosen = lengths(len(values))
    return [_compare(values, runs, sign, prior, _chance(runs, len(chosen))) for runs in chosen]


def _chance(runs: int, comparisons: int) -> float:
    if runs == 1:
        return _ONLY if comparisons == 1 else _LAST
    return _FEW if runs <= 4 else _MANY


def _compare(values: Sequence[float], runs: int, sign: int, prior: Prior, chance: float) -> Window:
    earlier = len(values) - runs
    before = estimate(values[:earlier], sign, prior)
    recent = values[earlier:]
    mean = fmean(recent if runs == 1 else clipped(recent, before.centre, _CLIP * before.spread))
    quantile = student_quantile(min(before.freedom, _HEAVY * runs), chance)
    allowed = max(
        quantile * before.spread * math.sqrt(1 / runs + 1 / earlier),
        SMALLEST * abs(before.centre),
    )
    bound = max(before.centre - sign * allowed, 0.0)  # no figure is below 0
    error = before.spread / math.sqrt(earlier)
    lost = sign * (mean - bound) < 0
    return Window(runs, earlier, before.centre, before.spread, error, mean, bound, lost)
