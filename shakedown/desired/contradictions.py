"""What no single field of a desired state shows: names that lead nowhere, two answers to one question, lost secrets."""

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shakedown.common.secret_file import secret_problem
from shakedown.desired import profiles
from shakedown.desired.models import DesiredState, Image, Mirror, Section
from shakedown.desired.problems import Problem
from shakedown.hosts import few
from shakedown.schedulers.registry import find


def problems_of(state: DesiredState) -> Iterator[Problem]:
    """Of one host."""
    if state.smoke and state.smoke.image:
        yield from undeclared("smoke.image", state.smoke.image, state.images)
    if state.rdma.family in profiles.names("nic") and state.rdma.provider:
        own, given = profiles.provider_of(state.rdma.family), state.rdma.provider.name
        if own is not None and given != own:
            yield Problem("", "rdma.provider.name", repr(given), f"{own}, the provider of {state.rdma.family}")
    for path, registry in _registries(state).items():
        yield from _of_registry(path, registry)
    yield from _of_files(state)
    yield from _of_service(state)
    yield from _of_jobs(state)


def over_hosts(states: Mapping[str, DesiredState], whole: bool, to_train: bool) -> Iterator[tuple[str, Problem]]:
    """Refuse hosts with different ways to go through a run, or to sign a run."""
    first, *others = states.items() or [("", None)]
    for name, state in others:
        for section in ("rolling", "signing"):
            one, other = getattr(first[1], section), getattr(state, section)
            if one != other:
                expected = f"the same on every host of a run; {first[0]} has {_shown(one)}"
                yield name, Problem("", section, repr(_shown(other)), expected)


def _shown(section: Section | None) -> dict[str, Any] | None:
    return section.model_dump() if section is not None else None


def waivers_without_node(
    states: Mapping[str, DesiredState], whole: bool, to_train: bool
) -> Iterator[tuple[str, Problem]]:
    """Yield each host of a waiver that is no host of the inventory, at a host that has the waiver."""
    holders = {
        (name, tuple(waiver.hosts)): host for host, state in states.items() for name, waiver in state.waivers.items()
    }
    for (name, words), host in holders.items() if whole else ():
        unknown = [word for word in words if not any(fnmatchcase(node, word) for node in states)]
        if unknown:
            yield host, Problem("", f"waivers.{name}.hosts", ", ".join(unknown), "hosts of the inventory, by full name")


def cabling_without_node(
    states: Mapping[str, DesiredState], whole: bool, to_train: bool
) -> Iterator[tuple[str, Problem]]:
    """Yield each host whose cabling plan names no host of the inventory: a plan of another rack, or other names."""
    for host, state in states.items() if whole else ():
        plan = state.rdma.cabling
        if plan is not None and not any(name in states for name in plan):
            yield host, Problem("", "rdma.cabling", few(plan), "a plan with hosts of the inventory, by full name")


def undeclared(path: str, image: str | None, images: Mapping[str, Image]) -> Iterator[Problem]:
    """Refuse an image that is named and not declared."""
    if image not in images:
        yield Problem("", path, repr(image), f"a name in images ({', '.join(images) or 'none is declared'})")


def _of_registry(path: str, image: Image | Mirror) -> Iterator[Problem]:
    if image.password_file and image.password_env:
        yield Problem("", path, "password_file and password_env", "one of the two")
    if image.username and not (image.password_file or image.password_env):
        yield Problem("", f"{path}.username", image.username, "a password_file or password_env")
    if image.insecure and image.ca_file:
        yield Problem("", path, "insecure and ca_file", "one of the two")


def _registries(state: DesiredState) -> dict[str, Image | Mirror]:
    mirrors = {f"pulls.mirrors.{name}": mirror for name, mirror in state.pulls.mirrors.items()}
    return {**{f"images.{name}": image for name, image in state.images.items()}, **mirrors}


def _of_files(state: DesiredState) -> Iterator[Problem]:
    """Refuse missing files of this machine, and secrets that would be refused hours later."""
    registries = _registries(state).items()
    files = [(f"{path}.ca_file", registry.ca_file) for path, registry in registries]
    files += [("source.patches", file) for file in (state.source.patches if state.source else ())]
    files += [("rdma.provider.source", state.rdma.provider.source)] if state.rdma.provider else []
    passwords = [(f"{path}.password_file", registry.password_file) for path, registry in registries]
    sections = {"smoke": state.smoke, "benchmark": state.benchmark}
    tokens = [(f"{name}.hf_token_file", wanted.hf_token_file) for name, wanted in sections.items() if wanted]
    bmc = state.service.bmc if state.service else None
    of_bmc = [("service.bmc.password_file", bmc.password_file)] if bmc else []
    read = [] if os.environ.get("HF_TOKEN") else tokens  # exported, it is used and no file is read
    for path, file in (*files, *passwords, *read):
        if file and not Path(file).expanduser().is_file():
            yield Problem("", path, file, "a file that is there on this machine")
    for path, file in (*passwords, *tokens, *of_bmc):
        if file and (problem := secret_problem(file)):
            yield Problem("", path, file, f"a secret for its owner alone: {problem}")


def _of_service(state: DesiredState) -> Iterator[Problem]:
    wanted = state.service
    if wanted is None:
        return
    if wanted.drain != "never" and wanted.scheduler is None:
        yield Problem("", "service.drain", wanted.drain, "a service.scheduler to drain in")
    if "power cycle" in wanted.rungs and wanted.bmc is None:
        expected = "a service.bmc.command, which takes a node's power away and gives it back"
        yield Problem("", "service.rungs", "power cycle", expected)
    if wanted.bmc is not None and wanted.bmc.password_file and wanted.bmc.password_env:
        yield Problem("", "service.bmc", "password_file and password_env", "one of the two")


def _of_jobs(state: DesiredState) -> Iterator[Problem]:
    """Refuse what keeps the schedulers of this host's jobs from holding them."""
    for via in sorted({section.via for section in (state.smoke, state.trials) if section is not None} - {"ssh"}):
        scheduler, section = find(via), getattr(state, via, None)
        for key, value, expected in scheduler.problems(section.model_dump() if section is not None else {}):
            yield Problem("", f"{via}.{key}", value, expected)
        if scheduler.no_containers and state.smoke is not None and state.smoke.runtime != "process":
            yield Problem("", "smoke.runtime", repr(state.smoke.runtime), f"'process', {scheduler.no_containers}")
