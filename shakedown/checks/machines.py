"""One machine under several names: machine-id, DMI serial, boot id, host key and the serials of devices compared.

Two names are one machine where its kernel's boot id and a second identity agree. An identity that agrees alone was
cloned with an image, or is a container's or a resumed virtual machine's: that is advice.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import translate
from ipaddress import ip_address, ip_network
from itertools import islice
from socket import AF_INET, AF_INET6, inet_pton

from shakedown.checks.compare import comparison
from shakedown.checks.fleet_facts import knowledge, node_interfaces
from shakedown.common.lists import grouped
from shakedown.hosts import named
from shakedown.state.findings import Finding, Remedy, Verdict
from shakedown.state.node import NodeState, Reading, is_unreadable

BOOT, MACHINE, SERIAL, KEY, DEVICES = "boot id", "machine-id", "board serial", "host key", "device serials"
Identities = dict[str, frozenset[str]]
Repeated = tuple[list[str], set[str]]  # the names of one machine, and the identities that they share

_LONGEST = 1000  # characters of evidence
_MOST_OTHERS = _LONGEST // 6  # nodes that have room in them
_MOST_COMPARED = 16  # machines that share an identity: a serial of "123456789" on every board needs no more
_CLONED = {
    BOOT: "these nodes share one kernel: containers of one machine, or virtual machines resumed from one snapshot",
    MACHINE: "the image was cloned with its machine-id: empty /etc/machine-id, and run systemd-machine-id-setup",
    SERIAL: "compare the boards: firmware after a repair may hold the serial of another board",
    KEY: "the image was cloned with its host key, so that each of these nodes can pass for another: "
    "remove /etc/ssh/ssh_host_*, run ssh-keygen -A, and correct known_hosts",
}


def identities(state: NodeState) -> Identities:
    """Return what identifies the machine behind a node's name, as far as it was read and is no placeholder."""
    system = state.system
    texts: dict[str, Reading[str]] = {
        BOOT: system.boot_id,
        MACHINE: system.machine_id,
        SERIAL: system.board_serial,
        KEY: system.host_key,
    }
    result = {name: frozenset([text]) for name, text in texts.items() if not is_unreadable(text) and is_own(text)}
    gpus = [] if is_unreadable(state.gpus) else [gpu.serial for gpu in state.gpus]
    nics = [] if is_unreadable(state.rdma) else [device.guid for device in state.rdma if device.bdf]
    serials = frozenset(text for text in (*gpus, *nics) if not is_unreadable(text) and is_own(text))
    return result | ({DEVICES: serials} if serials else {})


def is_own(text: str) -> bool:
    """Return whether a text can tell one machine from another: one character repeated cannot."""
    plain = text.strip().lower()
    return len({*plain} - {*"-.: "}) > 1 and not _placeholders().match(plain)


@functools.cache
def _placeholders() -> re.Pattern[str]:
    return re.compile("|".join(map(translate, knowledge()["machines"]["placeholders"])))


@functools.cache
def _local_networks() -> list[tuple[int, int, int]]:
    """Return the networks that may be everywhere the same: version of IP, address, mask."""
    networks = [ip_network(text) for text in knowledge()["interfaces"]["addresses"]]
    return [(network.version, int(network.network_address), int(network.netmask)) for network in networks]


def _own_address(text: str) -> str | None:
    """Return the address of an interface in its usual form; None of one that may be everywhere the same. Ten addresses
    of each node: `ipaddress` would take a twentieth of a check's time."""
    host = text.partition("/")[0].partition("%")[0]
    version, family = (6, AF_INET6) if ":" in host else (4, AF_INET)
    try:
        packed = inet_pton(family, host)
    except (OSError, ValueError):
        return None
    number = int.from_bytes(packed, "big")
    if any(version == own and number & mask == network for own, network, mask in _local_networks()):
        return None
    return str(ip_address(packed)) if version == 6 else host


def own_values(state: NodeState) -> Iterator[tuple[str, str, str]]:
    """Yield what no other node may have: its kind in fleet.toml, the value, and the part of the node that has it."""
    for interface in [] if is_unreadable(state.interfaces) else node_interfaces(state.interfaces):
        for text in (*interface.ipv4, *interface.ipv6):
            if address := _own_address(text):
                yield "address", address, interface.name
        if interface.bdf:  # what is no PCI device has the address of another, or one that its driver has everywhere
            yield "mac", interface.mac, interface.name
    yield "hostname", state.system.hostname, "hostname"
    if not is_unreadable(state.rdma):
        yield from (("guid", nic.guid, nic.name) for nic in state.rdma if nic.bdf and not is_unreadable(nic.guid))
    gpus = [] if is_unreadable(state.gpus) else [(gpu.serial, f"GPU {gpu.bdf}") for gpu in state.gpus]
    drives = [] if is_unreadable(state.nvme) else [(drive.serial, drive.name) for drive in state.nvme]
    yield from (("serial", serial, part) for serial, part in (*gpus, *drives) if not is_unreadable(serial))


