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
NEAR = 0.1  # of it, to both sides: what is as near is repeated, and two of three decide
_TRIES = 3  # of a group near the threshold
PEERS = 3  # groups to be compared with, at least
_LIKE = 1.5  # times as many nodes, or as few
_SPREAD = 6 * 1.4826  # median absolute deviations: a fleet whose groups differ so much by themselves shows nothing


def judged(rounds: Sequence[Sequence[Training]]) -> list[list[Training]]:
    """The rounds, with what passed in the last one and was slow as failed. One that is near the threshold is `unknown`
    and tried again; one that has too few others beside it is judged again after the rounds that follow."""
    among = [each for trainings in rounds for each in trainings if each.step_ms is not None]
    newest = len(rounds) - 1
    return [
        [_judged(each, among) if number == newest or each.doubt == "few" else each for each in trainings]
        for number, trainings in enumerate(rounds)
    ]


def _judged(training: Training, among: Sequence[Training]) -> Training:
    step = training.step_ms
    if step is None or not (training.outcome == "pass" or training.doubt == "few"):
        return training
    passed = training.model_copy(update={"outcome": "pass", "why": "", "doubt": None})
    others = _others(training, among)
    if not others:
        return passed
    faster = sorted(others)[: math.ceil(len(others) / 2)]
    usual = statistics.median(faster)
    if step < SLOW * (1 - NEAR) * usual:
        return passed
    told = f"{step:.0f} ms an iteration, {usual:.0f} ms in the faster of {len(others)} groups of like size"
    if len(others) < PEERS:
        return _undecided(training, "few", f"{told}: too few to compare with")
    deviation = statistics.median(abs(each - usual) for each in faster)
    if step - usual <= _SPREAD * deviation:
        return passed  # they differ as much without it
    before = [each.step_ms or 0 for each in among if each.doubt == "near" and each.nodes == training.nodes]
    slow = [each >= SLOW * usual for each in (*before, step)]
    ahead = 2 * sum(slow) - len(slow)
    if (before or step < SLOW * (1 + NEAR) * usual) and len(slow) < _TRIES and abs(ahead) < 2:
        return _undecided(training, "near", f"{told}: near the threshold")
    if ahead < 0 or (not ahead and not slow[-1]):
        return passed
    return training.model_copy(update={"outcome": "fail", "why": short(f"slow: {told}"), "doubt": None})


def _others(training: Training, among: Sequence[Training]) -> list[float]:
    size = len(training.group.nodes)
    return [
        each.step_ms
        for each in among
        if each.step_ms is not None
        and each.nodes != training.nodes
        and size / _LIKE <= len(each.group.nodes) <= size * _LIKE
    ]


def _undecided(training: Training, doubt: str, why: str) -> Training:
    return training.model_copy(update={"outcome": "unknown", "why": short(why), "doubt": doubt})
