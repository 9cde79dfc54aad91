"""RDMA devices of a node for the job: the ACTIVE ones in PCI order, and one GID index for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from shakedown.desired.models import Rdma
from shakedown.desired.problems import Problem
from shakedown.gid import NoGid, addresses_of, gid_index
from shakedown.hca import devices_of, none_there
from shakedown.state import NodeState, is_unreadable


@dataclass
class Hcas:
    """What NCCL_IB_HCA and NCCL_IB_GID_INDEX become, and what a reader should know of it."""

    names: list[str] = field(default_factory=list)
    gid_index: int | None = None
    why: str = ""
    problems: list[Problem] = field(default_factory=list)


def find_hcas(name: str, wanted: Rdma, state: NodeState) -> Hcas:
    """The devices of the wanted family. A node that asks for none uses sockets."""
    if wanted.count == 0:
        return Hcas(why="no RDMA devices are asked for (rdma.count is 0): sockets")
    if is_unreadable(state.interfaces):
        return Hcas(problems=[Problem(name, "interfaces", str(state.interfaces), "a list of the network interfaces")])
    if is_unreadable(state.rdma):
        return Hcas(problems=[Problem(name, "rdma", str(state.rdma), "a list of the RDMA devices")])
    family = devices_of(wanted, state.rdma)
    active = [device for device in family if device.state == "ACTIVE"]
    if len(active) < wanted.count:
        down = [f"{device.name} {device.state}" for device in family if device.state != "ACTIVE"]
        why = ", ".join(down) if family else none_there(wanted)
        actual = f"{len(active)} ACTIVE" + (f" ({why})" if why else "")
        expected = f"{wanted.count} ACTIVE {wanted.family or 'RDMA'} devices"
        return Hcas([d.name for d in active], problems=[Problem(name, "rdma", actual, expected)])
    hcas = Hcas([device.name for device in active], why=f"{len(active)} ACTIVE devices in PCI order")
    found = {device.name: gid_index(device, addresses_of(device, state.interfaces)) for device in active}
    indices = {index for index in found.values() if isinstance(index, int)}
    for index in found.values():
        if isinstance(index, NoGid):
            hcas.problems.append(Problem(name, "rdma.gids", str(index), "a RoCE v2 GID of its IPv4 address"))
    if len(indices) > 1:
        shown = ", ".join(f"{device}: {index}" for device, index in found.items())
        hcas.problems.append(Problem(name, "rdma.gids", shown, "one index for all devices (NCCL takes only one)"))
    if not hcas.problems:
        hcas.gid_index = indices.pop()
        usual = wanted.usual_gid_index
        if usual is not None and usual != hcas.gid_index:
            hcas.why += f"; the usual GID index of {wanted.family} is {usual}, the tables say {hcas.gid_index}"
    return hcas
