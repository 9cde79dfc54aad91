"""How likely each node is bad after all trainings so far: belief propagation over the groups.

A group is an OR of its nodes behind a noisy channel: it fails with 1 - missed if a node of it is bad, and with
false_fail if none is. On groups that are nested or overlap in few nodes the sum-product algorithm comes close to the
exact posterior (group testing as inference: Aldridge, Johnson, Scarlett 2019, arXiv 1902.06002, 3.3), at a cost of the
number of memberships. The probability alone never names a node: see `Knowledge.named`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shakedown.runs.isolation import Noise

Floats = npt.NDArray[np.float64]

_SWEEPS = 40
_STILL = 1e-4  # log odds: a smaller change ends the sweeps
_BOUND = 40.0  # log odds: beyond it a double has no room


def marginals(
    prior: Floats, groups: Sequence[Sequence[int]], failed: Sequence[bool], noise: Noise
) -> tuple[Floats, float]:
    """Compute the probability of each node to be bad, and the logarithm of the evidence (Bethe's approximation).

    `groups` hold indices of `prior`; `failed` has one entry for each group.
    """
    base = np.log(prior) - np.log1p(-prior)
    if not groups:
        return prior, 0.0
    sizes = np.fromiter((len(group) for group in groups), np.int64, len(groups))
    node = np.fromiter((index for group in groups for index in group), np.int64, int(sizes.sum()))
    test = np.repeat(np.arange(len(groups)), sizes)
    fails = np.asarray(failed, dtype=bool)
    with_bad = np.where(fails, 1 - noise.missed, noise.missed)[test]
    without = np.where(fails, noise.false_fail, 1 - noise.false_fail)[test]
    to_node = np.zeros(len(node))  # log likelihood ratios, group to node
    total = base
    for _ in range(_SWEEPS):
        to_test = np.clip(total[node] - to_node, -_BOUND, _BOUND)
        log_good = -np.logaddexp(0.0, to_test)  # of the node being good, by all other groups
        others = np.bincount(test, log_good, len(groups))[test] - log_good
        all_good = np.exp(others)
        ratio = np.log(with_bad) - np.log(all_good * without + (1 - all_good) * with_bad)
        moved = float(np.max(np.abs(ratio - to_node)))
        to_node = 0.5 * to_node + 0.5 * ratio  # damped: short loops would swing
        total = base + np.bincount(node, to_node, len(prior))
        if moved < _STILL:
            break
    to_test = np.clip(total[node] - to_node, -_BOUND, _BOUND)
    all_good = np.exp(np.bincount(test, -np.logaddexp(0.0, to_test), len(groups)))
    bad, good = np.where(fails, 1 - noise.missed, noise.missed), np.where(fails, noise.false_fail, 1 - noise.false_fail)
    log_bad, log_good = -np.logaddexp(0.0, -to_node), -np.logaddexp(0.0, to_node)
    of_nodes = np.logaddexp(
        np.log(prior) + np.bincount(node, log_bad, len(prior)),
        np.log1p(-prior) + np.bincount(node, log_good, len(prior)),
    )
    of_edges = np.logaddexp(log_bad - np.logaddexp(0.0, -to_test), log_good - np.logaddexp(0.0, to_test))
    evidence = np.log(all_good * good + (1 - all_good) * bad).sum() + of_nodes.sum() - of_edges.sum()
    return np.asarray(1 / (1 + np.exp(-np.clip(total, -_BOUND, _BOUND))), dtype=np.float64), float(evidence)