def shared(states: Mapping[str, NodeState]) -> Iterator[Finding]:
    """Yield a finding for every node that has what another node has and must not, whatever their groups. A node that
    claims what is of several others is the one that fails: they meet no node but that one, and its word alone is no
    failure of theirs."""
    single: dict[tuple[str, str], tuple[str, str]] = {}  # nearly every value has one holder alone
    holders: dict[tuple[str, str], dict[str, str]] = {}
    for node, state in states.items():
        for kind, value, part in own_values(state):
            key = kind, value
            if key in holders:
                holders[key][node] = part
            elif (holder := single.get(key)) and holder[0] != node:
                holders[key] = {holder[0]: holder[1], node: part}
            else:
                single[key] = node, part
    several = (key for key in single if key in holders and (key[0] == "address" or is_own(key[1])))
    repeated = {key: holders[key] for key in several}
    met: dict[str, set[str]] = defaultdict(set)
    for parts in repeated.values():
        for node in parts:  # whether it meets one other node or several is all that counts
            met[node].update(other for other in islice(parts, 3) if other != node)
    for (kind, value), parts in repeated.items():
        entry = knowledge()["unique"][kind]
        for node in parts:
            first = islice(((other, part) for other, part in parts.items() if other != node), _MOST_OTHERS)
            others = ", ".join(f"{other} ({part})" for other, part in first)
            claimed = len(met[node]) == 1 and all(len(met[other]) > 1 for other in met[node])
            verdict = Verdict.WARN if claimed else Verdict(entry["verdict"])
            wanted = f"{'an' if kind == 'address' else 'a'} {kind} of its own"
            evidence = f"{parts[node]}; the same {kind}: {others}"[:_LONGEST]
            found = comparison(verdict, wanted, value, evidence, Remedy(text=entry["remedy"]))
            yield found.finding(f"fleet.{kind}.{value}", node)


def agreeing(one: Identities, other: Identities) -> tuple[set[str], set[str]]:
    """Return the identities that agree and those that differ, of the ones that both nodes have."""
    both = one.keys() & other.keys()
    agree = {name for name in both if one[name] & other[name]}
    return agree, both - agree


def is_one_machine(one: Identities, other: Identities) -> bool:
    """Return whether two names lead to one machine."""
    agree, differ = agreeing(one, other)
    if len(agree) < 2 or DEVICES in differ:
        return False
    if {MACHINE, KEY} <= differ and DEVICES not in agree:
        return False  # two systems on one kernel: containers, or virtual machines resumed from one snapshot
    if BOOT in agree or BOOT not in differ:
        return True
    return SERIAL in agree and differ == {BOOT}  # it was booted between the two readings


def repeated(known: Mapping[str, Identities]) -> dict[str, Repeated]:
    """Return, for each node that leads to the machine of another, the names of that machine in the inventory's order
    and the identities that they share."""
    machine_of: dict[str, str] = {}
    shared: dict[str, set[str]] = defaultdict(set)
    for nodes in _alike(known).values():
        firsts: list[str] = []
        for node in nodes:
            mine = machine_of.get(node, node)
            same = next((first for first in firsts if first == mine or is_one_machine(known[node], known[first])), None)
            if same is None:
                firsts += [mine] if len(firsts) < _MOST_COMPARED else []
            elif same != mine:
                machine_of[node] = same
                shared[same] |= agreeing(known[node], known[same])[0]
    members = grouped((machine_of.get(node, node), node) for node in known)
    return {node: (names, shared[first]) for first, names in members.items() if len(names) > 1 for node in names}


def _alike(known: Mapping[str, Identities]) -> dict[tuple[str, str], list[str]]:
    """Return the nodes that share an identity, by the identity, those of one boot first."""
    names = (BOOT, DEVICES, SERIAL, KEY, MACHINE)
    alike = grouped(((name, min(mine[name])), node) for name in names for node, mine in known.items() if mine.get(name))
    return {key: nodes for key, nodes in alike.items() if len(nodes) > 1}


def findings(known: Mapping[str, Identities], several: Mapping[str, Repeated]) -> Iterator[Finding]:
    """Yield a failure for each name of a machine that has several, and advice for identities that were cloned."""
    for node, (names, shared) in several.items():
        actual, evidence = (
            f"one machine under {len(names)} names: {named(names)}",
            f"the same {', '.join(sorted(shared))}",
        )
        remedy = Remedy(text=f"keep one of the {len(names)} names in the inventory: they lead to one machine")
        yield comparison(Verdict.FAIL, "a machine of its own", actual, evidence, remedy).finding("fleet.machine", node)
    for (name, value), nodes in _alike(known).items():
        machines = {several[node][0][0] if node in several else node for node in nodes}
        if name not in _CLONED or len(machines) < 2:
            continue
        wanted, remedy = f"a {name} of its own", Remedy(text=_CLONED[name])
        for node in nodes:
            found = comparison(Verdict.WARN, wanted, f"the same on {named(nodes)}", value[:100], remedy)
            yield found.finding(f"fleet.{name.replace(' ', '_').replace('-', '_')}", node)
