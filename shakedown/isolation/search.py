"""The search from round to round: it asks the strategy for groups, trains them, and keeps the outcomes."""

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
    """Run a search until it has a result, and return it.

    `keep` is called after each round and at the end. An interrupted round is dropped, so that a resumed search repeats
    it. Slow trainings are judged after each round, earlier rounds included.
    """
    while isolation.result is None:
        step = next_step(isolation)
        if step.result is not None:
            isolation.result = step.result
            break
        trainings: list[Training] = list(launch(step.groups))
        if [training.group for training in trainings] != list(step.groups):
            raise ValueError("the launcher must return one training for each group, in the groups' order")
        if reason := interrupted():
            keep(isolation)
            return isolation.model_copy(update={"result": stopped(isolation, reason)})
        isolation.rounds = pace.judge_rounds([*isolation.rounds, trainings])
        keep(isolation)
    keep(isolation)
    return isolation
