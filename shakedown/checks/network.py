"""The interfaces that carry RDMA: their MTU. No other interface of the node is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from shakedown.checks import check
from shakedown.checks.compare import boot_remedy, compare_setting, unknown
from shakedown.desired.models import DesiredState
from shakedown.findings import Finding, Risk, Verdict
from shakedown.state import NodeState, Setting, is_unreadable


@check("mtu")
def mtu(desired: DesiredState, state: NodeState, node: str) -> Iterator[Finding]:
    """One finding per network interface of an RDMA device."""
    wanted = desired.rdma.mtu
    if wanted is None:
        return
    if is_unreadable(state.rdma):
        yield unknown("mtu", node, wanted, state.rdma, evidence="/sys/class/infiniband")
        return
    if is_unreadable(state.interfaces):
        yield unknown("mtu", node, wanted, state.interfaces, evidence="/sys/class/net")
        return
    mtus = {interface.name: interface.mtu for interface in state.interfaces}
    seen: set[str] = set()
    for device in state.rdma:
        patterns = desired.rdma.devices
        if (patterns and not any(fnmatchcase(device.name, each) for each in patterns)) or device.netdev in seen:
            continue
        if is_unreadable(device.netdev):
            if device.link_layer != "InfiniBand":
                yield unknown(f"mtu.{device.name}", node, wanted, device.netdev, evidence=f"netdev of {device.name}")
            continue
        seen.add(device.netdev)
        yield _of(device.netdev, device.name, wanted, mtus.get(device.netdev), state, node)


def _of(interface: str, device: str, wanted: int, setting: Setting | None, state: NodeState, node: str) -> Finding:
    name, evidence = f"mtu.{interface}", f"/sys/class/net/{interface}/mtu, the interface of {device}"
    if setting is None:
        evidence = f"{interface}, the interface of {device}, is not among the node's interfaces"
        return Finding(name=name, node=node, verdict=Verdict.UNKNOWN, wanted=wanted, evidence=evidence)
    text = f"MTU {wanted} on {interface} (the switch has to carry it)"
    right = setting.running == str(wanted)
    remedy = boot_remedy(text, {name: wanted}, state, right_now=right, risk=Risk.DISRUPTIVE)
    return compare_setting(name, node, wanted, setting, evidence=evidence, unit="bytes", remedy=remedy)
