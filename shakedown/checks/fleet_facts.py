"""The facts of one node that should be equal on the nodes of a group.

`fleet.py` compares them; `fleet.toml` says which differences are advice and which amounts may differ by how much.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import ip_interface
from operator import attrgetter
from pathlib import Path
from socket import inet_aton, inet_ntoa
from typing import Any

from shakedown.common.lists import grouped
from shakedown.desired.models import DesiredState
from shakedown.state.node import Gpu, Interface, NodeState, Reading, Setting, is_unreadable


def text_of(reading: Reading[Any]) -> Reading[str]:
    """Return a reading as text."""
    if reading.__class__ is str or is_unreadable(reading):
        return reading
    return f"{reading:g}" if isinstance(reading, float) else str(reading)


def different(readings: Iterable[Reading[Any]]) -> Reading[str]:
    """Return the different values of one node's devices as one text; unreadable where one of them is."""
    values = list(readings)
    if values and values.count(values[0]) == len(values):
        return text_of(values[0])
    return _joined(values, ", ", lambda texts: sorted(set(texts)))


def of_gpus(gpus: Sequence[Gpu], readings: Sequence[Reading[Any]]) -> Reading[str]:
    """Return the different values of one node's GPUs as one text: what most have, and before it what others have, each
    with their slots. Unreadable where one of them is."""
    if readings.count(readings[0]) == len(readings):
        return text_of(readings[0])
    values = [(text_of(reading), gpu.bdf) for reading, gpu in zip(readings, gpus, strict=True)]
    (usual, count), *_ = Counter(map(str, (value for value, _ in values))).most_common()
    if count * 2 <= len(gpus) or any(is_unreadable(value) for value, _ in values):
        return different(value for value, _ in values)
    others = grouped((str(value), bdf) for value, bdf in values if str(value) != usual)
    return ", ".join([*(f"{value} ({' '.join(slots)})" for value, slots in sorted(others.items())), usual])


def in_order(readings: Iterable[Reading[Any]]) -> Reading[str]:
    """Return the values of one node's devices in their order; unreadable where one of them is."""
    return _joined(list(readings), " ", lambda texts: texts)


def _joined(readings: list[Reading[Any]], mark: str, arrange: Callable[[list[str]], Sequence[str]]) -> Reading[str]:
    texts: list[Any] = list(map(text_of, readings))
    unread = next((text for text in texts if is_unreadable(text)), None)
    return unread or mark.join(arrange(texts))


Values = dict[str, Reading[str]]  # subject -> reading of this node

NONE = "none"


@dataclass
class Facts:
    """The facts of one node: texts, which are equal or not; amounts in bytes, which are equal within a share; and
    tables, whose rows are facts of their own and are "none" where a node lacks one."""

    texts: Values = field(default_factory=dict)
    amounts: dict[str, Reading[int]] = field(default_factory=dict)
    tables: dict[str, Mapping[str, Reading[str]]] = field(default_factory=dict)


@functools.cache
def knowledge() -> Mapping[str, Any]:
    """Return the data of fleet.toml."""
    return tomllib.loads((Path(__file__).parent / "fleet.toml").read_text("utf-8"))


def is_listed(subject: str, where: str) -> bool:
    """Return whether a list of fleet.toml names a subject: "advice" (a node that differs in it may train) or "majority"
    (nodes differ in it unless more than half of them agree)."""
    return any(fnmatchcase(subject, pattern) for pattern in knowledge()[where])


def is_asked(subject: str, desired: Sequence[DesiredState]) -> bool:
    """Return whether the desired state of every node says what the subject has to be."""
    section, _, key = knowledge()["asked"].get(subject, "").partition(".")
    return bool(key and desired) and all(getattr(getattr(state, section), key) for state in desired)


def follows(subject: str) -> tuple[str, ...]:
    """Return the patterns of the findings of the same node that bring about a difference in a subject."""
    return next((tuple(names) for key, names in knowledge()["follows"].items() if fnmatchcase(subject, key)), ())


