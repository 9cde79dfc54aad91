"""Whether a log is of the recipe that it is to be judged by."""

from shakedown.gates.model import Outcome
from shakedown.gates.observed import Expected
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def recipe(expected: Expected) -> Outcome | None:
    """Log and recipe are of the same job. Without that the recipe's figures cannot be judged, so another job is
    unknown."""
    if not expected.recipe:
        return None
    return Outcome(
        verdict=Verdict.UNKNOWN,
        wanted=expected.recipe,
        actual="another job",
        evidence=f"the recipe has {', '.join(expected.differences)}",
        remedy="judge the log of a run of this recipe, or leave out --recipe and give the bounds with --expect",
    )
