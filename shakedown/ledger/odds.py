"""Exact odds of rare events: Poisson counts over hours, binomial shares, and many tests at once. Pure; no scipy.

Sources: Garwood 1936 (an interval for a Poisson mean by chi-squared quantiles); Clopper and Pearson 1934 (a binomial
share); Benjamini and Hochberg 1995 (the expected share of wrong ones among those named).
"""

import math
from collections.abc import Callable, Mapping, Sequence

LEVEL = 0.95  # two-sided


def poisson_below(count: int, mean: float) -> float:
    """Return the odds of fewer than `count` events where `mean` are expected. For 2 * count degrees of freedom, 1 minus
    this is the distribution of chi-squared at 2 * mean."""
    if count <= 0 or mean < 0:
        return 0.0 if count <= 0 else 1.0
    if mean == 0:
        return 1.0
    return min(1.0, math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(count)))


def chi2_quantile(share: float, count: int) -> float:
    """Return the quantile of chi-squared for 2 * count degrees of freedom."""
    return 2 * _root(lambda mean: 1 - poisson_below(count, mean) - share, 0.0, count + 40 + 20 * math.sqrt(count))


def mtbf_interval(hours: float, failures: int) -> tuple[float, float | None]:
    """Return the two-sided interval of the mean time between failures: 2T/chi2(.975, 2k+2) to 2T/chi2(.025, 2k).
    Without a failure there is no upper end."""
    tail = (1 - LEVEL) / 2
    high = 2 * hours / chi2_quantile(tail, failures) if failures else None
    return 2 * hours / chi2_quantile(1 - tail, failures + 1), high


def binomial_least(count: int, tries: int, share: float) -> float:
    """Return the odds of `count` or more of `tries`, each with this share."""
    if count <= 0:
        return 1.0
    if share <= 0 or count > tries:
        return 0.0
    if share >= 1:
        return 1.0
    yes, no, whole, found = math.log(share), math.log1p(-share), math.lgamma(tries + 1), 0.0
    for i in range(count, tries + 1):
        odds = whole - math.lgamma(i + 1) - math.lgamma(tries - i + 1) + i * yes + (tries - i) * no
        found += math.exp(odds)
        if i > tries * share and odds < math.log(found or 1) - 40:  # what follows is smaller still
            break
    return min(1.0, found)


def share_interval(count: int, tries: int) -> tuple[float, float]:
    """Return the two-sided interval of a share of which `count` of `tries` were seen."""
    tail, seen = (1 - LEVEL) / 2, count / tries if tries else 0.0
    most = min(1.0, (count + 20 + 10 * math.sqrt(count)) / tries) if tries else 1.0
    low = _root(lambda share: binomial_least(count, tries, share) - tail, 0.0, seen) if count else 0.0
    high = _root(lambda share: binomial_least(count + 1, tries, share) - 1 + tail, seen, most) if count < tries else 1.0
    return low, high


def false_discovery(odds: Sequence[float]) -> list[float]:
    """Return for each test the smallest rate of false discoveries at which it is one."""
    order = sorted(range(len(odds)), key=lambda index: odds[index], reverse=True)
    least, found = 1.0, [1.0] * len(odds)
    for rank, index in enumerate(order):
        least = min(least, odds[index] * len(odds) / (len(odds) - rank))
        found[index] = least
    return found


def lemon_odds(hours: Mapping[str, float], failures: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return p and q of each unit: whether its share of all failures is what its share of all hours explains."""
    total, count = math.fsum(hours.values()), sum(failures.values())
    odds = [
        binomial_least(failures.get(unit, 0), count, held / total) if total else 1.0 for unit, held in hours.items()
    ]
    return dict(zip(hours, zip(odds, false_discovery(odds), strict=True), strict=True))


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
