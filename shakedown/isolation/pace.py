"""Which passed trainings were slow: the time of an iteration against groups of like size.

A slow node slows its whole group. Among few nodes half of all groups have it, so the faster half of the others is
usual. A node's work is the same in every group, and communication adds little up to half as much again; where such
groups are few, larger ones are peers too.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from shakedown.common.text import counted
from shakedown.evidence import peers
from shakedown.runs.isolation import Training, short

SLOW = 1.33  # times the usual time, the threshold of a failed straggler; less names no node
NEAR = 0.1  # of the threshold, to both sides: such a group trains again, and two of three decide
PEERS = 3  # groups to compare with, at least
_TRIES = 3  # of a group near the threshold
_LIKE = 1.5  # times as many nodes, or as few
_SPREAD = 6  # scales by which groups differ: a smaller difference is within the scatter of the fleet


def judge_rounds(rounds: Sequence[Sequence[Training]]) -> list[list[Training]]:
    """Turn slow passes into failures, and those near the threshold into `unknown`, so that they train again. Earlier
    passes and undecided trainings are judged again beside later groups."""
    among = [training for trainings in rounds for training in trainings if training.step_ms is not None]
    return [[_judge(training, among) for training in trainings] for trainings in rounds]


def _judge(training: Training, among: Sequence[Training]) -> Training:
    step = training.step_ms
    if step is None or not (training.outcome == "pass" or training.doubt == "peers"):
        return training
    passed = training.model_copy(update={"outcome": "pass", "why": "", "doubt": None})
    size = len(training.nodes)
    of_others = [group for group in among if group.nodes != training.nodes]
    larger = [group for group in of_others if len(group.nodes) >= size / _LIKE]
    like = [group for group in larger if len(group.nodes) <= size * _LIKE]
    others = like if len(like) >= PEERS else larger
    if len(others) < PEERS:
        beside = _beside_smaller(training, passed, [group for group in of_others if group not in larger])
        if not others or beside.outcome != "pass":
            return beside
    usual, scale, count = _usual(others)
    if step < SLOW * (1 - NEAR) * usual:
        return passed
    message = f"{step:.0f} ms an iteration, {usual:.0f} ms in the faster of {counted(count, 'group')}"
    message += " of like size" if others is like else " of as many nodes or more"
    if count < PEERS:
        return _undecided(training, "peers", f"{message}: too few to compare with")
    if step - usual <= _SPREAD * scale:
        # Within the scatter no node is slow; a group beyond the threshold has not passed either.
        return passed if step < SLOW * usual else _undecided(training, "peers", f"{message}: they differ as much")
    before = [group.step_ms or 0 for group in among if group.doubt == "near" and group.nodes == training.nodes]
    slow = [time >= SLOW * usual for time in (*before, step)]
    ahead = 2 * sum(slow) - len(slow)
    if (before or step < SLOW * (1 + NEAR) * usual) and len(slow) < _TRIES and abs(ahead) < 2:
        return _undecided(training, "near", f"{message}: near the threshold")
    if ahead < 0 or (not ahead and not slow[-1]):
        return passed
    return training.model_copy(update={"outcome": "fail", "why": short(f"slow: {message}"), "doubt": None})


def _usual(others: Sequence[Training]) -> tuple[float, float, int]:
    """Return the usual time, its scatter, and the number of groups."""
    steps = sorted(group.step_ms for group in others if group.step_ms is not None)
    faster = steps[: math.ceil(len(steps) / 2)]
    usual = statistics.median(faster)
    return usual, peers.spread(faster, usual), len(steps)


def _beside_smaller(training: Training, passed: Training, smaller: Sequence[Training]) -> Training:
    """Judge a group larger than all others, as the closing run. A ring of n nodes sends (n - 1) / n of the data twice,
    so its time may grow in that proportion; beyond that it looks like a slow node."""
    if len(smaller) < PEERS:
        return passed
    largest = max(len(group.nodes) for group in smaller)
    usual, _, count = _usual([group for group in smaller if len(group.nodes) >= largest / _LIKE])
    size, step = len(training.nodes), training.step_ms or 0
    growth = (1 - 1 / size) / (1 - 1 / max(largest, 2))
    if step < SLOW * growth * usual:
        return passed
    message = f"{step:.0f} ms an iteration of {counted(size, 'node')}, "
    message += f"{usual:.0f} ms in the faster of {counted(count, 'smaller group')}"
    return _undecided(training, "peers", f"{message}: none of like size to compare with")


def _undecided(training: Training, doubt: Literal["near", "peers"], reason: str) -> Training:
    return training.model_copy(update={"outcome": "unknown", "why": short(reason), "doubt": doubt})
