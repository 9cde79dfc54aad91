"""Network interfaces with the MTU that they come up with, their drivers' error counters and neighbours by LLDP; routes,
and the TCP ports that are in use. The counters come from the ioctl of `ethtool -S`: no program and no root is
needed. The neighbours come from the node's lldpd, whose json0 has one form for none, one and many."""

from __future__ import annotations

import array
import fcntl
import json
import re
import socket
import struct
from typing import Any, List, Optional

import psutil

from . import pci
from .boot import setting_at_boot
from .children import run_tool
from .known import KNOWN
from .rdma import ERROR_NAME
from .tree import Part, Tree, Unreadable, attempt, attempt_or, explain, is_unreadable
from .udev import devices

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37  # linux/ethtool.h
_SET_STATS = 1
_NAME_LENGTH = 32
# "[3]: rx_discards", "rx3_dropped", "rx-3.errors", "rx_queue_3_drops": one of many queues.
_QUEUE = re.compile(r"^\[\d+\]:?\s*|(?<=rx)[-_]?(?:queue[-_])?\d+|(?<=tx)[-_]?(?:queue[-_])?\d+|(?<=^ch)\d+")


def error_counters(names: list[str], values: list[int]) -> dict[str, int]:
    """Return the error counters among a driver's statistics, those of its queues added up under one name with a `*`."""
    found: dict[str, int] = {}
    for name, value in zip(names, values):
        if ERROR_NAME.search(name):
            key = _QUEUE.sub("*", name, count=1)
            found[key] = found.get(key, 0) + value
    return found


def _ethtool(handle: Any, interface: str, command: bytes) -> bytes:
    """Return what the driver puts in the place of a command."""
    block = array.array("B", command)
    fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], block.buffer_info()[0]))
    return block.tobytes()


def statistics(interface: str) -> dict[str, int]:
    """Return the error counters of one interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        size = _ethtool(handle, interface, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET_STATS, 0))
        _, _, present, count = struct.unpack("=IIQI", size)
        if not present or not count:
            raise Unreadable("missing", "{}: the driver has no statistics".format(interface))
        room = bytes(count * _NAME_LENGTH)
        names = _ethtool(handle, interface, struct.pack("=III", _GSTRINGS, _SET_STATS, count) + room)
        values = _ethtool(handle, interface, struct.pack("=II", _GSTATS, count) + bytes(count * 8))
    rows = struct.iter_unpack("={}s".format(_NAME_LENGTH), names[12:])  # each ended by NUL
    words = [row.partition(b"\0")[0].decode("ascii", "replace").strip() for (row,) in rows]
    return error_counters(words, list(struct.unpack("={}Q".format(count), values[8:])))


_UP = 0x1


def read_routes(tree: Tree) -> list[Part]:
    """Parse /proc/net/route: the main table, addresses as hexadecimal words in the machine's byte order."""

    def address(word: str) -> str:
        return socket.inet_ntoa(struct.pack("=I", int(word, 16)))

    return [
        {
            "destination": "{}/{}".format(address(fields[1]), bin(int(fields[7], 16)).count("1")),
            "gateway": address(fields[2]) if int(fields[2], 16) else None,
            "interface": fields[0],
            "metric": int(fields[6]),
        }
        for fields in (line.split() for line in tree.lines("/proc/net/route")[1:])
        if int(fields[3], 16) & _UP
    ]


def read_listening(tree: Tree) -> list[int]:
    """Return the local ports of sockets in state LISTEN (0A). psutil would look for each socket's owner: 240 ms with
    3,000 processes. tcp6 may be absent."""
    files = [path for path in ("/proc/net/tcp", "/proc/net/tcp6") if tree.exists(path)] or ["/proc/net/tcp"]
    rows = [line.split() for path in files for line in tree.lines(path)[1:]]
    return sorted({int(row[1].rsplit(":", 1)[1], 16) for row in rows if len(row) > 3 and row[3] == "0A"})


def parse_ini(lines: list[str]) -> dict[str, str]:
    """Map `section.key` to the value of an INI-like file, in lower case; a repeated key keeps its last value."""
    found: dict[str, str] = {}
    section = ""
    for line in lines:
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].lower()
        elif "=" in line and not line.startswith(("#", ";")):
            key, value = line.split("=", 1)
            found["{}.{}".format(section, key.strip().lower())] = value.strip().strip("\"'")
    return found


