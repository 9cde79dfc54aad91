"""From an inventory's layers to one DesiredState per host, with every error of every host at once."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shakedown.desired import cvs
from shakedown.desired.layers import HostLayers, Merged
from shakedown.desired.merging import KEYS, merge_host
from shakedown.desired.models import NO_PROMISE, DesiredState
from shakedown.desired.problems import DesiredStateError, Problem
from shakedown.desired.validation import independent, usable_part, validate


@dataclass(frozen=True)
class Resolved:
    """The desired state of every host, the merged layers it was read from (for `shakedown show`), and what a reader of
    the CVS files among them should know."""

    states: dict[str, DesiredState]
    merged: dict[str, Merged]
    notes: dict[str, None] = field(default_factory=dict)  # in order, without repetition
    of_job: tuple[Problem, ...] = ()  # what a job over all hosts would be refused for


@dataclass(frozen=True)
class Feature:
    """What a feature checks in a desired state beyond the types of its section. `resolve` adds the layer of a value."""

    of_host: Callable[[DesiredState], Iterable[Problem]] = lambda state: ()
    of_hosts: Callable[[Mapping[str, DesiredState], bool, bool], Iterable[tuple[str, Problem]]] = (
        lambda states, whole, to_train: ()
    )
    """Over the states by host, with `whole` and `to_train` as in `resolve`: (the host whose layer is meant, problem)"""


def resolve(
    hosts: Iterable[HostLayers], features: Sequence[Feature], whole: bool = False, to_train: bool = False
) -> Resolved:
    """Merge and validate. Raise DesiredStateError with all the problems of all hosts.

    `whole`: these are all the hosts of the inventory, so their number counts. `to_train`: a job over just these hosts
    is to be started, so it must divide among them; a comparison needs no job.
    """
    hosts_with: dict[Problem, list[str]] = defaultdict(list)
    resolved = Resolved({}, {})
    before: HostLayers | None = None
    for host in hosts:
        if before is None or (host.layers, host.user) != (before.layers, before.user):  # most are as the one before
            merged, state, problems = _resolve_host(host, features, resolved.notes)
        before = host
        resolved.merged[host.name] = merged
        if state is not None:
            resolved.states[host.name] = state
        for problem in problems:
            hosts_with[problem].append(host.name)
    _check_hosts(features, resolved, whole, to_train, hosts_with)
    if hosts_with:
        raise DesiredStateError(_of_hosts(hosts_with))
    of_job: dict[Problem, list[str]] = defaultdict(list)
    if whole and not to_train:
        _check_hosts(features, resolved, whole, True, of_job)
    return replace(resolved, of_job=tuple(_of_hosts(of_job)))


def _check_hosts(
    features: Sequence[Feature], resolved: Resolved, whole: bool, to_train: bool, found: dict[Problem, list[str]]
) -> None:
    """Run the features' own checks over the hosts."""
    for feature in features:
        for name, problem in feature.of_hosts(resolved.states, whole, to_train):
            found[_with_layer(problem, resolved.merged[name])].append(name)


def _of_hosts(found: Mapping[Problem, Sequence[str]]) -> list[Problem]:
    return [replace(problem, hosts=tuple(names)) for problem, names in sorted(found.items())]


def _resolve_host(
    host: HostLayers, features: Sequence[Feature], notes: dict[str, None]
) -> tuple[Merged, DesiredState | None, list[Problem]]:
    """Return a host's merged layers, its desired state where it is valid, and the problems. Remarks go to the notes."""
    imported, problems = cvs.import_named(host.layers)
    lacking = {"smoke"} if problems else set()  # sections that a file was to bring
    if imported is not None:
        notes.update(dict.fromkeys(f"{imported.name}: {remark}" for remark in imported.remarks))
    merged, more = merge_host(host, imported)
    problems += more
    state, invalid = validate(merged)
    if state is not None:
        return merged, state, problems + _check(features, state, merged)
    # What a placeholder or an unknown profile leads to is not a second error.
    reported = tuple(problem.path for problem in problems)
    sections = lacking | {path.split(".")[0] for path in reported if path in ("gpu.profile", "rdma.family")}
    problems += [
        problem
        for problem in invalid
        if not problem.path.startswith(reported)
        and not (problem.value == "nothing" and problem.path.split(".")[0] in sections)
    ]
    usable = usable_part(merged)
    return merged, None, problems + independent(_check(features, usable, merged) if usable else [], problems)


def asks(host: HostLayers) -> bool:
    """Return whether the site requests anything of this host.

    The shipped defaults alone are no desired state: a host that was forgotten in every group would pass by them.
    """
    nothing: tuple[Any, ...] = (None, "", {}, [])
    values = (item for layer in host.layers for item in layer.values.items())
    keys = set(KEYS) - NO_PROMISE
    return any(key in keys and value not in nothing for key, value in values)


def _check(features: Sequence[Feature], state: DesiredState, merged: Merged) -> list[Problem]:
    """Run the features' own checks of one host."""
    return [_with_layer(problem, merged) for feature in features for problem in feature.of_host(state)]


def _with_layer(problem: Problem, merged: Merged) -> Problem:
    """Add the layer that the problem's value came from."""
    return replace(problem, where=merged.origin_of(problem.path))
