"""Evidence for single gates, and what they make of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shakedown.gates.model import Outcome
from shakedown.gates.observed import Training
from shakedown.logs.iterations import Iteration
from shakedown.logs.job_shape import JobShape


def judged(outcome: Outcome | None) -> Outcome:
    """Return the outcome of a gate that must not skip its evidence."""
    assert outcome is not None, "the gate was skipped"
    return outcome


def training(
    iterations: Sequence[Iteration], wanted: int | None = None, damaged: Collection[int] = (), **shape: int
) -> Training:
    return Training(iterations, damaged, wanted, JobShape(**shape))
