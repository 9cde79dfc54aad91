"""Which of the trainings that passed were slow: by the time of an iteration, held against groups of like size.

A slow node slows its whole group, so the group's time is the node's, and among few nodes half of all groups have it:
what is usual is told by the faster half of the others. Each group has the same work for each node; what communication
adds with size stays small between groups that differ by no more than a half.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from shakedown.isolation.model import Training, short

SLOW = 1.33  # times what is usual: as a straggler fails; what is less is no reason to name anybody
NEAR = 1.2  # from here on it is repeated
PEERS = 3  # groups to be compared with, at least
_LIKE = 1.5  # times as many nodes, or as few
_SPREAD = 6 * 1.4826  # median absolute deviations: a fleet whose groups differ so much by themselves shows nothing


def judged(trainings: Sequence[Training], earlier: Sequence[Training]) -> list[Training]:
    """The trainings of a round, those that passed and were slow as failed. One that is near the threshold, or that has
    too few others beside it to tell, is `unknown` and tried again."""
    return [_judged(training, [*earlier, *trainings]) for training in trainings]


def _judged(training: Training, among: Sequence[Training]) -> Training:
    if training.outcome != "pass" or training.step_ms is None:
        return training
    size = len(training.group.nodes)
    others = [
        each.step_ms
        for each in among
        if each.step_ms is not None
        and each.nodes != training.nodes
        and size / _LIKE <= len(each.group.nodes) <= size * _LIKE
    ]
    if not others:
        return training
    faster = sorted(others)[: math.ceil(len(others) / 2)]
    usual = statistics.median(faster)
    ratio = training.step_ms / usual
    told = f"{training.step_ms:.0f} ms an iteration, {usual:.0f} ms in the faster of {len(others)} groups of like size"
    if ratio < NEAR:
        return training
    if len(others) < PEERS:
        return training.model_copy(update={"outcome": "unknown", "why": short(f"{told}: too few to compare with")})
    deviation = statistics.median(abs(each - usual) for each in faster)
    if training.step_ms - usual <= _SPREAD * deviation:
        return training  # they differ as much without it
    if ratio < SLOW:
        return training.model_copy(update={"outcome": "unknown", "why": short(f"{told}: near the threshold")})
    return training.model_copy(update={"outcome": "fail", "why": short(f"slow: {told}")})
