"""Bounds that a site sets for figures, and words of a closed list."""

import difflib
import math
from collections.abc import Iterator, Mapping

from shakedown.desired.problems import Problem


def bounds(path: str, expect: Mapping[str, float], metrics: Mapping[str, object]) -> Iterator[Problem]:
    """Figures that no run has, and bounds that none can be held against."""
    for metric, bound in expect.items():
        if metric not in metrics:
            yield Problem("smoke", f"{path}.{metric}", f"{bound:g}", one_of(metric, metrics))
        elif not (math.isfinite(bound) and bound > 0):
            yield Problem("smoke", f"{path}.{metric}", f"{bound:g}", "a number above zero")
        elif metric == "mem_usage" and bound > 1:
            yield Problem("smoke", f"{path}.{metric}", f"{bound:g}", "a fraction, at most 1")


def one_of(word: str, known: Mapping[str, object]) -> str:
    """Describe what was expected, the nearest word first."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"{f'{near[0]}? ' if near else ''}one of {', '.join(known)}"
