"""Centre and spread of a few runs, by a method that a few outliers do not carry off."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

_NORMAL = 1.4826  # standard deviations in a median absolute deviation, of the normal distribution
_EFFICIENCY = 0.37  # of the median absolute deviation as an estimate of the spread: Rousseeuw and Croux 1993
_CLIP = 3.5  # standard deviations from the median beyond which a run counts as one that is no further away


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
    reach = _CLIP * math.sqrt((weight * held + _EFFICIENCY * count * rough) / (weight + _EFFICIENCY * count))
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
