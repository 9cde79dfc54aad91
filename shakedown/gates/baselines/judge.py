"""One figure against earlier runs, and what other nodes' runs say of its noise: five runs know little of their own
spread, but eight nodes of the same job have about the same noise."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from statistics import fmean, median

from shakedown.gates.baselines.model import MINIMUM, Baseline, Direction, Past, PeersNoise
from shakedown.gates.baselines.scan import PRIOR, Prior, Window, scan

FEWEST = 3  # nodes, each with as many runs: fewer say less than what is held anyway


def peers_of(pasts: Mapping[str, Past]) -> dict[str, dict[str, PeersNoise]]:
    """Node -> metric -> the noise of the other nodes: the median of their variances, which one odd node does not move.
    `pasts` are those of nodes that have the same job, each for itself."""
    seen: dict[str, dict[str, tuple[float, int]]] = {}
    for node, past in pasts.items():
        for metric in dict.fromkeys(name for run in past.earlier for name in run.figures):
            values = [run.figures[metric] for run in past.of_metric(metric)]
            if len(values) >= FEWEST and all(map(math.isfinite, values)) and (centre := median(values)):
                mean = fmean(values)
                own = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / centre**2
                # The median of the variance of so many normal values, against the true one: Wilson and Hilferty 1931.
                expected = (1 - 2 / (9 * (len(values) - 1))) ** 3
                seen.setdefault(metric, {})[node] = (own / expected, len(values) - 1)
    found: dict[str, dict[str, PeersNoise]] = {node: {} for node in pasts}
    for metric, known in seen.items():
        for node in pasts:
            others = [noise_of_node for name, noise_of_node in known.items() if name != node]
            if len(others) >= FEWEST:
                noise = math.sqrt(median(variance for variance, _ in others))
                weight = sum(freedom for _, freedom in others) / 2  # a median knows about as much as half of its values
                found[node][metric] = PeersNoise(noise=noise, weight=weight, nodes=len(others))
    return found


def prior_of(past: Past, metric: str) -> Prior:
    """Return the noise assumed before the job's own runs: that of other nodes as far as it goes, else the prior."""
    peers = past.peers.get(metric)
    if peers is None:
        return PRIOR
    own = min(peers.weight, PRIOR.weight)
    variance = (own * peers.noise**2 + (PRIOR.weight - own) * PRIOR.noise**2) / PRIOR.weight
    return Prior(noise=math.sqrt(variance), weight=PRIOR.weight, smallest=PRIOR.smallest)


FEW = 2  # runs in a row that are worse make a level
_SIGN = {"at least": 1, "at most": -1}


def judge_against(
    history: Sequence[tuple[datetime, float]], value: float, direction: Direction, prior: Prior = PRIOR
) -> Baseline:
    """Judge a value against the same job's passes, alone and with the last runs. Raises ValueError if not finite."""
    return _judged(tuple(figure for _at, figure in sorted(history, key=lambda run: run[0])), value, direction, prior)


@functools.lru_cache(maxsize=4096)  # a job's figures are judged, and shown
def _judged(earlier: tuple[float, ...], value: float, direction: Direction, prior: Prior) -> Baseline:
    if not all(map(math.isfinite, (*earlier, value))):
        raise ValueError("a baseline is of finite figures")
    if len(earlier) < MINIMUM:
        return Baseline(direction=direction, value=value, count=len(earlier))
    windows = scan([*earlier, value], _SIGN[direction], prior)
    lost = [window for window in windows if window.lost]
    return _baseline(direction, value, len(earlier), _worst(lost) if lost else windows[0], bool(lost))


def compare(past: Past, metric: str, value: float, direction: Direction) -> Baseline:
    """Compare a figure of a job with the earlier passes of the same job."""
    history = [(run.at, run.figures[metric]) for run in past.of_metric(metric)]
    found = judge_against(history, value, direction, prior_of(past, metric))
    return _at_a_level(past, metric, found) if found.lost else found


def _at_a_level(past: Past, metric: str, found: Baseline) -> Baseline:
    """Return a loss with its level. The run that makes `FEW` in a row reports it; later ones at that level only remind,
    since otherwise a figure at a new level would fail for ever."""
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
    return _baseline(direction, window.centre, len(values), window, False)


def _worst(windows: Sequence[Window]) -> Window:
    """Return the last run alone where that is enough; otherwise the comparison furthest beyond its bound."""
    if windows[0].runs == 1:
        return windows[0]
    return max(windows, key=lambda window: abs(window.recent - window.bound) / window.error)


def _baseline(direction: Direction, value: float, count: int, window: Window, lost: bool) -> Baseline:
    return Baseline(direction=direction, value=value, count=count, **{**asdict(window), "lost": lost})
