"""Where the ranks meet: master address, interfaces, a free port, and the RDMA devices with their GID index."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_interface

from shakedown.common.text import counted
from shakedown.desired.hca import devices_of, none_there
from shakedown.desired.models import Rdma
from shakedown.desired.problems import Problem
from shakedown.jobs.launch import NodePlan
from shakedown.jobs.plan.draft import Equipment, NodeAssignment, PlanDraft
from shakedown.state.gid import NoGid, addresses_of, gid_index
from shakedown.state.node import NodeState, is_unreadable

# Below the range that Linux hands to outgoing connections (32768 to 60999), so that a free port stays free.
PORTS = range(20000, 30000)


@dataclass(frozen=True)
class Endpoint:
    """A node's end of the job's network."""

    interface: str
    address: str


@dataclass(frozen=True)
class Rendezvous:
    """Where all ranks meet, and why there."""

    endpoints: dict[str, Endpoint]
    why: str


@dataclass(frozen=True)
class _Path:
    """The way from a node to an address: the connected network, or a gateway."""

    interface: str
    source: str
    direct: bool


def find_rendezvous(
    states: Mapping[str, NodeState], interface: str | None = None
) -> tuple[Rendezvous | None, list[Problem]]:
    """Find the address of the first node that all others route to, each by its own interface.

    `states` are in rank order. `interface` is the site's choice, taken as it is on every node. Directly connected
    networks are preferred to gateways, then the one with the master's default route.
    """
    if len(states) == 1 and interface is None:
        name = next(iter(states))
        return Rendezvous(
            {name: Endpoint("lo", "127.0.0.1")}, "one node: everything stays on the loopback interface"
        ), []
    if interface is not None:
        return _by_name(states, interface)
    master, *others = states
    candidates = _candidates(states, master)
    reached = {
        address: {name: path for name in others if (path := _path(states[name], address))} for address in candidates
    }
    complete = [address for address in candidates if len(reached[address]) == len(others)]
    if not complete:
        return None, _nowhere(states, candidates, reached)
    default = _path(states[master], "192.0.2.1")  # an address that no host has: the way is the default route

    def rank(address: str) -> tuple[bool, bool]:
        indirect = any(not path.direct for path in reached[address].values())
        return indirect, default is None or candidates[address] != default.interface

    best = min(complete, key=rank)
    endpoints = {master: Endpoint(candidates[best], best)}
    endpoints |= {name: Endpoint(path.interface, path.source) for name, path in reached[best].items()}
    way = "through a gateway" if rank(best)[0] else "directly"
    return Rendezvous({name: endpoints[name] for name in states}, f"every other node reaches it {way}"), []


def free_port(state: NodeState, run_id: str, requested: int | None) -> tuple[int, str]:
    """Return a TCP port that nothing listens on, the same for the same run. Raise ValueError where there is none."""
    if is_unreadable(state.listening):
        raise ValueError(f"a list of the ports in use, which is {state.listening}")
    taken = set(state.listening)
    if requested is not None:
        if requested in taken:
            raise ValueError("a port that nothing listens on")
        return requested, "as the desired state says; nothing listens there"
    start = zlib.crc32(run_id.encode()) % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        if port not in taken:
            return port, f"nothing listens there; chosen from {PORTS[0]} to {PORTS[-1]} by the run's id"
    raise ValueError(f"a free port from {PORTS[0]} to {PORTS[-1]}")


def _by_name(states: Mapping[str, NodeState], interface: str) -> tuple[Rendezvous | None, list[Problem]]:
    endpoints, problems = {}, []
    for name, state in states.items():
        addresses = [str(own.ip) for link, own in _addresses(state) if link == interface]
        if addresses:
            endpoints[name] = Endpoint(interface, addresses[0])
        else:
            expected = f"an interface that is up and has an IPv4 address ({_shown(state)})"
            problems.append(Problem(name, "smoke.interface", interface, expected))
    return (None, problems) if problems else (Rendezvous(endpoints, "as the desired state says"), [])


def _candidates(states: Mapping[str, NodeState], master: str) -> dict[str, str]:
    """Return the master's addresses -> interface, without those that other nodes have too.

    docker0 has one address everywhere, and every node would find itself there.
    """
    elsewhere = {str(own.ip) for name, state in states.items() if name != master for _, own in _addresses(state)}
    return {str(own.ip): interface for interface, own in _addresses(states[master]) if str(own.ip) not in elsewhere}


def _addresses(state: NodeState) -> list[tuple[str, IPv4Interface]]:
    if is_unreadable(state.interfaces):
        return []
    addresses = [(i.name, IPv4Interface(address)) for i in state.interfaces if i.up for address in i.ipv4]
    return [(name, own) for name, own in addresses if not (own.ip.is_loopback or own.ip.is_link_local)]


def _path(state: NodeState, target: str) -> _Path | None:
    """Return the kernel's choice: the longest prefix, then the lowest metric.

    An interface's own network counts as a route, since the kernel adds it with the address.
    """
    address = IPv4Address(target)
    own = _addresses(state)
    routes: list[tuple[IPv4Network, str | None, str, int]] = [(owned.network, None, name, 0) for name, owned in own]
    if not is_unreadable(state.routes):
        routes += [(IPv4Network(r.destination), r.gateway, r.interface, r.metric) for r in state.routes]
    matching = [route for route in routes if address in route[0]]
    for _, gateway, interface, _ in sorted(matching, key=lambda route: (-route[0].prefixlen, route[3])):
        sources = [owned for name, owned in own if name == interface]
        if sources:
            near = IPv4Address(gateway) if gateway else address
            source = next((owned for owned in sources if near in owned.network), sources[0])
            return _Path(interface, str(source.ip), gateway is None)
    return None


def _nowhere(
    states: Mapping[str, NodeState], candidates: Mapping[str, str], reached: Mapping[str, Mapping[str, _Path]]
) -> list[Problem]:
    master, *others = states
    if not candidates:
        expected = "an interface that is up, with an IPv4 address that no other node has"
        return [Problem(master, "interfaces", _shown(states[master]), expected)]
    best = max(candidates, key=lambda address: len(reached[address]))
    lost: Sequence[str] = [name for name in others if name not in reached[best]]
    where = ", ".join(f"{address} ({interface})" for address, interface in candidates.items())
    return [
        Problem(name, "routes", _shown(states[name]), f"a route to {master}, whose addresses are {where}")
        for name in lost
    ]


def _shown(state: NodeState) -> str:
    if is_unreadable(state.interfaces):
        return str(state.interfaces)
    return ", ".join(f"{name} {own}" for name, own in _addresses(state)) or "no IPv4 address"


@dataclass
class Hcas:
    """What NCCL_IB_HCA and NCCL_IB_GID_INDEX become, and what a reader should know of it."""

    names: list[str] = field(default_factory=list)
    gid_index: int | None = None
    why: str = ""
    problems: list[Problem] = field(default_factory=list)


def find_hcas(name: str, wanted: Rdma, state: NodeState) -> Hcas:
    """Return the devices of the wanted family. A node that wants none uses sockets."""
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
        reason = ", ".join(down) if family else none_there(wanted)
        actual = f"{len(active)} ACTIVE" + (f" ({reason})" if reason else "")
        expected = counted(wanted.count, f"ACTIVE {wanted.family or 'RDMA'} device")
        return Hcas([d.name for d in active], problems=[Problem(name, "rdma", actual, expected)])
    hcas = Hcas([device.name for device in active], why=f"{len(active)} ACTIVE devices in PCI order")
    by_device = {device.name: gid_index(device, addresses_of(device, state.interfaces)) for device in active}
    indices = {index for index in by_device.values() if isinstance(index, int)}
    for index in by_device.values():
        if isinstance(index, NoGid):
            hcas.problems.append(Problem(name, "rdma.gids", str(index), "a RoCE v2 GID of its address"))
    if len(indices) > 1:
        shown = ", ".join(f"{device}: {index}" for device, index in by_device.items())
        hcas.problems.append(Problem(name, "rdma.gids", shown, "one index for all devices (NCCL takes only one)"))
    if not hcas.problems:
        hcas.gid_index = indices.pop()
        usual = wanted.usual_gid_index
        if usual is not None and usual != hcas.gid_index:
            hcas.why += f"; the usual GID index of {wanted.family} is {usual}, the tables say {hcas.gid_index}"
    return hcas


def rendezvous_of(draft: PlanDraft) -> Rendezvous | None:
    """Master address, and every node's interface."""
    rendezvous, problems = find_rendezvous(draft.states, draft.smoke.interface)
    draft.problems += problems
    if rendezvous is None:
        return None
    endpoint = rendezvous.endpoints[draft.master]
    draft.note("master address", endpoint.address, f"{draft.master}, {endpoint.interface}: {rendezvous.why}")
    way = "as the desired state says" if draft.smoke.interface else "the one that routes to the master"
    for name, endpoint in rendezvous.endpoints.items():
        if name != draft.master:
            draft.note(f"{name}: interface", f"{endpoint.interface} {endpoint.address}", way)
    return rendezvous


