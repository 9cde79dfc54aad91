"""The RDMA devices: how many, their ports, links, GIDs and firmware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shakedown.checks import NIC_MODULES, NICS, check
from shakedown.checks.compare import unknown
from shakedown.checks.several import NO_DEVICE, common, compare_several, nothing_there
from shakedown.desired.hca import devices_of, none_there, others_of
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.gid import NoGid, addresses_of, gid_index
from shakedown.state.node import NodeState, PciLink, RdmaDevice, Reading, is_unreadable

MOST_LANES = 32  # PCI Express Base Specification, Link Status Register; a device that has left the bus reads as 63

CABLE = Remedy(text="check cable, transceiver and switch port of the devices named, then `ip link` and `rdma link`")


@check("rdma_count", "rdma.count", follows=NIC_MODULES)
def rdma_count(desired: DesiredState, state: NodeState) -> Comparison | None:
    """As many devices of the NIC family as the node should have."""
    wanted = desired.rdma.count
    if not wanted:
        return None
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma, evidence="/sys/class/infiniband")
    found = [device.name for device in devices_of(desired.rdma, state.rdma)]
    others = [device.name for device in others_of(desired.rdma, state.rdma)]
    evidence = ", ".join(found) or "no device of the family in /sys/class/infiniband"
    if others:
        evidence += f"; not counted for the family {desired.rdma.family}: {', '.join(others)}"
    right = len(found) == wanted
    text = "compare `lspci` and `rdma link` with a healthy node; the driver may not be loaded, or the NIC is gone"
    return Comparison(
        verdict=Verdict.OK if right else Verdict.FAIL,
        wanted=wanted,
        actual=len(found),
        evidence=evidence,
        remedy=None if right else Remedy(text=text),
    )


@check("rdma_state", "rdma.count", follows=(*NICS, "rdma_state"))
def rdma_state(desired: DesiredState, state: NodeState) -> list[Comparison]:
    """Every port ACTIVE with its link up."""
    if not desired.rdma.count:
        return []
    right: Callable[[str], bool]
    findings = []
    ports: tuple[tuple[str, str, Callable[[RdmaDevice], Reading[Any]]], ...] = (
        ("", "ACTIVE", lambda device: device.state),
        ("link", "LinkUp", lambda device: device.phys_state),
    )
    for detail, wanted, read in ports:
        right = wanted.__eq__
        findings.append(_per_device(desired, state, wanted, read, right, remedy=CABLE).about(detail))
    return findings


@check("rdma_rate", "rdma.rate_gbps", follows=(*NICS, "rdma_state"))
def rdma_rate(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Every port at its full rate."""
    rate = desired.rdma.rate_gbps
    if rate is None:
        return None
    remedy = Remedy(text="check the transceiver, the cable, and the switch port's speed and FEC")
    return _per_device(
        desired,
        state,
        rate,
        lambda device: device.rate_gbps,
        lambda seen: seen >= rate,
        unit="Gb/s",
        remedy=remedy,
    )


@check("rdma_link", "rdma.link_gts", "rdma.link_width", follows=NICS)
def rdma_link(desired: DesiredState, state: NodeState) -> list[Comparison]:
    """PCIe speed and width of each NIC. Where all devices are software there is no PCIe link to judge; beside a NIC
    with a link, one without has lost it."""
    worn = Remedy(text="reseat or exchange the NIC or riser named: a link below its width halves the NIC's rate")
    gts, width = desired.rdma.link_gts, desired.rdma.link_width
    devices = [] if is_unreadable(state.rdma) else devices_of(desired.rdma, state.rdma)
    hardware = any(device.link is not None for device in devices)
    findings = []
    if gts is not None:
        findings.append(
            _per_device(
                desired,
                state,
                gts,
                lambda device: _of_link(device, hardware, lambda link: link.speed_gts),
                lambda speed: speed >= gts,
                unit="GT/s",
                remedy=worn,
            ).about("speed")
        )
    if width is not None:
        findings.append(
            _per_device(
                desired,
                state,
                width,
                lambda device: _of_link(device, hardware, lambda link: link.width),
                lambda lanes: width <= lanes <= MOST_LANES,
                unit="lanes",
                remedy=worn,
            ).about("width")
        )
    return findings


