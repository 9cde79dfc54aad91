"""Network devices that the site names in smoke.environment, held against each node's state."""

from collections.abc import Iterable, Iterator, Mapping

from shakedown.hosts import folded
from shakedown.jobs.plan.draft import PlanDraft
from shakedown.recipes.variables import Device, variables
from shakedown.state.gid import ROCE_V2
from shakedown.state.node import Interface, NodeState, RdmaDevice, is_unreadable

AUTOMATIC = "-1"  # a GID index that RCCL chooses
OWN_CHOICE = {"UCX_NET_DEVICES": "all"}


def check_typed_devices(draft: PlanDraft) -> None:
    """Refuse names of devices that a node does not have. Nodes with the same answer are one problem."""
    environment = draft.smoke.environment
    groups: dict[tuple[str, str], list[str]] = {}
    for name, state in draft.states.items():
        for variable, expected in _wrong(environment, state):
            groups.setdefault((variable, expected), []).append(name)
    for (variable, expected), names in groups.items():
        draft.refuse(folded(names), f"smoke.environment.{variable}", environment[variable], expected)


def _wrong(environment: Mapping[str, str], state: NodeState) -> Iterator[tuple[str, str]]:
    for variable, device in variables().devices.items():
        value = environment.get(variable)
        if not value or value == OWN_CHOICE.get(variable):
            continue
        if device.what in ("hca", "gid") and environment.get("NCCL_IB_DISABLE") == "1":
            continue
        expected = _gid(value, environment, state) if device.what == "gid" else _names(value, device, state)
        if expected:
            yield variable, expected


def _names(value: str, device: Device, state: NodeState) -> str:
    """Return what was expected in place of the list; empty: each of its entries names a device that works."""
    works, others = _devices(device, state)
    if isinstance(works, str):
        return works
    shown = f"devices of the node ({', '.join(works) or 'there is none that is up'})"
    excludes = device.list == "nccl" and value.startswith("^")
    exact = device.list != "nccl" or value.removeprefix("^").startswith("=")
    if excludes:
        left_out = {name for entry in _entries(value) for name in _matching(entry, works, exact)}
        return "" if set(works) - left_out else f"a list that leaves some of the {shown}"
    for entry in _entries(value):
        name, _, port = entry.partition(":")
        found = _matching(entry, works, exact)
        if not found:
            broken = _matching(entry, others, exact)
            reason = f"; {broken[0]} {others[broken[0]]}" if broken else f"; {name or 'an empty entry'} is none"
            return f"{shown}{reason}"
        if port and not (port.isdigit() and 1 <= int(port) <= max(works[match] for match in found)):
            return f"ports of {found[0]} (1 to {works[found[0]]}); {port} is none"
    return ""


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.lstrip("^").lstrip("=").split(",")]


def _matching(entry: str, names: Iterable[str], exact: bool) -> list[str]:
    """Return the names that an entry means: exactly this one, or all that begin with it."""
    wanted = entry.partition(":")[0]
    return [name for name in names if name == wanted or (wanted and not exact and name.startswith(wanted))]


def _devices(device: Device, state: NodeState) -> tuple[dict[str, int] | str, dict[str, str]]:
    """Return the devices that work with their numbers of ports, and the others with their states."""
    works: dict[str, int] = {}
    others: dict[str, str] = {}
    if device.what in ("interface", "any"):
        if is_unreadable(state.interfaces):
            return f"a list of the network interfaces, which is {state.interfaces}", {}
        for interface in state.interfaces:
            if _usable(interface):
                works[interface.name] = 1
            else:
                others[interface.name] = "is down or has no address"
    if device.what in ("hca", "any"):
        if is_unreadable(state.rdma):
            return f"a list of the RDMA devices, which is {state.rdma}", {}
        for hca in state.rdma:
            if hca.state == "ACTIVE":
                works[hca.name] = hca.ports
            else:
                others[hca.name] = f"is {hca.state}"
    return works, others


def _usable(interface: Interface) -> bool:
    return interface.up and bool(interface.ipv4 or interface.ipv6)


def _gid(value: str, environment: Mapping[str, str], state: NodeState) -> str:
    """Return what was expected in place of the GID index; empty: each device has a RoCE v2 entry there."""
    if value == AUTOMATIC:
        return ""
    if not value.isdigit():
        return f"the index of a {ROCE_V2} entry, or {AUTOMATIC}"
    if is_unreadable(state.rdma):
        return f"a list of the RDMA devices, which is {state.rdma}"
    for hca in _used(environment.get("NCCL_IB_HCA"), state.rdma):
        if hca.link_layer == "InfiniBand" or is_unreadable(hca.gids):
            continue
        routed = [entry for entry in hca.gids if entry.type == ROCE_V2 and not entry.gid.startswith("fe80")]
        indices = [entry.index for entry in routed]
        if int(value) not in indices:
            return f"the index of a {ROCE_V2} entry of {hca.name} ({', '.join(map(str, indices)) or 'it has none'})"
    return ""


def _used(typed: str | None, devices: Iterable[RdmaDevice]) -> list[RdmaDevice]:
    """Return the devices that RCCL will use: those that are named, or all that work."""
    active = [device for device in devices if device.state == "ACTIVE"]
    if not typed or typed.startswith("^"):
        return active
    names = {device.name for device in active}
    named = {name for entry in _entries(typed) for name in _matching(entry, names, typed.startswith("="))}
    return [device for device in active if device.name in named]
