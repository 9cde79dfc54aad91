"""Where the ranks meet: master address, interfaces, a free port, and the RDMA devices with their GID index."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_interface

from shakedown.common.text import counted
from shakedown.desired.hca import devices_of, none_there
from shakedown.jobs.launch import NodePlan
from shakedown.jobs.plan.draft import Equipment, NodeAssignment, PlanDraft
from shakedown.state.gid import NoGid, addresses_of, gid_index
from shakedown.state.node import NodeState, is_unreadable

# Below the range that Linux hands to outgoing connections (32768 to 60999), so that a free port stays free.
PORTS = range(20000, 30000)


@dataclass(frozen=True)
class Endpoint:
    interface: str
    address: str


@dataclass(frozen=True)
class _Path:
    """The way from a node to an address: the connected network, or a gateway."""

    interface: str
    source: str
    direct: bool


def rendezvous_of(draft: PlanDraft) -> dict[str, Endpoint]:
    """Return where all ranks meet: an address of the first node that all others route to, and each node's own end.
    There are none where they cannot meet. The site's choice of an interface is taken as it is on every node. Directly
    connected networks are preferred to gateways, then the one with the master's default route."""
    interface, states = draft.smoke.interface, draft.states
    if interface is not None:
        endpoints, reason = _by_name(draft, interface), "as the desired state says"
    elif not draft.is_distributed:
        endpoints = {draft.master: Endpoint("lo", "127.0.0.1")}
        reason = "one node: everything stays on the loopback interface"
    else:
        endpoints, reason = _by_routes(draft)
    if len(endpoints) < len(states):
        return {}
    endpoint = endpoints[draft.master]
    draft.note("master address", endpoint.address, f"{draft.master}, {endpoint.interface}: {reason}")
    way = "as the desired state says" if interface else "the one that routes to the master"
    for name in [name for name in states if name != draft.master]:
        endpoint = endpoints[name]
        draft.note(f"{name}: interface", f"{endpoint.interface} {endpoint.address}", way)
    return endpoints


def _by_name(draft: PlanDraft, interface: str) -> dict[str, Endpoint]:
    endpoints = {}
    for name, state in draft.states.items():
        if addresses := [str(own.ip) for link, own in _addresses(state) if link == interface]:
            endpoints[name] = Endpoint(interface, addresses[0])
        else:
            expected = f"an interface that is up and has an IPv4 address ({_shown(state)})"
            draft.refuse(name, "smoke.interface", interface, expected)
    return endpoints


def _by_routes(draft: PlanDraft) -> tuple[dict[str, Endpoint], str]:
    states = draft.states
    master, *others = states
    candidates = _candidates(states, master)
    reached = {to: {name: path for name in others if (path := _path(states[name], to))} for to in candidates}
    complete = [address for address in candidates if len(reached[address]) == len(others)]
    if not complete:
        _refuse_lost(draft, candidates, reached)
        return {}, ""
    default = _path(states[master], "192.0.2.1")  # an address that no host has: the way is the default route

    def rank(address: str) -> tuple[bool, bool]:
        indirect = any(not path.direct for path in reached[address].values())
        return indirect, default is None or candidates[address] != default.interface

    best = min(complete, key=rank)
    endpoints = {master: Endpoint(candidates[best], best)}
    endpoints |= {name: Endpoint(path.interface, path.source) for name, path in reached[best].items()}
    way = "through a gateway" if rank(best)[0] else "directly"
    return {name: endpoints[name] for name in states}, f"every other node reaches it {way}"


def _candidates(states: Mapping[str, NodeState], master: str) -> dict[str, str]:
    """Return the master's addresses -> interface, without those of other nodes: docker0 has one everywhere."""
    elsewhere = {str(own.ip) for name, state in states.items() if name != master for _, own in _addresses(state)}
    return {str(own.ip): interface for interface, own in _addresses(states[master]) if str(own.ip) not in elsewhere}


