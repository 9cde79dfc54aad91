"""PCI Express settings of the NICs: the size of read requests."""

from __future__ import annotations

from shakedown.checks import NICS, check
from shakedown.checks.compare import at_boot, boot_remedy, compare_setting, unknown
from shakedown.checks.several import nothing_there
from shakedown.desired.hca import devices_of, none_there
from shakedown.desired.models import DesiredState
from shakedown.node.settings import SETTINGS
from shakedown.state.findings import Comparison, Risk
from shakedown.state.node import NodeState, Setting, is_unreadable


@check("max_read_request", "rdma.max_read_request", follows=NICS)
def max_read_request(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Of every RDMA device of the family on PCI. Devices in software have none, and a virtual function has no such
    field of its own."""
    wanted, vendor = desired.rdma.max_read_request, desired.rdma.vendor
    if wanted is None:
        return None
    known = SETTINGS["max_read_request"]
    evidence, unit = known.evidence, known.unit
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma, evidence="/sys/class/infiniband")
    family = devices_of(desired.rdma, state.rdma)
    devices = [device for device in family if device.bdf and not device.physical_function]
    if not devices:
        names = ", ".join(device.name for device in family)
        why = f"no PCI function of their own: {names}" if family else none_there(desired.rdma)
        return nothing_there(wanted, count=len(family) or desired.rdma.count, why=why, unit=unit)
    for device in devices:
        if is_unreadable(device.max_read_request):
            return unknown(wanted, device.max_read_request, evidence=f"{device.name}: {evidence}")
    sizes = {device.name: str(device.max_read_request) for device in devices}
    others = {device: size for device, size in sizes.items() if size != str(wanted)}
    if others:
        evidence += f": {', '.join(f'{device} {size}' for device, size in others.items())}"
    key = f"{known.key()}.{vendor}" if vendor else known.key()
    setting = Setting(
        running=", ".join(sorted(set(others.values()), key=int)) if others else str(wanted),
        persisted=at_boot(state.boot_unit, key),
    )
    text = f"{known.text(str(wanted))} for {', '.join(others or sizes)}"
    remedy = boot_remedy(text, {key: wanted}, state, right_now=not others, risk=Risk(known.risk))
    return compare_setting(wanted, setting, evidence=evidence, unit=unit, remedy=remedy)