def master_port(draft: PlanDraft) -> int | None:
    """Return a free port of the master."""
    requested = draft.smoke.master_port
    try:
        port, reason = free_port(draft.states[draft.master], draft.run_id, requested)
    except ValueError as error:
        path = "listening" if requested is None else "smoke.master_port"
        draft.refuse(draft.master, path, requested or "unknown", str(error))
        return None
    draft.note("master port", port, reason)
    return port


def hcas_of(draft: PlanDraft) -> dict[str, Hcas]:
    """Only for a job that spans nodes: on one node what is missing is a finding, and no reason not to train."""
    if not draft.is_distributed:
        return {name: Hcas() for name in draft.states}
    by_node = {name: find_hcas(name, draft.desired[name].rdma, state) for name, state in draft.states.items()}
    for name, hcas in by_node.items():
        draft.problems += hcas.problems
        draft.note(f"{name}: HCA list", ",".join(hcas.names) or "none", hcas.why)
        if hcas.gid_index is not None:
            draft.note(f"{name}: GID index", hcas.gid_index, "the RoCE v2 entry of each device's own address")
    return by_node


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
        hca=hcas[name].names,
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
        used |= {
            name
            for device in state.rdma
            if device.name in hca
            for name in (device.netdev, device.bdf)
            if isinstance(name, str)
        }
    return sorted(used)