@check("rdma_gid", "rdma.count", follows=(*NICS, "rdma_state*"))
def rdma_gid(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Every device has a RoCE v2 GID of its interface's IPv4 address, or of a routed IPv6 one where it has none. Which
    index that is, the table decides; that it differs from the published one, or from device to device, is noted as
    evidence and is no fault."""
    if not desired.rdma.count:
        return None
    wanted = "a RoCE v2 GID of the interface's address"
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma)
    if is_unreadable(state.interfaces):
        return unknown(wanted, state.interfaces)
    devices = devices_of(desired.rdma, state.rdma)
    results = {device.name: gid_index(device, addresses_of(device, state.interfaces)) for device in devices}
    found = {name: index for name, index in results.items() if not isinstance(index, NoGid)}
    reasons = [result for result in results.values() if isinstance(result, NoGid)]
    evidence = [] if devices else [none_there(desired.rdma)]
    evidence += [str(reason) for reason in reasons] + _remarks(found, desired.rdma.usual_gid_index)
    without = {name: "none" for name, result in results.items() if isinstance(result, NoGid) and not result.unread}
    verdict = Verdict.FAIL if without else Verdict.UNKNOWN if reasons or not found else Verdict.OK
    remedy = Remedy(
        text="give the interface named an address (GIDs follow addresses); fe80 GIDs are not used, they hang gloo"
    )
    return Comparison(
        verdict=verdict,
        wanted=wanted,
        actual=without or (common({name: f"index {index}" for name, index in found.items()}) if found else None),
        evidence="; ".join(evidence),
        remedy=None if verdict == Verdict.OK else remedy if without else NO_DEVICE,
    )


@check("rdma_firmware", "rdma.count", follows=NICS)
def rdma_firmware(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Check that the NICs of one node run one firmware."""
    if not desired.rdma.count:
        return None
    if is_unreadable(state.rdma):
        return unknown("equal", state.rdma)
    versions = {device.name: device.firmware for device in devices_of(desired.rdma, state.rdma)}
    read = [version for version in versions.values() if not is_unreadable(version)]
    usual = max(read, key=read.count, default="equal on all")
    remedy = Remedy(text="flash the devices named to the firmware of the others, with the vendor's tool")
    if not versions:
        why = none_there(desired.rdma)
        return nothing_there(usual, count=desired.rdma.count, why=why)
    return compare_several(usual, versions, usual.__eq__, remedy=remedy)


def _of_link(device: RdmaDevice, hardware: bool, read: Callable[[PciLink], Reading[float]]) -> Reading[float] | None:
    """Return a reading of the device's PCIe link: 0 where it has none beside devices that have one."""
    if device.link is None:
        return 0 if hardware else None
    return read(device.link)


def _remarks(found: dict[str, int], usual: int | None) -> list[str]:
    different = sorted(set(found.values()))
    remarks = []
    if len(different) > 1:
        remarks.append("the index differs from device to device: " + ", ".join(f"{k} {v}" for k, v in found.items()))
    if usual is not None and different and different != [usual]:
        remarks.append(f"published settings for this family say {usual}; the table decides")
    return remarks


def _per_device(
    desired: DesiredState,
    state: NodeState,
    wanted: Any,
    read: Callable[[RdmaDevice], Reading[Any] | None],
    right: Callable[[Any], bool],
    *,
    unit: str | None = None,
    remedy: Remedy | None = None,
) -> Comparison:
    """One finding over the devices of the family, also where none is there: what was asked for was not seen. Devices
    for which `read` has None are no such devices."""
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma)
    devices = devices_of(desired.rdma, state.rdma)
    values = {device.name: read(device) for device in devices}
    readings = {device: value for device, value in values.items() if value is not None}
    if not readings:
        why = f"nothing of the kind on {', '.join(values)}" if values else none_there(desired.rdma)
        count = len(devices) or desired.rdma.count
        return nothing_there(wanted, count=count, why=why, unit=unit)
    return compare_several(wanted, readings, right, unit=unit, remedy=remedy)
