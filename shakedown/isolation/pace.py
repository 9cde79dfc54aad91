"""Which of the trainings that passed were slow: by the time of an iteration, held against groups of like size.

A slow node slows its whole group, so the group's time is the node's, and among few nodes half of all groups have it:
what is usual is told by the faster half of the others. Each group has the same work for each node; what communication
adds with size stays small between groups that differ by no more than a half. Larger groups than that are peers too
where there are few: a group has no reason to be slower than those that have more to tell each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from shakedown.common.text import counted
from shakedown.evidence import peers
from shakedown.runs.isolation import Training, short

SLOW = 1.33  # times what is usual: as a straggler fails; what is less is no reason to name anybody
NEAR = 0.1  # of it, to both sides: what is as near is repeated, and two of three decide
PEERS = 3  # groups to be compared with, at least
_TRIES = 3  # of a group near the threshold
_LIKE = 1.5  # times as many nodes, or as few
_SPREAD = 6  # scales by which groups differ: a fleet that differs so much by itself shows nothing


def judged(rounds: Sequence[Sequence[Training]]) -> list[list[Training]]:
    """The rounds, with what passed and was slow as failed. One that is near the threshold is `unknown` and tried again.
    What passed in earlier rounds, or whose peers did not tell, is judged again beside those that have come since."""
    among = [each for trainings in rounds for each in trainings if each.step_ms is not None]
    return [[_judged(each, among) for each in trainings] for trainings in rounds]


def _judged(training: Training, among: Sequence[Training]) -> Training:
    step = training.step_ms
    if step is None or not (training.outcome == "pass" or training.doubt == "peers"):
        return training
    passed = training.model_copy(update={"outcome": "pass", "why": "", "doubt": None})
    size = len(training.nodes)
    of_others = [each for each in among if each.nodes != training.nodes]
    larger = [each for each in of_others if len(each.nodes) >= size / _LIKE]
    like = [each for each in larger if len(each.nodes) <= size * _LIKE]
    others = like if len(like) >= PEERS else larger
    if len(others) < PEERS:
        beside = _beside_smaller(training, passed, [each for each in of_others if each not in larger])
        if not others or beside.outcome != "pass":
            return beside
    usual, scale, count = _usual(others)
    if step < SLOW * (1 - NEAR) * usual:
        return passed
    told = f"{step:.0f} ms an iteration, {usual:.0f} ms in the faster of {counted(count, 'group')}"
    told += " of like size" if others is like else " of as many nodes or more"
    if count < PEERS:
        return _undecided(training, "peers", f"{told}: too few to compare with")
    if step - usual <= _SPREAD * scale:
        # Within their scatter: nobody is slow for it, and one that would be slow without it is not fine either.
        return passed if step < SLOW * usual else _undecided(training, "peers", f"{told}: they differ as much")
    before = [each.step_ms or 0 for each in among if each.doubt == "near" and each.nodes == training.nodes]
    slow = [each >= SLOW * usual for each in (*before, step)]
    ahead = 2 * sum(slow) - len(slow)
    if (before or step < SLOW * (1 + NEAR) * usual) and len(slow) < _TRIES and abs(ahead) < 2:
        return _undecided(training, "near", f"{told}: near the threshold")
    if ahead < 0 or (not ahead and not slow[-1]):
        return passed
    return training.model_copy(update={"outcome": "fail", "why": short(f"slow: {told}"), "doubt": None})


def _usual(others: Sequence[Training]) -> tuple[float, float, int]:
    """What is usual, how far it scatters, and of how many groups."""
    steps = sorted(each.step_ms for each in others if each.step_ms is not None)
    faster = steps[: math.ceil(len(steps) / 2)]
    usual = statistics.median(faster)
    return usual, peers.spread(faster, usual), len(steps)


def _beside_smaller(training: Training, passed: Training, smaller: Sequence[Training]) -> Training:
    """A group that is larger than all others, as the closing run is. A ring of n nodes sends (n - 1) / n of the data
    twice, so it may take as much longer as it sends more; what is beyond that nobody can tell from a slow node."""
    if len(smaller) < PEERS:
        return passed
    largest = max(len(each.nodes) for each in smaller)
    usual, _, count = _usual([each for each in smaller if len(each.nodes) >= largest / _LIKE])
    size, step = len(training.nodes), training.step_ms or 0
    growth = (1 - 1 / size) / (1 - 1 / max(largest, 2))
    if step < SLOW * growth * usual:
        return passed
    told = f"{step:.0f} ms an iteration of {counted(size, 'node')}, "
    told += f"{usual:.0f} ms in the faster of {counted(count, 'smaller group')}"
    return _undecided(training, "peers", f"{told}: none of like size to compare with")


def _undecided(training: Training, doubt: Literal["near", "peers"], why: str) -> Training:
    return training.model_copy(update={"outcome": "unknown", "why": short(why), "doubt": doubt})
