"""One figure against those of earlier runs."""

import functools
import math
from collections.abc import Sequence
from datetime import datetime
from statistics import median

from shakedown.gates.baselines.estimate import PRIOR, Prior
from shakedown.gates.baselines.model import MINIMUM, Baseline, Direction, Past
from shakedown.gates.baselines.peers import prior_of
from shakedown.gates.baselines.scan import Window, scan

FEW = 2  # runs in a row that are worse make a level
_SIGN = {"at least": 1, "at most": -1}


def judge_against(
    history: Sequence[tuple[datetime, float]], value: float, direction: Direction, prior: Prior = PRIOR
) -> Baseline:
    """Judge whether a value is worse than those of earlier runs, or makes the last runs worse than those before.

    The history may be in any order; its values are those of passes of the same job. A value that is worse is never
    judged better. Raises ValueError for a value that is not finite.
    """
    return _judged(tuple(figure for _at, figure in sorted(history, key=lambda run: run[0])), value, direction, prior)


@functools.lru_cache(maxsize=4096)  # a job's figures are judged, and shown
def _judged(earlier: tuple[float, ...], value: float, direction: Direction, prior: Prior) -> Baseline:
    if not all(map(math.isfinite, (*earlier, value))):
        raise ValueError("a baseline is of finite figures")
    if len(earlier) < MINIMUM:
        return Baseline(direction=direction, value=value, count=len(earlier))
    windows = scan([*earlier, value], _SIGN[direction], prior)
    lost = [window for window in windows if window.lost]
    return _told(direction, value, len(earlier), _worst(lost) if lost else windows[0], bool(lost))


def compare(past: Past, metric: str, value: float, direction: Direction) -> Baseline:
    """Compare a figure of a job with the earlier passes of the same job."""
    history = [(run.at, run.figures[metric]) for run in past.of_metric(metric)]
    found = judge_against(history, value, direction, prior_of(past, metric))
    return _at_a_level(past, metric, found) if found.lost else found


def _at_a_level(past: Past, metric: str, found: Baseline) -> Baseline:
    """Return a loss with the level that the figure is at, where `FEW` runs in a row are. The run with which they are
    so many reports it; later ones that are no worse than that level, also after better runs, only remind of it. Else
    a figure that stays at a new level would fail for ever, since a run that is worse enters no baseline."""
    sign = _SIGN[found.direction]
    runs = [(run.run_id, run.figures[metric], metric in run.worse) for run in past.earlier if metric in run.figures]
    rows: list[list[tuple[str, float]]] = [[]]
    for run_id, value, worse in runs:
        if worse:
            rows[-1].append((run_id, value))
        elif rows[-1]:
            rows.append([])
    for row in (row for row in reversed(rows) if len(row) >= FEW):
        worst = min(sign * value for _, value in row)
        if sign * found.value >= worst - (found.spread or 0.0):
            return found.model_copy(update={"since": row[0][0], "reported": True})
    if len(rows[-1]) == FEW - 1:
        return found.model_copy(update={"since": rows[-1][0][0]})
    return found


def baseline_of(past: Past, metric: str, direction: Direction) -> Baseline:
    """Return the baseline of the next run alone; its value here is the centre of the earlier runs."""
    values = [run.figures[metric] for run in past.of_metric(metric)]
    if len(values) < MINIMUM:
        return Baseline(direction=direction, value=median(values), count=len(values))
    window = scan([*values, values[-1]], _SIGN[direction], prior_of(past, metric))[0]
    return _told(direction, window.centre, len(values), window, False)


def _worst(windows: Sequence[Window]) -> Window:
    """Return the last run alone where that is enough; otherwise the comparison furthest beyond its bound."""
    if windows[0].runs == 1:
        return windows[0]
    return max(windows, key=lambda window: abs(window.recent - window.bound) / window.error)


def _told(direction: Direction, value: float, count: int, window: Window, lost: bool) -> Baseline:
    return Baseline(
        direction=direction,
        value=value,
        count=count,
        lost=lost,
        runs=window.runs,
        earlier=window.earlier,
        centre=window.centre,
        error=window.error,
        spread=window.spread,
        recent=window.recent,
        bound=window.bound,
    )
