"""The probability that a search which names no node has missed a node that fails only now and then."""

import math
from collections.abc import Iterable

from shakedown.isolation.causes import PRIOR
from shakedown.runs.isolation import Problem, Training

RATE = 0.3  # the share of trainings that such a node fails
BOUND = 0.05  # probability to have missed one, below which a search that follows a failed run may end without a name

_LEAST_ODDS = 2.0  # that the cause is still there, before the search


def missed(problem: Problem, trainings: Iterable[Training]) -> float:
    """Compute the probability, after these trainings, that a node fails `RATE` of its trainings.

    The run that failed had such a node, or it failed by noise alone.
    """
    false_fail = problem.noise.false_fail
    fails = RATE + (1 - RATE) * false_fail
    failed, passed = math.log(fails / false_fail), math.log((1 - fails) / (1 - false_fail))
    ratios = dict.fromkeys(problem.nodes, 0.0)
    for training in trainings:
        if training.outcome != "unknown":
            for node in training.nodes & ratios.keys():
                ratios[node] += failed if training.outcome == "fail" else passed
    before = max(PRIOR * len(ratios) * fails / false_fail, _LEAST_ODDS) / max(len(ratios), 1)
    odds = before * sum(math.exp(min(ratio, 50.0)) for ratio in ratios.values())
    return odds / (1 + odds)
