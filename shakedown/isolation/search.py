"""The search from round to round: asks the strategy, has the groups train, keeps what they came to."""

from __future__ import annotations

from collections.abc import Callable

from shakedown.isolation import pace
from shakedown.isolation.strategy import next_step, stopped
from shakedown.runs.isolation import Isolation, Launcher, Training


def search(
    isolation: Isolation,
    launch: Launcher,
    keep: Callable[[Isolation], None] = lambda isolation: None,
    interrupted: Callable[[], str | None] = lambda: None,
) -> Isolation:
    """Go on with a search until it has a result, and return it. `keep` is called after each round and at the end; an
    interrupted round is forgotten, so that it is played again by whoever goes on. Which trainings were slow is judged
    here, of earlier rounds too, where there were too few to compare with."""
    while isolation.result is None:
        step = next_step(isolation)
        if step.result is not None:
            isolation.result = step.result
            break
        trainings: list[Training] = list(launch(step.groups))
        if [each.group for each in trainings] != list(step.groups):
            raise ValueError("the launcher has to say what each group came to, in their order")
        if why := interrupted():
            keep(isolation)
            return isolation.model_copy(update={"result": stopped(isolation, why)})
        isolation.rounds = pace.judged([*isolation.rounds, trainings])
        keep(isolation)
    keep(isolation)
    return isolation
