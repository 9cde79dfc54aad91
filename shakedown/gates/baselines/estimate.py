"""Centre and spread of a few runs, by a method that a few outliers do not carry off.

All functions work on the last axis of an array, so that one call judges one history or, in a simulation, thousands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

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
    """Of each history: its centre, the standard deviation of one run around it, and the degrees of freedom that the
    standard deviation rests on."""

    centre: Array
    spread: Array
    freedom: Array


def estimate(runs: Array, sign: int, prior: Prior = PRIOR) -> Estimate:
    """The mean and the standard deviation of the runs, those that are far off pulled in, with the prior.

    `sign` is 1 where more is better, -1 where less is. Runs that scatter further on the worse side than on the better
    one have the spread of the worse side.
    """
    count = runs.shape[-1]
    median = np.median(runs, -1, keepdims=True)
    held = (prior.noise * median) ** 2 + np.finfo(float).tiny
    rough = (_NORMAL * (1 + 0.8 / count) * np.median(np.abs(runs - median), -1, keepdims=True)) ** 2
    weight = prior.weight / np.maximum(1.0, rough / held)
    reach = _CLIP * np.sqrt((weight * held + _EFFICIENCY * count * rough) / (weight + _EFFICIENCY * count))
    pulled_in = np.clip(runs, median - reach, median + reach)
    centre = pulled_in.mean(-1, keepdims=True)
    worse = np.minimum(sign * (pulled_in - centre), 0.0)
    seen = np.maximum(pulled_in.var(-1, ddof=1, keepdims=True), 2 * (worse**2).sum(-1, keepdims=True) / (count - 1))
    weight = prior.weight / np.maximum(1.0, seen / held)
    freedom = weight + count - 1
    spread = np.sqrt((weight * held + (count - 1) * seen) / freedom)
    spread = np.maximum(spread, prior.smallest * np.abs(centre))
    return Estimate(centre[..., 0], spread[..., 0], freedom[..., 0])
