"""Whether the last run, or the last few together, are worse than those before. The mean of the last k runs is compared
for several k: one finds what breaks, two to four a lasting loss, more a slow decay. Centre and spread are robust."""

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
    """The spread before the first run: noise as a share of the figure (1 %, as of GPU nodes with fixed clocks; at least
    `smallest`), worth so many runs. Where the runs scatter more, it counts less."""

    noise: float = 0.01
    weight: float = 28.0
    smallest: float = 0.0025


PRIOR = Prior()


@dataclass(frozen=True)
class Estimate:
    """A history's centre, the standard deviation of a run around it, and that deviation's degrees of freedom."""

    centre: float
    spread: float
    freedom: float


def estimate(runs: Sequence[float], sign: int, prior: Prior = PRIOR) -> Estimate:
    """Return mean and standard deviation of the runs, outliers pulled in, with the prior. `sign`: 1 where more is
    better, else -1. Runs that scatter more on the worse side have its spread."""
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
    """Return Student's t quantile of a chance up to 0.02, by Newton's method on the logarithm of the tail."""
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
    """Return the chance of more than `value` over the density: the beta's continued fraction (DLMF 8.17.22)."""
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
_FEW = 0.0008  # at 0.0018 correlated noise (daily offsets, a season) failed 2.1 % of healthy runs
_MANY = 0.0002
_HEAVY = 14  # degrees of freedom that one run is never given more of: its noise has tails that no few runs show
_CLIP = 2.6  # standard deviations: so much a single run among several may add to their loss
SMALLEST = 0.005  # of the centre: a smaller loss is not told, however sure it is


@dataclass(frozen=True)
class Window:
    """The last `runs` runs against the earlier: their mean `recent`, its `bound`, and the `error` of `centre`."""

    runs: int
    earlier: int
    centre: float
    spread: float
    error: float
    recent: float
    bound: float
    lost: bool


def lengths(count: int) -> list[int]:
    """Return how many of `count` runs to compare: at most half, and MINIMUM must be left."""
    return [runs for runs in _steps(count) if count - runs >= max(MINIMUM, runs if runs > 1 else 0)]


def _steps(count: int) -> Iterator[int]:
    runs = 1
    while runs < count:
        yield runs
        runs = runs + 1 if runs < 4 else math.ceil(1.4 * runs)


def scan(values: Sequence[float], sign: int, prior: Prior = PRIOR) -> list[Window]:
    """Return every comparison up to the last run, which is in no centre or spread; none below MINIMUM earlier runs.
    `sign`: 1 where more is better, else -1."""
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
