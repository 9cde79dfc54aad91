"""The cables of the fabric: the LLDP neighbour of each port against the site's cabling plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from shakedown.checks import NICS, check
from shakedown.checks.compare import comparison, data, unknown
from shakedown.common.lists import grouped
from shakedown.desired.hca import devices_of
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Finding, Remedy, Verdict
from shakedown.state.node import Neighbour, NodeState, RdmaDevice, is_unreadable

if TYPE_CHECKING:  # a node may have Python 3.8
    End = tuple[str, str]  # a switch and its port
_LLDPD = Remedy(text="install lldpd on the node and start it, now and at boot; read as root, or as a member of _lldpd")
_PLUG = Remedy(text="plug each cable into the switch port that the plan names, or correct the plan (rdma.cabling)")
_PLAN = Remedy(text="add the node's ports to the cabling plan (rdma.cabling), or leave the plan out for the node")
_SECOND = Remedy(
    text="find out who else sends LLDP on the port (lldpcli show neighbors details): a cable has one far end; a hub, a "
    "bridge or a virtual machine that sends its own is to be silent there, or not to forward"
)
_LONGEST = 1000  # characters of evidence


class Port(NamedTuple):
    """A fabric port: its verdict, what is there, and the switch's end that was seen."""

    verdict: Verdict
    text: str
    seen: End | None = None