def equal_facts(desired: DesiredState | None, state: NodeState, ask: Callable[..., Facts]) -> Facts:
    """Return the facts of a node that its neighbours should share. `ask` calls a function of the two, or remembers what
    it returned."""
    facts = Facts()
    for part in (_equipment, _interfaces, _rest):
        found = ask(part, desired, state)
        facts.texts |= found.texts
        facts.amounts |= found.amounts
        facts.tables |= found.tables
    return facts


def _equipment(desired: DesiredState | None, state: NodeState) -> Facts:
    facts = Facts()
    _machine(state, facts)
    _software(state, desired, facts)
    _gpus(state, facts)
    _nics(state, facts)
    return facts


def _rest(desired: DesiredState | None, state: NodeState) -> Facts:
    facts = Facts()
    _storage(state, facts)
    facts.tables["cmdline"] = _cmdline(state, desired)
    facts.tables["setting"] = _settings(state, desired)
    facts.tables["sysctl"] = {
        name: _running(setting)
        for name, setting in state.sysctl.items()
        if desired is None
        or (name not in desired.tuning.sysctl and getattr(desired.tuning, name.rpartition(".")[2], None) is None)
    }
    return facts


def _facts(things: Sequence[Any], of: str) -> Iterator[tuple[str, Sequence[Reading[Any]]]]:
    """Yield the facts of fleet.toml with the readings of all things at their dotted path; of a path that ends with "?",
    "none" for a thing that is not there."""
    paths = knowledge()["facts"][of]
    rows = map(attrgetter(*(path.removesuffix("?") for path in paths.values())), things)
    for (name, path), readings in zip(paths.items(), zip(*rows, strict=True), strict=True):
        yield name, list(map(_or_none, readings)) if path.endswith("?") else readings


def _machine(state: NodeState, facts: Facts) -> None:
    facts.texts |= {name: text_of(reading) for name, (reading,) in _facts([state], "node")}
    total, size = state.memory.hugepages_total, state.memory.hugepage_kb
    unread = next((reading for reading in (total, size) if is_unreadable(reading)), None)
    facts.texts["hugepages"] = unread or f"{total} of {size} KiB"
    facts.amounts["memory"] = state.memory.total_bytes


def _software(state: NodeState, desired: DesiredState | None, facts: Facts) -> None:
    by_provider: dict[str, list[str]] = {}
    for library in state.verbs.providers:
        digest = "unread" if is_unreadable(library.sha256) else library.sha256[:16]
        driver = "" if library.provider in state.verbs.drivers.values() else ", not in libibverbs.d"
        by_provider.setdefault(library.provider, []).append(f"ABI {library.abi} {digest}{driver}")
    declared = desired.rdma.provider.name if desired and desired.rdma.provider else None  # fleet.py compares its file
    rows = {name: ", ".join(sorted(set(texts))) for name, texts in by_provider.items() if name != declared}
    facts.tables["provider"] = rows
    facts.tables["module"] = _modules(state)


def _modules(state: NodeState) -> Mapping[str, Reading[str]]:
    """Return the kernel's modules that a training uses: loaded, built in, or kept from loading."""
    modules, patterns = state.modules, knowledge()["modules"]["compared"]
    if is_unreadable(modules.loaded):
        return {}
    values = dict.fromkeys(modules.blacklisted, "blacklisted") | dict.fromkeys(
        [*modules.builtin, *modules.loaded], "there"
    )
    return {name: text for name, text in values.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}