def _addresses(state: NodeState) -> list[tuple[str, IPv4Interface]]:
    if is_unreadable(state.interfaces):
        return []
    addresses = [(i.name, IPv4Interface(address)) for i in state.interfaces if i.up for address in i.ipv4]
    return [(name, own) for name, own in addresses if not (own.ip.is_loopback or own.ip.is_link_local)]


def _path(state: NodeState, target: str) -> _Path | None:
    """Return the kernel's choice: the longest prefix, then the lowest metric; an interface's own network is a route."""
    address = IPv4Address(target)
    own = _addresses(state)
    routes: list[tuple[IPv4Network, str | None, str, int]] = [(owned.network, None, name, 0) for name, owned in own]
    if not is_unreadable(state.routes):
        routes += [(IPv4Network(r.destination), r.gateway, r.interface, r.metric) for r in state.routes]
    matching = [route for route in routes if address in route[0]]
    for _, gateway, interface, _ in sorted(matching, key=lambda route: (-route[0].prefixlen, route[3])):
        if sources := [owned for name, owned in own if name == interface]:
            near = IPv4Address(gateway) if gateway else address
            source = next((owned for owned in sources if near in owned.network), sources[0])
            return _Path(interface, str(source.ip), gateway is None)
    return None


def _refuse_lost(draft: PlanDraft, candidates: Mapping[str, str], reached: Mapping[str, Mapping[str, _Path]]) -> None:
    states = draft.states
    if not candidates:
        expected = "an interface that is up, with an IPv4 address that no other node has"
        draft.refuse(draft.master, "interfaces", _shown(states[draft.master]), expected)
        return
    best = max(candidates, key=lambda address: len(reached[address]))
    where = ", ".join(f"{address} ({interface})" for address, interface in candidates.items())
    for name in [name for name in states if name != draft.master and name not in reached[best]]:
        expected = f"a route to {draft.master}, whose addresses are {where}"
        draft.refuse(name, "routes", _shown(states[name]), expected)


def _shown(state: NodeState) -> str:
    if is_unreadable(state.interfaces):
        return str(state.interfaces)
    return ", ".join(f"{name} {own}" for name, own in _addresses(state)) or "no IPv4 address"


def master_port(draft: PlanDraft) -> int | None:
    """Return a TCP port of the master that nothing listens on, the same for the same run."""
    listening, port = draft.states[draft.master].listening, draft.smoke.master_port
    path, value = ("listening", "unknown") if port is None else ("smoke.master_port", str(port))
    if is_unreadable(listening):
        draft.refuse(draft.master, path, value, f"a list of the ports in use, which is {listening}")
        return None
    taken, reason = set(listening), "as the desired state says; nothing listens there"
    if port in taken:
        draft.refuse(draft.master, path, value, "a port that nothing listens on")
        return None
    if port is None:
        start = zlib.crc32(draft.run_id.encode()) % len(PORTS)
        port = next((port for port in (*PORTS[start:], *PORTS[:start]) if port not in taken), None)
        reason = f"nothing listens there; chosen from {PORTS[0]} to {PORTS[-1]} by the run's id"
    if port is None:
        draft.refuse(draft.master, path, value, f"a free port from {PORTS[0]} to {PORTS[-1]}")
        return None
    draft.note("master port", port, reason)
    return port


@dataclass(frozen=True)
class Hcas:
    """What NCCL_IB_HCA and NCCL_IB_GID_INDEX become; without names sockets are used."""

    names: Sequence[str] = ()
    gid_index: int | None = None


def hcas_of(draft: PlanDraft) -> dict[str, Hcas]:
    """Only for a job that spans nodes: on one node what is missing is a finding, and no reason not to train."""
    return {name: find_hcas(draft, name) if draft.is_distributed else Hcas() for name in draft.states}


def find_hcas(draft: PlanDraft, name: str) -> Hcas:
    """Return the devices of the wanted family. A node that wants none uses sockets."""
    names, index, reason = _active(draft, name)
    draft.note(f"{name}: HCA list", ",".join(names) or "none", reason)
    if index is not None:
        draft.note(f"{name}: GID index", index, "the RoCE v2 entry of each device's own address")
    return Hcas(names, index)


