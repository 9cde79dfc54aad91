"""What other nodes' runs say of how much one run differs from the next.

Five runs know little of their own spread. Nodes that do the same job by themselves have about the same noise, and eight
of them with five runs each know it well.
"""

import math
import statistics
from collections.abc import Mapping

from shakedown.gates.baselines.estimate import PRIOR, Prior
from shakedown.gates.baselines.model import Past, PeersNoise

FEWEST = 3  # nodes, each with as many runs: fewer say less than what is held anyway


def peers_of(pasts: Mapping[str, Past]) -> dict[str, dict[str, PeersNoise]]:
    """Node -> metric -> the noise of the other nodes: the median of their variances, which one odd node does not move.
    `pasts` are those of nodes that have the same job, each for itself."""
    seen: dict[str, dict[str, tuple[float, int]]] = {}
    for node, past in pasts.items():
        for metric in dict.fromkeys(name for run in past.earlier for name in run.figures):
            values = [run.figures[metric] for run in past.of_metric(metric)]
            if len(values) >= FEWEST and all(map(math.isfinite, values)) and (centre := statistics.median(values)):
                mean = statistics.fmean(values)
                own = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / centre**2
                seen.setdefault(metric, {})[node] = (own / _median_of_variances(len(values)), len(values) - 1)
    found: dict[str, dict[str, PeersNoise]] = {node: {} for node in pasts}
    for metric, known in seen.items():
        for node in pasts:
            others = [noise_of_node for name, noise_of_node in known.items() if name != node]
            if len(others) >= FEWEST:
                noise = math.sqrt(statistics.median(variance for variance, _ in others))
                weight = sum(freedom for _, freedom in others) / 2  # a median knows about as much as half of its values
                found[node][metric] = PeersNoise(noise=noise, weight=weight, nodes=len(others))
    return found


def _median_of_variances(runs: int) -> float:
    """Return the median of the variance of so many normal values, as a share of the true variance: Wilson and Hilferty
    1931."""
    return (1 - 2 / (9 * (runs - 1))) ** 3


def prior_of(past: Past, metric: str) -> Prior:
    """Return the noise that is assumed before this job's own runs count: that of the other nodes, as far as it goes;
    the rest is the prior that every baseline begins with."""
    peers = past.peers.get(metric)
    if peers is None:
        return PRIOR
    own = min(peers.weight, PRIOR.weight)
    variance = (own * peers.noise**2 + (PRIOR.weight - own) * PRIOR.noise**2) / PRIOR.weight
    return Prior(noise=math.sqrt(variance), weight=PRIOR.weight, smallest=PRIOR.smallest)
