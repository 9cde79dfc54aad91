"""Whether a log is of the recipe that it is to be judged by."""

from __future__ import annotations

from collections.abc import Sequence

from shakedown.gates.model import Outcome
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def recipe(recipe: str, otherwise: Sequence[str]) -> Outcome:
    """The job is the recipe's. Who names one wants its figures judged: where they cannot be, the answer is not yes."""
    return Outcome(
        verdict=Verdict.UNKNOWN,
        wanted=recipe,
        actual="another job",
        evidence=f"the recipe has {', '.join(otherwise)}",
        remedy="judge the log of a run of this recipe, or leave --recipe out and say with --expect what is wanted",
    )
