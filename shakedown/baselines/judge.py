"""One figure against those of earlier runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from shakedown.baselines.estimate import PRIOR, Prior
from shakedown.baselines.model import MINIMUM, Baseline, Direction, Past
from shakedown.baselines.peers import prior_of
from shakedown.baselines.scan import Window, scan

_SIGN = {"at least": 1, "at most": -1}


def judge_against(
    history: Sequence[tuple[datetime, float]], value: float, direction: Direction, prior: Prior = PRIOR
) -> Baseline:
    """Whether a value is worse than those of earlier runs, or makes the last runs worse than those before.

    The history may be in any order; its values are those of passes of the same job. A value that is worse is never
    judged better. Raises ValueError for a value that is not finite.
    """
    return _judged(tuple(each for _at, each in sorted(history, key=lambda run: run[0])), value, direction, prior)


@functools.lru_cache(maxsize=4096)  # a job's figures are judged, and shown
def _judged(earlier: tuple[float, ...], value: float, direction: Direction, prior: Prior) -> Baseline:
    if not all(map(math.isfinite, (*earlier, value))):
        raise ValueError("a baseline is of finite figures")
    if len(earlier) < MINIMUM:
        return Baseline(direction=direction, value=value, count=len(earlier))
    windows = scan(np.array([*earlier, value], dtype=float), _SIGN[direction], prior)
    lost = [window for window in windows if window.lost]
    return _told(direction, value, len(earlier), _worst(lost) if lost else windows[0], bool(lost))


def compare(past: Past, metric: str, value: float, direction: Direction) -> Baseline:
    """A figure of a job against the earlier passes of the same job."""
    history = [(run.at, run.figures[metric]) for run in past.of_metric(metric)]
    return judge_against(history, value, direction, prior_of(past, metric))


def baseline_of(past: Past, metric: str, direction: Direction) -> Baseline:
    """What the earlier runs ask of the next one by itself; its value here is their centre."""
    values = [run.figures[metric] for run in past.of_metric(metric)]
    if len(values) < MINIMUM:
        return Baseline(direction=direction, value=float(np.median(values)), count=len(values))
    window = scan(np.array([*values, values[-1]], dtype=float), _SIGN[direction], prior_of(past, metric))[0]
    return _told(direction, float(window.centre), len(values), window, False)


def _worst(windows: Sequence[Window]) -> Window:
    """The last run by itself where that is enough; else the comparison that is furthest beyond its bound."""
    if windows[0].runs == 1:
        return windows[0]
    return max(windows, key=lambda window: abs(float(window.recent - window.bound)) / float(window.error))


def _told(direction: Direction, value: float, count: int, window: Window, lost: bool) -> Baseline:
    return Baseline(
        direction=direction,
        value=value,
        count=count,
        lost=lost,
        runs=window.runs,
        earlier=window.earlier,
        centre=float(window.centre),
        error=float(window.error),
        spread=float(window.spread),
        recent=float(window.recent),
        bound=float(window.bound),
    )
