"""Schedulers and their allocations, as the desired states of hosts ask for them."""

from collections.abc import Mapping
from typing import Any

from shakedown.desired.models import DesiredState
from shakedown.hosts import named
from shakedown.schedulers import registry
from shakedown.schedulers.interface import Allocation, Scheduler


def allocation_of(desired: Mapping[str, DesiredState], via: str, title: str) -> Allocation:
    """Return an allocation for jobs over these hosts. Raise ValueError where they differ in how it is requested, or
    where it cannot hold the job; SchedulerError."""
    scheduler = scheduler_of(desired, via)
    for key, value, expected in scheduler.problems(scheduler.settings):
        raise ValueError(f"{via}.{key} is {value}: expected {expected}")
    if scheduler.no_containers and any(state.smoke and state.smoke.runtime != "process" for state in desired.values()):
        raise ValueError(f'smoke.runtime has to be "process" {scheduler.no_containers}')
    return scheduler.allocation(names_of(desired, via), title)


def scheduler_of(desired: Mapping[str, DesiredState], name: str) -> Scheduler:
    """Return the scheduler of one job over these hosts. Raise ValueError where they differ in its settings."""
    kind = registry.find(name)
    sections = {host: settings_of(state, name) for host, state in desired.items()}
    for key in dict.fromkeys(key for section in sections.values() for key in section):
        if key not in kind.of_node:
            same(f"{name}.{key}", {host: repr(section.get(key)) for host, section in sections.items()})
    return kind(next(iter(sections.values()), None))


def settings_of(desired: DesiredState, scheduler: str) -> dict[str, Any]:
    """Return the values of a scheduler's section that are no defaults."""
    section = getattr(desired, scheduler, None)
    return {} if section is None else dict(section.model_dump(exclude_defaults=True))


def names_of(desired: Mapping[str, DesiredState], scheduler: str) -> dict[str, str]:
    """Return the hosts' names in a scheduler."""
    return {host: settings_of(state, scheduler).get("node") or host for host, state in desired.items()}


def same(key: str, values: Mapping[str, str]) -> str:
    """Return the one value of hosts that share a job; "ssh" for no host. Raise ValueError where they differ."""
    hosts: dict[str, list[str]] = {}
    for name, value in values.items():
        hosts.setdefault(value, []).append(name)
    if len(hosts) > 1:
        differing = "; ".join(f"{value} on {named(names)}" for value, names in hosts.items())
        raise ValueError(f"{key} has to be the same on all hosts of a run: {differing}")
    return next(iter(hosts), "ssh")