def parse_ifupdown(lines: list[str]) -> dict[str, str]:
    """Map interfaces to the MTU of interfaces(5): `mtu N` inside an `iface` paragraph."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == "iface":
            name = words[1]
        elif len(words) > 1 and words[0] == "mtu" and name:
            found[name] = words[1]
    return found


class PersistedMtu:
    """Looks up the persisted MTU by interface name; the files are read once. None: nothing is written down."""

    def __init__(self, tree: Tree, unit: Part) -> None:
        self.unit = unit
        self.known: dict[str, str] = {}
        self.closed: Optional[str] = None
        for row in KNOWN["interfaces"]["mtu"]:
            self._take(tree, *row)
        folder = "/etc/network/interfaces.d"
        for path in ["/etc/network/interfaces"] + [folder + "/" + name for name in tree.names_if_permitted(folder)]:
            for name, value in parse_ifupdown(attempt_or([], tree.lines, path)).items():
                self.known.setdefault(name, value)

    def _take(self, tree: Tree, folder: str, name_key: str, *mtu_keys: str) -> None:
        files = attempt(tree.names, folder)
        if is_unreadable(files):
            self.closed = folder
            return
        for file in files:
            settings = attempt(lambda path: parse_ini(tree.lines(path)), folder + "/" + file)
            if is_unreadable(settings):
                if settings["unreadable"] == "not permitted":
                    self.closed = folder + "/" + file
                continue
            value = next((settings[key] for key in mtu_keys if key in settings), "")
            for name in settings.get(name_key, "").split():
                if value.isdigit():
                    self.known.setdefault(name, value)

    def __call__(self, name: str) -> Optional[str]:
        value = setting_at_boot(self.unit, "mtu." + name) or self.known.get(name)
        if value is None and self.closed:
            raise Unreadable("not permitted", self.closed)
        return value


def _links() -> dict[str, Part]:
    """Return what the kernel has of each interface of this network namespace; no file holds the addresses. `speed`:
    Mb/s, 0 where it is not known."""
    found: dict[str, Part] = {
        name: {"mac": "", "mtu": stats.mtu, "up": stats.isup, "speed": stats.speed, "ipv4": [], "ipv6": []}
        for name, stats in psutil.net_if_stats().items()
    }
    for label, addresses in psutil.net_if_addrs().items():
        name = label.partition(":")[0]  # an address may have a label of its own: eth0:1
        if name not in found:
            continue  # it has gone meanwhile
        for family, address, netmask, *_ in addresses:
            if family == psutil.AF_LINK:
                found[name]["mac"] = address
            elif family in (socket.AF_INET, socket.AF_INET6) and netmask:
                kind = "ipv4" if family == socket.AF_INET else "ipv6"
                length = bin(int.from_bytes(socket.inet_pton(family, netmask), "big")).count("1")
                found[name][kind].append("{}/{}".format(address.split("%", 1)[0], length))
    return found


def _one(name: str, link: Part, parent: str, mtus: PersistedMtu) -> Part:
    unknown = Unreadable("missing", "{}: its link is down, or its driver reports no speed".format(name)).as_part()
    part = {"name": name, **{key: link[key] for key in ("mac", "up", "ipv4", "ipv6")}}
    part["mtu"] = {"running": str(link["mtu"]), "persisted": attempt(mtus, name)}
    part["speed_mbps"] = link["speed"] or unknown
    part["bdf"] = parent if pci.is_bdf(parent) else None
    return part


def read(tree: Tree, unit: Part, counted: bool = True) -> tuple[list[Part], dict[str, Any]]:
    """Return interfaces by name, and the error counters of the PCI ones, if these are `counted`."""
    parents = {device.name: device.parent for device in devices(tree, "net")}
    mtus = PersistedMtu(tree, unit)
    links = tree.ask("interfaces", _links)
    parts = [_one(name, link, parents.get(name, ""), mtus) for name, link in sorted(links.items())]
    counters: dict[str, Any] = {}
    for part in parts:
        if counted and part["bdf"]:
            counters.update(tree.ask("ethtool " + part["name"], _counters, part["name"]))
    return parts, counters


def _counters(interface: str) -> dict[str, Any]:
    """Return the error counters, "ethtool/<interface>/<counter>"; none where the driver has none."""
    prefix = "ethtool/{}/".format(interface)
    try:
        return {prefix + name: value for name, value in statistics(interface).items()}
    except Exception as error:
        failure = explain(error)
        return {} if failure.reason == "missing" else {prefix + "*": failure.as_part()}


_SECONDS = 5.0
_MOST, _LONGEST = 256, 120  # neighbours, characters of a text


def parse_neighbours(text: str) -> List[Part]:
    """Return the neighbours in what `lldpcli -f json0 show neighbors` prints."""

    def first(interface: Any, kind: str, key: str) -> str:
        part = interface.get(kind, [{}])[0]
        return str(part.get(key, [{}])[0].get("value", ""))[:_LONGEST]

    return [
        {
            "interface": str(interface["name"])[:_LONGEST],
            "system": first(interface, "chassis", "name") or first(interface, "chassis", "id"),
            "chassis": first(interface, "chassis", "id"),
            "port": first(interface, "port", "id"),
            "port_description": first(interface, "port", "descr"),
        }
        for part in json.loads(text)["lldp"]
        for interface in part.get("interface", [])
    ][:_MOST]


def read_neighbours(tree: Tree) -> List[Part]:
    return parse_neighbours(run_tool([tree.tool("lldpcli"), "-f", "json0", "show", "neighbors"], _SECONDS))
