"""The features of a desired state, each with its own checks. Here they meet, above all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shakedown.desired import contradictions
from shakedown.desired import resolve as layers
from shakedown.desired.layers import HostLayers
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.desired.resolve import Feature, Resolved

# A feature's rules are loaded where a desired state has its section: they take 60 ms, and a comparison needs none.


def resolve(hosts: Iterable[HostLayers], whole: bool = False, to_train: bool = False) -> Resolved:
    """Merge and validate with the checks of all features. See `shakedown.desired.resolve.resolve`."""
    return layers.resolve(hosts, FEATURES, whole, to_train)


def _smoke(state: DesiredState) -> Iterator[Problem]:
    if state.smoke is not None:
        from shakedown.jobs.preflight import problems_of

        yield from problems_of(state)


def _smoke_of_hosts(states: Mapping[str, DesiredState], whole: bool, to_train: bool) -> Iterator[tuple[str, Problem]]:
    if any(state.smoke for state in states.values()):
        from shakedown.jobs.preflight import count_problems, division_problems

        if whole:
            yield from count_problems(states)
        if to_train:
            yield from division_problems(states)


def _trials(state: DesiredState) -> Iterator[Problem]:
    if state.trials:
        from shakedown.trials.preflight import problems_of

        yield from problems_of(state)


def _datasets(state: DesiredState) -> Iterator[Problem]:
    if state.datasets:
        from shakedown.recipes.datasets import problems_of

        for name, dataset in state.datasets.items():
            yield from problems_of(name, dataset, state.images)


def _benchmark(state: DesiredState) -> Iterator[Problem]:
    if state.benchmark:
        from shakedown.recipes.benchmark import problems_of

        yield from problems_of(state.benchmark, state.images)


FEATURES = (
    Feature(_benchmark),
    Feature(contradictions.problems_of, contradictions.over_hosts),
    Feature(_smoke, _smoke_of_hosts),
    Feature(_trials),
    Feature(_datasets),
)