@check("cabling", "rdma.cabling", follows=("fleet.cabling", *NICS, "rdma_state*"))
def cabling(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Compare the LLDP neighbour of each fabric port with the cabling plan. A port without a link, or without a
    neighbour beside ports of its driver that have one, lacks its cable; where no port of a driver has a neighbour, the
    NIC's firmware may keep LLDP to itself: unknown."""
    if desired.rdma.cabling is None:
        return None
    wanted, plan = "every port at its planned end", _ends(next(iter(desired.rdma.cabling.values()), {}))
    if is_unreadable(state.neighbours):
        remedy = _LLDPD if state.neighbours.unreadable in ("missing", "not permitted", "failed") else None
        return unknown(wanted, state.neighbours, remedy=remedy)
    if not plan:
        return Comparison(Verdict.UNKNOWN, wanted=wanted, evidence="the node is not in the plan", remedy=_PLAN)
    ports = _ports(desired, state, plan)
    wrong = {port: found for port, found in ports.items() if found.verdict != Verdict.OK}
    shown = {port: found.text for port, found in (wrong or ports).items()}
    evidence = "\n".join(f"{port}: {text}" for port, text in shown.items())
    if not wrong:
        return Comparison(Verdict.OK, wanted=wanted, actual="as planned", evidence=evidence)
    worst = Verdict.FAIL if any(found.verdict == Verdict.FAIL for found in wrong.values()) else Verdict.UNKNOWN
    several = any(found.seen for found in wrong.values())
    remedy = _PLUG if worst == Verdict.FAIL else _SECOND if several else _silent(desired, state, wrong)
    return Comparison(worst, wanted=wanted, actual=shown, evidence=evidence, remedy=remedy)


def _ends(plan: Mapping[str, list[str]]) -> dict[str, End]:
    return {port: (switch, switch_port) for port, (switch, switch_port) in plan.items()}


def _silent(desired: DesiredState, state: NodeState, ports: Mapping[str, Port]) -> Remedy:
    drivers = {device.driver for port, device in _devices(desired, state).items() if port in ports}
    known = data("cabling.json")["eaten"]
    if not drivers:
        return _PLAN
    return Remedy(text=known.get(next(iter(drivers)) if len(drivers) == 1 else "", known[""]))


def _devices(desired: DesiredState, state: NodeState) -> dict[str, RdmaDevice]:
    """Return the fabric's devices by their interfaces, or by their own names where an interface is not known."""
    devices = [] if is_unreadable(state.rdma) else devices_of(desired.rdma, state.rdma)
    return {device.name if is_unreadable(device.netdev) else device.netdev: device for device in devices}


def _ports(desired: DesiredState, state: NodeState, plan: Mapping[str, End]) -> dict[str, Port]:
    """Return what was found of each planned port, and of each fabric port that the plan forgets."""
    devices = _devices(desired, state)
    interface_of = {device.name: interface for interface, device in devices.items()}
    interfaces = {} if is_unreadable(state.interfaces) else {entry.name: entry.up for entry in state.interfaces}
    neighbours = () if is_unreadable(state.neighbours) else state.neighbours
    heard = grouped((neighbour.interface, neighbour) for neighbour in neighbours)
    hearing = {device.driver for interface, device in devices.items() if interface in heard}
    ends = {interface_of.get(port, port): end for port, end in plan.items()}
    found = {}
    for port, end in plan.items():
        interface = interface_of.get(port, port)
        device, planned = devices.get(interface), f"planned {' '.join(end)}"
        link = interfaces.get(interface, False) and (device is None or device.phys_state in ("LinkUp", "Active"))
        if interface in heard:
            found[port] = _compared(heard[interface], end, ends)
        elif interface not in interfaces:
            found[port] = Port(Verdict.UNKNOWN, f"there is no such port, {planned}")
        elif not link:
            found[port] = Port(Verdict.FAIL, f"no link, {planned}")
        elif device is not None and device.driver in hearing:
            found[port] = Port(Verdict.FAIL, f"no neighbour, {planned}; other ports of {device.driver} have theirs")
        else:
            found[port] = Port(Verdict.UNKNOWN, f"no neighbour heard, {planned}")
    for interface, device in devices.items():
        if interface not in ends and device.name not in plan:
            found[interface] = Port(Verdict.UNKNOWN, "not in the plan")
    return found


def _compared(heard: list[Neighbour], end: End, ends: Mapping[str, End]) -> Port:
    """Compare a port's neighbours with the planned end. `ends`: of all ports of the node. A cable has one far end:
    where others speak on the port too, one of them may lie."""
    others = [neighbour for neighbour in heard if not _is_end(neighbour, end)]
    if not others:
        return Port(Verdict.OK, " ".join(end), end)
    if len(others) < len(heard):
        shown = ", ".join(f"{neighbour.system} {neighbour.port}" for neighbour in others[:3])
        return Port(Verdict.UNKNOWN, f"{' '.join(end)} as planned, and other neighbours on the port: {shown}", end)
    first = heard[0]
    at = next(
        (other for other, planned in ends.items() if any(_is_end(neighbour, planned) for neighbour in heard)), None
    )
    owner = f", the end of {at}" if at else ""
    is_mac = first.port.count(":") == 5
    seen = (first.system, first.port_description or first.port if is_mac else first.port)
    return Port(Verdict.FAIL, f"{' '.join(seen)}{owner}, planned {' '.join(end)}", ends[at] if at else seen)


def _is_end(neighbour: Neighbour, end: End) -> bool:
    """Tell whether a neighbour is this end. A switch has a name, with or without its domain, or an address."""
    switch, port = (text.lower() for text in end)
    names = [name.lower() for name in (neighbour.system, neighbour.chassis)]
    same = switch in names or any(
        name.partition(".")[0] == switch.partition(".")[0] for name in names if "." not in name or "." not in switch
    )
    return same and port in (neighbour.port.lower(), neighbour.port_description.lower())


def swapped(states: Mapping[str, NodeState], desired: Mapping[str, DesiredState]) -> list[Finding]:
    """Return a finding `fleet.cabling` for each node whose cables end where those of other ports should: cables that
    take each other's places are one cause, whichever nodes they belong to."""
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    wrong: dict[tuple[str, str], tuple[End, End]] = {}
    for node, state in states.items():
        plan = _ends((desired[node].rdma.cabling or {}).get(node, {})) if node in desired else {}
        owners.update({(end[0].lower(), end[1].lower()): (node, port) for port, end in plan.items()})
        for port, found in _ports(desired[node], state, plan).items() if plan else ():
            if found.verdict == Verdict.FAIL and found.seen and port in plan:
                wrong[node, port] = (plan[port], found.seen)
    return [finding for cycle in _cycles(wrong, owners) for finding in _findings(cycle, wrong)]


def _cycles(
    wrong: Mapping[tuple[str, str], tuple[End, End]], owners: Mapping[tuple[str, str], tuple[str, str]]
) -> Iterator[list[tuple[str, str]]]:
    """Yield the ports of each circle of cables: the end that a port sees is the planned end of the next."""
    left = dict(wrong)
    while left:
        first = place = next(iter(left))
        circle = []
        while place in left:
            circle.append(place)
            _, (switch, port) = left.pop(place)
            place = owners.get((switch.lower(), port.lower()), ("", ""))
        if place == first and len(circle) > 1:
            yield circle


def _findings(circle: list[tuple[str, str]], wrong: Mapping[tuple[str, str], tuple[End, End]]) -> Iterator[Finding]:
    ends = ", ".join(sorted(" ".join(wrong[place][0]) for place in circle))
    lines = "; ".join(f"{' '.join(wrong[place][1])} ends at {' '.join(place)}" for place in circle)
    wanted, actual = "no cables that take each other's places", f"swapped cables: {ends}"
    found = comparison(Verdict.FAIL, wanted, actual, lines[:_LONGEST], _PLUG)
    yield from (found.finding("fleet.cabling", node) for node in dict.fromkeys(node for node, _ in circle))
