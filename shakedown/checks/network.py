"""The interfaces that carry RDMA: their MTU. No other interface of the node is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from shakedown.checks import NICS, check
from shakedown.checks.compare import compare_setting, remedy_of, unknown
from shakedown.checks.several import nothing_there
from shakedown.desired.hca import devices_of, none_there
from shakedown.desired.models import DesiredState
from shakedown.node.settings import SETTINGS
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NodeState, Setting, is_unreadable


@check("mtu", "rdma.mtu", follows=NICS)
def mtu(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per network interface of an RDMA device of the family."""
    wanted = desired.rdma.mtu
    if wanted is None:
        return
    if is_unreadable(state.rdma):
        yield unknown(wanted, state.rdma, evidence="/sys/class/infiniband")
        return
    if is_unreadable(state.interfaces):
        yield unknown(wanted, state.interfaces, evidence="/sys/class/net")
        return
    devices = devices_of(desired.rdma, state.rdma)
    if not devices:
        why = none_there(desired.rdma)
        yield nothing_there(wanted, count=desired.rdma.count, why=why, unit="bytes")
    mtus = {interface.name: interface.mtu for interface in state.interfaces}
    seen: set[str] = set()
    for device in devices:
        if device.link_layer == "InfiniBand":
            yield _set_by_subnet_manager(device.name, wanted).about(device.name)
        elif is_unreadable(device.netdev):
            yield unknown(wanted, device.netdev, evidence=f"netdev of {device.name}").about(device.name)
        elif device.netdev not in seen:
            seen.add(device.netdev)
            yield _of(device.netdev, device.name, wanted, mtus.get(device.netdev), state).about(device.netdev)


def _of(interface: str, device: str, wanted: int, setting: Setting | None, state: NodeState) -> Comparison:
    known = SETTINGS["mtu"]
    evidence = f"{known.evidence.format(interface)}, the interface of {device}"
    if setting is None:
        evidence = f"{interface}, the interface of {device}, is not among the node's interfaces"
        remedy = Remedy(text=f"find out why {interface or 'the interface'} is gone: its driver, or a network namespace")
        return Comparison(verdict=Verdict.UNKNOWN, wanted=wanted, unit="bytes", evidence=evidence, remedy=remedy)
    right = setting.running == str(wanted)
    repair = partial(remedy_of, known, wanted, state, right_now=right, detail=interface)
    return compare_setting(wanted, setting, evidence=evidence, unit="bytes", remedy=repair)


def _set_by_subnet_manager(device: str, wanted: int) -> Comparison:
    """Expect the value of Ethernet interfaces only; an InfiniBand port carries RDMA without one."""
    evidence = f"{device} is an InfiniBand port: the subnet manager sets its MTU (that of IPoIB is another matter)"
    return Comparison(
        verdict=Verdict.OK,
        wanted=wanted,
        actual="no Ethernet interface",
        evidence=evidence,
    )
