"""Theil and Sen's slope: the median of the slopes of all pairs of points, with its confidence interval.

scipy.stats.theilslopes gives the same figures, and its tests hold these. It is not called because loading scipy.stats
takes half a second of CPU and 70 MB, more than a log of 50 MB takes to be judged.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Slope(NamedTuple):
    """y = `intercept` + `slope` x; `low` and `high` bound the slope. NaN where the points do not say."""

    slope: float
    intercept: float
    low: float
    high: float


def theil_sen(x: Sequence[float], y: Sequence[float], confidence: float) -> Slope:
    """Of at least two points, in time and memory of their square. The interval is that of Sen (1968), equation 2.6."""
    points = list(zip(x, y, strict=True))
    slopes = sorted(
        (later[1] - point[1]) / run
        for at, point in enumerate(points)
        for later in points[at + 1 :]
        if (run := later[0] - point[0])
    )
    if not slopes:
        return Slope(*[math.nan] * 4)
    slope = statistics.median(slopes)
    intercept = statistics.median(y) - slope * statistics.median(x)
    spread = _pairs(len(points)) - sum(map(_pairs, Counter(x).values())) - sum(map(_pairs, Counter(y).values()))
    if spread < 0:  # too few points, most of them alike
        return Slope(slope, intercept, math.nan, math.nan)
    reach = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(spread / 18)
    low = max(round((len(slopes) - reach) / 2) - 1, 0)
    high = min(round((len(slopes) + reach) / 2), len(slopes) - 1)
    return Slope(slope, intercept, slopes[low], slopes[high])


def _pairs(alike: int) -> int:
    return alike * (alike - 1) * (2 * alike + 5)
