"""Whether the last run, or the last few together, are worse than those before them.

One run cannot show a small loss, and its neighbours in time can: the mean of the last k runs is compared with the
baseline of the runs before those, for several k. The last one alone finds what breaks; the last two to four find a loss
that stays; longer ones find a slow decay, which looks like a step between the earlier and the later half. Centre and
spread come from a method that a few outliers do not carry off.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median

from shakedown.gates.baselines.model import MINIMUM

_NORMAL = 1.4826  # standard deviations in a median absolute deviation, of the normal distribution
_EFFICIENCY = 0.37  # of the median absolute deviation as an estimate of the spread: Rousseeuw and Croux 1993
_PULLED_IN = 3.5  # standard deviations from the median beyond which a run counts as one that is no further away


@dataclass(frozen=True)
class Prior:
    """What is held of the spread before the first run is seen: the noise from run to run as a share of the figure, and
    how many runs this opinion is worth. It gives way where the runs themselves scatter more: it then counts as the
    share of its own variance in theirs.

    1 % is what GPU nodes with fixed clocks show from run to run, and `smallest` what no few runs can prove better than.
    """

    noise: float = 0.01
    weight: float = 28.0
    smallest: float = 0.0025


PRIOR = Prior()


@dataclass(frozen=True)
class Estimate:
    """The centre of a history, the standard deviation of one run around it, and the degrees of freedom that the
    standard deviation rests on."""

    centre: float
    spread: float
    freedom: float


def estimate(runs: Sequence[float], sign: int, prior: Prior = PRIOR) -> Estimate:
    """Return the mean and the standard deviation of the runs, those that are far off pulled in, with the prior.

    `sign` is 1 where more is better, -1 where less is. Runs that scatter further on the worse side than on the better
    one have the spread of the worse side.
    """
    count, middle = len(runs), median(runs)
    held = _square(prior.noise * middle) + sys.float_info.min
    rough = _square(_NORMAL * (1 + 0.8 / count) * median(abs(run - middle) for run in runs))
    weight = prior.weight / max(1.0, rough / held)
    reach = _PULLED_IN * math.sqrt((weight * held + _EFFICIENCY * count * rough) / (weight + _EFFICIENCY * count))
    pulled_in = clipped(runs, middle, reach)
    centre = fmean(pulled_in)
    variance = math.fsum(_square(run - centre) for run in pulled_in) / (count - 1)
    worse = math.fsum(_square(min(sign * (run - centre), 0.0)) for run in pulled_in)
    seen = max(variance, 2 * worse / (count - 1))
    weight = prior.weight / max(1.0, seen / held)
    freedom = weight + count - 1
    spread = math.sqrt((weight * held + (count - 1) * seen) / freedom)
    return Estimate(centre, max(spread, prior.smallest * abs(centre)), freedom)


def clipped(runs: Sequence[float], centre: float, reach: float) -> list[float]:
    """Return the runs, those further than `reach` from the centre pulled in to there."""
    return [min(max(run, centre - reach), centre + reach) for run in runs]


def _square(value: float) -> float:
    return value * value  # where ** raises, this is infinite


_DEPTH = 30  # terms of the continued fraction: ten digits from one degree of freedom to ten thousand
_STEPS = 40  # more than Newton's method ever needs: each doubles the digits


@lru_cache(maxsize=4096)
def student_quantile(freedom: float, chance: float) -> float:
    """Return what a value of Student's t distribution exceeds with this chance, which is at most 0.02.

    The logarithm of the tail is nearly straight, so Newton's method is applied to that.
    """
    value = -NormalDist().inv_cdf(chance)
    for _ in range(_STEPS):
        density, ratio = _density(value, freedom), _tail_to_density(value, freedom)
        step = math.log(density * ratio / chance) * ratio
        value += step
        if abs(step) < 1e-6 * value:
            break
    return value


def _density(value: float, freedom: float) -> float:
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(scale - (freedom + 1) / 2 * math.log1p(value * value / freedom))


def _tail_to_density(value: float, freedom: float) -> float:
    """Return the chance of more than `value` as a multiple of the density there.

    The tail is an incomplete beta function, of which this is the continued fraction (DLMF 8.17.22), from its far end.
    """
    half, x = freedom / 2, freedom / (freedom + value * value)
    fraction = 1.0
    for m in range(_DEPTH, 0, -1):
        fraction = 1 + m * (0.5 - m) * x / ((half + 2 * m - 1) * (half + 2 * m)) / fraction
        fraction = 1 - (half + m - 1) * (half + m - 0.5) * x / ((half + 2 * m - 2) * (half + 2 * m - 1)) / fraction
    return value / (freedom * fraction)


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
    allowed = max(quantile * before.spread * math.sqrt(1 / runs + 1 / earlier), SMALLEST * abs(before.centre))
    bound = max(before.centre - sign * allowed, 0.0)  # no figure is below 0
    error = before.spread / math.sqrt(earlier)
    lost = sign * (mean - bound) < 0
    return Window(runs, earlier, before.centre, before.spread, error, mean, bound, lost)