def _gpus(state: NodeState, facts: Facts) -> None:
    gpus = state.gpus
    if is_unreadable(gpus):
        facts.texts["gpu_count"] = gpus
        return
    facts.texts["gpu_count"] = str(len(gpus))
    if not gpus:
        return
    facts.texts |= {name: of_gpus(gpus, readings) for name, readings in _facts(gpus, "gpu")}
    links = [gpu.link for gpu in gpus]
    facts.texts["gpu_link"] = of_gpus(gpus, [_pair(link.speed_gts, link.width) for link in links])
    facts.texts["gpu_link_max"] = of_gpus(gpus, [_pair(link.max_speed_gts, link.max_width) for link in links])
    facts.texts["gpu_numa"] = in_order(gpu.numa_node for gpu in gpus)
    facts.texts["gpu_slots"] = in_order(gpu.bdf for gpu in gpus)
    read = [gpu.vram_bytes for gpu in gpus]
    unread = next((size for size in read if is_unreadable(size)), None)
    sizes = sorted(size for size in read if not is_unreadable(size))
    facts.amounts["gpu_memory"] = unread or max(sizes, key=lambda size: abs(size - sizes[(len(sizes) - 1) // 2]))


def _nics(state: NodeState, facts: Facts) -> None:
    devices = state.rdma
    if is_unreadable(devices):
        facts.texts["nic_count"] = devices
        return
    facts.texts["nic_count"] = str(len(devices))
    if not devices:
        return
    facts.texts |= {name: different(readings) for name, readings in _facts(devices, "nic")}
    gids = [device.gids for device in devices]
    types = [held if is_unreadable(held) else different([gid.type for gid in held] or [NONE]) for held in gids]
    links = [device.link for device in devices]
    facts.texts |= {
        "nic_gids": different(types),
        "nic_link": different(_pair(link.speed_gts, link.width) if link else NONE for link in links),
        "nic_link_max": different(_pair(link.max_speed_gts, link.max_width) if link else NONE for link in links),
    }
    facts.texts["nic_numa"] = in_order(device.numa_node for device in devices)
    facts.texts["nic_slots"] = in_order(device.bdf or NONE for device in devices)
    facts.texts["nic_names"] = in_order(device.name for device in devices)


def _interfaces(_: DesiredState | None, state: NodeState) -> Facts:
    """MTU, netmask and speed: of the NICs' interfaces together, since their names follow slots; of others by name."""
    facts, interfaces = Facts(), state.interfaces
    facts.texts["interfaces"] = interfaces if is_unreadable(interfaces) else "read"
    if is_unreadable(interfaces):
        return facts
    devices = [] if is_unreadable(state.rdma) else state.rdma
    order = {device.netdev: place for place, device in enumerate(devices) if not is_unreadable(device.netdev)}
    fabric = [interface for interface in interfaces if interface.name in order]
    if fabric:
        facts.texts["nic_mtu"] = different(interface.mtu.running for interface in fabric)
        addresses = [  # of an interface and of its VLANs (`eth0.7`), whose traffic it carries
            [text for other in interfaces if f"{other.name}.".startswith(f"{port.name}.") for text in other.ipv4]
            for port in sorted(fabric, key=lambda port: order[port.name])
        ]
        facts.texts["nic_netmask"] = different(map(_netmask, addresses))
        facts.texts["nic_network"] = in_order(map(_network, addresses))
    if devices:
        facts.texts["nic_interfaces"] = f"{sum(interface.up for interface in fabric)} of {len(devices)} up"
    default = _default_route(state, facts)
    others = [interface for interface in node_interfaces(interfaces) if interface.name.partition(".")[0] not in order]
    for interface in others:
        name = interface.name  # on other nodes the same interface may have another one: what they lack is not compared
        facts.texts[f"link.{name}"] = "up" if interface.up else "down"
        facts.texts[f"mtu.{name}"] = interface.mtu.running
        facts.texts[f"speed.{name}"] = _or_none(text_of(interface.speed_mbps))
        role = "" if name == default else f".{name}"
        facts.texts |= {f"netmask{role}": _netmask(interface.ipv4), f"network{role}": _network(interface.ipv4)}
    return facts


def _default_route(state: NodeState, facts: Facts) -> str | None:
    """Note the route to everywhere else, and return its interface."""
    if is_unreadable(state.routes):
        facts.texts["default_route"] = state.routes
        return None
    route = min((r for r in state.routes if r.destination == "0.0.0.0/0"), key=lambda r: r.metric, default=None)
    facts.texts["default_route"] = route.interface if route else NONE
    if route is not None:
        facts.texts["gateway"] = route.gateway or NONE
    return route.interface if route else None


def node_interfaces(interfaces: Iterable[Interface]) -> Iterator[Interface]:
    """Yield the interfaces that lead to other nodes."""
    return (interface for interface in interfaces if not _is_local(interface.name))


@functools.lru_cache
def _is_local(interface: str) -> bool:
    return any(fnmatchcase(interface, pattern) for pattern in knowledge()["interfaces"]["local"])


def _netmask(addresses: Iterable[str]) -> str:
    return ", ".join(sorted({"/" + text.rpartition("/")[2] for text in addresses})) or NONE


def _network(addresses: Iterable[str]) -> str:
    return ", ".join(sorted({_network_of(text) for text in addresses})) or NONE


def _network_of(text: str) -> str:
    """Return the network of an interface's address: 10.0.0.0/24 of 10.0.0.1/24."""
    host, _, bits = text.partition("/")
    if not bits.isdecimal():  # a netmask in another form
        return str(ip_interface(text).network)
    number = int.from_bytes(inet_aton(host), "big") >> (32 - int(bits)) << (32 - int(bits))
    return f"{inet_ntoa(number.to_bytes(4, 'big'))}/{int(bits)}"


def _storage(state: NodeState, facts: Facts) -> None:
    if not is_unreadable(state.disks):
        own = knowledge()["mounts"]["own"]
        held = [disk for disk in state.disks if disk.network or disk.device.startswith("/dev/")]
        shown = [
            disk for disk in held if disk.mount != "/" and not any(fnmatchcase(disk.mount, pattern) for pattern in own)
        ]
        facts.tables["mount"] = {disk.mount: disk.fstype for disk in shown}
        facts.texts |= {f"source.{disk.mount}": disk.device for disk in shown if disk.network}
        root = next((disk for disk in state.disks if disk.mount == "/"), None)
        if root is not None:
            facts.amounts["disk_size"] = root.total_bytes
            facts.texts["disk_fstype"] = root.fstype
    nvme = state.nvme
    if is_unreadable(nvme):
        facts.texts["nvme_count"] = _or_none(nvme)
        return
    facts.texts["nvme_count"] = str(len(nvme))
    if nvme:
        facts.texts["nvme_model"] = different(drive.model for drive in nvme)
        facts.texts["nvme_firmware"] = different(drive.firmware for drive in nvme)


def _cmdline(state: NodeState, desired: DesiredState | None) -> Mapping[str, Reading[str]]:
    """Return the kernel's parameters by name, without those that name a node's own parts and without those that the
    desired state asks for."""
    if is_unreadable(state.cmdline.running):
        return {}
    declared = {word.partition("=")[0] for word in (desired.tuning.cmdline if desired else [])}
    declared |= {word.replace("{cpu}", vendor) for word in declared for vendor in ("amd", "intel")}
    own = knowledge()["cmdline"]["own"]
    values: dict[str, list[str]] = {}
    for word in state.cmdline.running:
        name, _, value = word.partition("=")
        if name not in declared and not any(fnmatchcase(name, pattern) for pattern in own):
            values.setdefault(name, []).append(value or "set")
    return {name: " ".join(sorted(set(given))) for name, given in values.items()}


def _settings(state: NodeState, desired: DesiredState | None) -> Mapping[str, Reading[str]]:
    """Return the running values of the host settings that the desired state does not ask for."""
    values = {name: _running(setting) for name, setting in state.settings.items()}
    values |= {"numa_balancing": _running(state.numa.balancing), "thp": _running(state.memory.thp)}
    governors = state.cpu.governors
    values["cpu_governor"] = _or_none(governors) if is_unreadable(governors) else ", ".join(sorted(governors))
    for name, reading in (("c2", state.cpu.c2_enabled), ("pcie_acs", state.acs.enabled)):
        values[name] = _or_none(reading) if is_unreadable(reading) else "on" if reading else "off"
    values |= {"memlock": _running(state.limits.memlock), "nofile": _running(state.limits.nofile)}
    tuning = desired.tuning if desired else None
    return {name: value for name, value in values.items() if getattr(tuning, name, None) is None}


def _running(setting: Setting) -> Reading[str]:
    return _or_none(setting.running)


def _or_none(reading: Reading[Any]) -> Reading[Any]:
    """Return "none" for a thing that is not there, which is knowledge about the node."""
    return NONE if reading in (None, "") or (is_unreadable(reading) and reading.unreadable == "missing") else reading


def _pair(speed: Reading[float], width: Reading[int]) -> Reading[str]:
    if is_unreadable(speed):
        return speed
    return width if is_unreadable(width) else f"{speed:g} GT/s x{width}"
