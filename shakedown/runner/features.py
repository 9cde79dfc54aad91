"""The features of a desired state, each with its own checks; the runner puts them together."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType

from shakedown.common.secret_file import SecretError
from shakedown.desired import contradictions
from shakedown.desired import resolve as layers
from shakedown.desired.layers import HostLayers
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.desired.resolve import Feature, Resolved
from shakedown.recipes import datasets
from shakedown.runs.signing import envelope
from shakedown.trials import preflight as trials


def resolve(hosts: Iterable[HostLayers], whole: bool = False, to_train: bool = False) -> Resolved:
    """Merge and validate with the checks of all features. See `shakedown.desired.resolve.resolve`."""
    return layers.resolve(hosts, FEATURES, whole, to_train)


def _preflight() -> ModuleType:
    from shakedown.jobs import preflight  # 100 ms that a comparison without a job does not need

    return preflight


def _smoke(state: DesiredState) -> Iterator[Problem]:
    if state.smoke is not None:
        yield from _preflight().problems_of(state)


def _smoke_of_hosts(states: Mapping[str, DesiredState], whole: bool, to_train: bool) -> Iterator[tuple[str, Problem]]:
    if any(state.smoke for state in states.values()):
        if whole:
            yield from _preflight().count_problems(states)
        if to_train:
            yield from _preflight().division_problems(states)


def _datasets(state: DesiredState) -> Iterator[Problem]:
    for name, dataset in state.datasets.items():
        yield from datasets.problems_of(name, dataset, state.images)


def _benchmark(state: DesiredState) -> Iterator[Problem]:
    if state.benchmark:
        yield from contradictions.undeclared("benchmark.image", state.benchmark.image, state.images)
        for problem in _smoke(state.model_copy(update={"smoke": state.benchmark.smoke()})):
            path = re.sub(r"^smoke\.(options\.)?", "benchmark.", problem.path)
            yield replace(problem, where="", path=path)


def _waivers(state: DesiredState) -> Iterator[Problem]:
    if state.waivers:
        from shakedown.runner import waivers  # all checks and the catalogue, which few inventories need here

        yield from waivers.problems_of(state)


def _signing(state: DesiredState) -> Iterator[Problem]:
    if state.signing:
        try:
            envelope.private_key(state.signing.key_file)
        except SecretError as error:
            yield Problem("", "signing.key_file", state.signing.key_file, f"the site's private key: {error}")


FEATURES = (
    Feature(_benchmark),
    Feature(contradictions.problems_of, contradictions.over_hosts),
    Feature(_smoke, _smoke_of_hosts),
    Feature(trials.problems_of),
    Feature(_datasets),
    Feature(_signing),
    Feature(of_hosts=contradictions.cabling_without_node),
    Feature(_waivers, contradictions.waivers_without_node),
)
