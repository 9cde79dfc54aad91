"""The host's devices that a container gets."""

from __future__ import annotations

from shakedown.desired.models import Smoke
from shakedown.desired.problems import Problem
from shakedown.smoke.recipe import Container
from shakedown.state import DeviceNode, NodeState, Reading, Unreadable, is_unreadable


def container_devices(
    name: str, documented: Container, smoke: Smoke, state: NodeState
) -> tuple[list[str], list[str], list[Problem]]:
    """The devices to give, the optional ones that the node has not, and those that are asked for and not there."""
    wanted = documented.devices if smoke.devices is None else smoke.devices
    problems = []
    for path in wanted:
        absent = _absent(path, state)
        if absent:
            problems.append(Problem(name, f"devices ({path})", absent, "the device, or smoke.devices without it"))
    optional = documented.optional_devices if smoke.devices is None else []
    left_out = [path for path in optional if _absent(path, state)]
    return [*wanted, *(path for path in optional if path not in left_out)], left_out, problems


def _absent(path: str, state: NodeState) -> str | None:
    """Why a device is not there; None where it is, or where the node state does not tell."""
    devices = state.devices
    if path == "/dev/kfd":
        return str(devices.kfd) if is_unreadable(devices.kfd) else None
    folders: dict[str, Reading[list[DeviceNode]]] = {"/dev/dri": devices.dri, "/dev/infiniband": devices.infiniband}
    for folder, listing in folders.items():
        if path != folder and not path.startswith(f"{folder}/"):
            continue
        if isinstance(listing, Unreadable):
            return str(listing)
        there = [entry.path for entry in listing]
        return None if path in there or (path == folder and there) else "not there"
    return None
