"""Problems of the section `trials` in the desired state, found before the first connection."""

import math
from collections.abc import Iterator

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem, one_of
from shakedown.trials.workload.registry import trials


def problems_of(desired: DesiredState) -> Iterator[Problem]:
    """Yield unknown trials, and floors that no figure has."""
    if desired.trials is None:
        return
    registered = trials()
    for name in desired.trials.only:
        if name not in registered:
            yield Problem("trials", "trials.only", repr(name), one_of(name, registered))
    for figure, bound in desired.trials.floors.items():
        name, _, rest = figure.partition(".")
        if name not in registered or not registered[name].unit(rest):
            expected = f"TRIAL.FIGURE, where TRIAL is {one_of(name, registered)}"
            yield Problem("trials", f"trials.floors.{figure}", f"{bound:g}", expected)
        elif not (math.isfinite(bound) and bound > 0):
            yield Problem("trials", f"trials.floors.{figure}", f"{bound:g}", "a number above zero")
