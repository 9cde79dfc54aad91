"""Where the ranks meet: master address, each node's interface, and a port that is free."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from shakedown.desired.problems import Problem
from shakedown.state import NodeState, is_unreadable

# Below the range that Linux hands to outgoing connections (32768 to 60999), so that a free port stays free.
PORTS = range(20000, 30000)


@dataclass(frozen=True)
class Place:
    """A node's end of the job's network."""

    interface: str
    address: str


@dataclass(frozen=True)
class Meeting:
    """Where all ranks meet, and why there."""

    places: dict[str, Place]
    why: str


@dataclass(frozen=True)
class _Path:
    """The way from a node to an address: the connected network, or a gateway."""

    interface: str
    source: str
    direct: bool


def meet(states: Mapping[str, NodeState], interface: str | None = None) -> tuple[Meeting | None, list[Problem]]:
    """Find the address of the first node that all others route to, each by its own interface.

    `states` are in rank order. `interface` is the site's choice, taken as it is on every node. Directly connected
    networks are preferred to gateways, then the one with the master's default route.
    """
    if len(states) == 1 and interface is None:
        name = next(iter(states))
        return Meeting({name: Place("lo", "127.0.0.1")}, "one node: everything stays on the loopback interface"), []
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
    default = _path(states[master], "192.0.2.1")  # an address of nobody: the way is the default route

    def rank(address: str) -> tuple[bool, bool]:
        indirect = any(not path.direct for path in reached[address].values())
        return indirect, default is None or candidates[address] != default.interface

    best = min(complete, key=rank)
    places = {master: Place(candidates[best], best)}
    places |= {name: Place(path.interface, path.source) for name, path in reached[best].items()}
    way = "through a gateway" if rank(best)[0] else "directly"
    return Meeting({name: places[name] for name in states}, f"every other node reaches it {way}"), []


def free_port(state: NodeState, run_id: str, asked: int | None) -> tuple[int, str]:
    """A TCP port that nothing listens on, the same for the same run. ValueError with the reason when there is none."""
    if is_unreadable(state.listening):
        raise ValueError(f"a list of the ports in use, which is {state.listening}")
    taken = set(state.listening)
    if asked is not None:
        if asked in taken:
            raise ValueError("a port that nothing listens on")
        return asked, "as the desired state says; nothing listens there"
    start = zlib.crc32(run_id.encode()) % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        if port not in taken:
            return port, f"nothing listens there; chosen from {PORTS[0]} to {PORTS[-1]} by the run's id"
    raise ValueError(f"a free port from {PORTS[0]} to {PORTS[-1]}")


def _by_name(states: Mapping[str, NodeState], interface: str) -> tuple[Meeting | None, list[Problem]]:
    places, problems = {}, []
    for name, state in states.items():
        addresses = [str(own.ip) for found, own in _addresses(state) if found == interface]
        if addresses:
            places[name] = Place(interface, addresses[0])
        else:
            expected = f"an interface that is up and has an IPv4 address ({_shown(state)})"
            problems.append(Problem(name, "smoke.interface", interface, expected))
    return (None, problems) if problems else (Meeting(places, "as the desired state says"), [])


def _candidates(states: Mapping[str, NodeState], master: str) -> dict[str, str]:
    """The master's addresses -> interface, without those that other nodes have too (docker0 has one address
    everywhere, and every node would find itself there)."""
    elsewhere = {str(own.ip) for name, state in states.items() if name != master for _, own in _addresses(state)}
    return {str(own.ip): interface for interface, own in _addresses(states[master]) if str(own.ip) not in elsewhere}


def _addresses(state: NodeState) -> list[tuple[str, IPv4Interface]]:
    if is_unreadable(state.interfaces):
        return []
    found = [(i.name, IPv4Interface(address)) for i in state.interfaces if i.up for address in i.ipv4]
    return [(name, own) for name, own in found if not (own.ip.is_loopback or own.ip.is_link_local)]


def _path(state: NodeState, target: str) -> _Path | None:
    """The kernel's choice: the longest prefix, then the lowest metric. An interface's own network counts as a route,
    since the kernel adds it with the address."""
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
