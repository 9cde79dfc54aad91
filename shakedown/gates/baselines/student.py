"""The quantile of Student's t distribution, for any number of degrees of freedom and a small chance."""

import math
from functools import lru_cache
from statistics import NormalDist

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