def _active(draft: PlanDraft, name: str) -> tuple[list[str], int | None, str]:
    wanted, state, before = draft.desired[name].rdma, draft.states[name], len(draft.problems)
    if wanted.count == 0:
        return [], None, "no RDMA devices are asked for (rdma.count is 0): sockets"
    if is_unreadable(state.interfaces):
        draft.refuse(name, "interfaces", state.interfaces, "a list of the network interfaces")
        return [], None, ""
    if is_unreadable(state.rdma):
        draft.refuse(name, "rdma", state.rdma, "a list of the RDMA devices")
        return [], None, ""
    family = devices_of(wanted, state.rdma)
    active = [device for device in family if device.state == "ACTIVE"]
    names = [device.name for device in active]
    if len(active) < wanted.count:
        down = [f"{device.name} {device.state}" for device in family if device.state != "ACTIVE"]
        lacking = ", ".join(down) if family else none_there(wanted)
        actual = f"{len(active)} ACTIVE" + (f" ({lacking})" if lacking else "")
        draft.refuse(name, "rdma", actual, counted(wanted.count, f"ACTIVE {wanted.family or 'RDMA'} device"))
        return names, None, ""
    reason = f"{len(active)} ACTIVE devices in PCI order"
    by_device = {device.name: gid_index(device, addresses_of(device, state.interfaces)) for device in active}
    indices = {index for index in by_device.values() if isinstance(index, int)}
    for index in by_device.values():
        if isinstance(index, NoGid):
            draft.refuse(name, "rdma.gids", index, "a RoCE v2 GID of its address")
    if len(indices) > 1:
        shown = ", ".join(f"{device}: {index}" for device, index in by_device.items())
        draft.refuse(name, "rdma.gids", shown, "one index for all devices (NCCL takes only one)")
    if len(draft.problems) > before:
        return names, None, reason
    (own,), usual = indices, wanted.usual_gid_index
    if usual not in (None, own):
        reason += f"; the usual GID index of {wanted.family} is {usual}, the tables say {own}"
    return names, own, reason


def assignment_of(
    draft: PlanDraft,
    rank: int,
    name: str,
    endpoint: Endpoint,
    hcas: Mapping[str, Hcas],
    equipment: Mapping[str, Equipment],
) -> NodeAssignment:
    """Return a node's part of the job: where it is, what it has, and what it should be."""
    plan = NodePlan(
        name=name,
        node_rank=rank,
        address=endpoint.address,
        names=_names(draft.states[name], endpoint.address),
        interface=endpoint.interface,
        hca=list(hcas[name].names),
        gid_index=hcas[name].gid_index,
        links=_links(draft.states[name], endpoint.interface, hcas[name].names),
        command=[],
    )
    return NodeAssignment(plan, draft.desired[name], draft.states[name], equipment.get(name, Equipment()))


def _names(state: NodeState, address: str) -> list[str]:
    """Return the host name of a node and its addresses but for `address`: those of RDMA ports are in GIDs."""
    names = [state.system.hostname, *(str(own.ip) for _, own in _addresses(state))]
    for interface in () if is_unreadable(state.interfaces) else state.interfaces:
        for text in interface.ipv6 if interface.up else ():
            own = ip_interface(text.partition("%")[0]).ip
            names += [] if own.is_link_local or own.is_loopback else [str(own)]
    return [name for name in dict.fromkeys(names) if name != address]


def _links(state: NodeState, interface: str, hca: Sequence[str]) -> list[str]:
    """Return the names by which the kernel's log speaks of the ports that the job uses."""
    used = set(filter(None, (interface, *hca)))
    if not is_unreadable(state.rdma):
        names = [name for device in state.rdma if device.name in hca for name in (device.netdev, device.bdf)]
        used |= {name for name in names if isinstance(name, str)}
    return sorted(used)
