"""The data cache that all nodes of a run with real data must share: proved from the mounts, not assumed."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.places import file_system, host_path
from shakedown.smoke.launch import Derived
from shakedown.smoke.options import Chosen
from shakedown.state import NodeState, is_unreadable


def shared(
    chosen: Chosen, desired: Mapping[str, DesiredState], states: Mapping[str, NodeState]
) -> tuple[list[Derived], list[Problem]]:
    """Global rank 0 writes the index cache and every rank reads it. Mock data needs none."""
    launch = chosen.recipe.family.launch
    option = launch.cache_dir
    if option is None or option not in chosen.recipe.family.options:
        return [], []
    if not chosen.matches(launch.real_data):
        return [Derived(name=option, value="not shared", why="mock data needs no cache that all nodes see")], []
    inside = str(chosen.value(option))
    path = f"smoke.options.{option}"
    problems, found = [], {}
    for name, state in states.items():
        smoke = desired[name].smoke
        host = host_path(inside, smoke.volumes if smoke else {})
        if host is None:
            problems.append(Problem("smoke", path, inside, "a folder below one of smoke.volumes"))
            continue
        disk = None if is_unreadable(state.disks) else file_system(host, state.disks)
        if disk is None or not disk.network:
            actual = f"{host} on {f'{disk.device} ({disk.fstype})' if disk else 'an unknown file system'}"
            problems.append(Problem(name, path, actual, "a file system that every node sees, such as NFS"))
        else:
            found[name] = disk.device
    if len(set(found.values())) > 1:
        shown = ", ".join(f"{name}: {device}" for name, device in found.items())
        problems.append(Problem("plan", path, shown, "the same file system on every node"))
    if problems:
        return [], problems
    return [Derived(name=option, value=inside, why=f"every node has {next(iter(found.values()))} there")], []


def of_one(name: str, chosen: Chosen, desired: DesiredState, state: NodeState) -> list[Derived]:
    """A node that trains by itself shares its cache with nobody, so a folder that others see too is told: they are at
    the same work at the same time."""
    folder = host_folder(chosen, desired.smoke.volumes if desired.smoke else {})
    disk = None if folder is None or is_unreadable(state.disks) else file_system(folder, state.disks)
    if disk is None or not disk.network:
        return []
    why = "every node by itself writes the same index there, at the same time: give each a folder of its own with the"
    why += " host's smoke.volumes, or let one run fill it before"
    return [Derived(name=f"{name}: warning", value=f"{folder} is on {disk.device}", why=why)]


def host_folder(chosen: Chosen, volumes: Mapping[str, str]) -> str | None:
    """Where the cache of a run with real data lies on a node; None where the run needs none, or has it in no volume."""
    launch = chosen.recipe.family.launch
    if launch.cache_dir is None or launch.cache_dir not in chosen.recipe.family.options:
        return None
    return host_path(str(chosen.value(launch.cache_dir)), volumes) if chosen.matches(launch.real_data) else None
