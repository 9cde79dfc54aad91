"""Network interfaces, routes, and the TCP ports that are in use."""

from __future__ import annotations

import socket
from typing import Any, List, NamedTuple

import psutil

from . import ethtool, mtu, pci
from .tree import Part, Tree, Unreadable, attempt
from .udev import devices

_UP = 0x1


class Link(NamedTuple):
    """`speed`: Mb/s, 0 where it is not known."""

    mac: str
    mtu: int
    up: bool
    speed: int
    ipv4: List[str]
    ipv6: List[str]


def prefix_length(netmask: str) -> int:
    """Return 24 for "255.255.255.0", 32 for "ffff:ffff::"."""
    base, parts = (16, netmask.split(":")) if ":" in netmask else (10, netmask.split("."))
    return sum(bin(int(part, base)).count("1") for part in parts if part)


def parse_routes(lines: list[str]) -> list[Part]:
    """Parse /proc/net/route: the main table, addresses as hexadecimal words in the machine's byte order."""

    def address(word: str) -> str:
        number = int(word, 16)
        return ".".join(str(number >> shift & 0xFF) for shift in (0, 8, 16, 24))

    routes = []
    for line in lines[1:]:
        fields = line.split()
        if int(fields[3], 16) & _UP:
            length = bin(int(fields[7], 16)).count("1")
            gateway = address(fields[2])
            routes.append(
                {
                    "destination": "{}/{}".format(address(fields[1]), length),
                    "gateway": None if gateway == "0.0.0.0" else gateway,
                    "interface": fields[0],
                    "metric": int(fields[6]),
                }
            )
    return routes


def read_routes(tree: Tree) -> list[Part]:
    return parse_routes(tree.lines("/proc/net/route"))


def parse_listening(lines: list[str]) -> list[int]:
    """Return local ports of the sockets in state LISTEN (0A) of /proc/net/tcp or tcp6."""
    rows = (line.split() for line in lines[1:])
    return [int(row[1].rsplit(":", 1)[1], 16) for row in rows if len(row) > 3 and row[3] == "0A"]


def read_listening(tree: Tree) -> list[int]:
    """Return the ports. psutil.net_connections would look for the owner of each socket among the open files of all
    processes: 240 ms with 3,000 of them. A kernel without IPv6 has no tcp6."""
    files = [path for path in ("/proc/net/tcp", "/proc/net/tcp6") if tree.exists(path)]
    return sorted({port for path in files or ["/proc/net/tcp"] for port in parse_listening(tree.lines(path))})


def _links(tree: Tree) -> dict[str, Link]:
    """Return what the kernel has of each interface of this network namespace; no file holds the addresses."""
    if not tree.live:
        return {name: Link(**stats) for name, stats in tree.recorded("interfaces").items()}
    found = {
        name: Link("", stats.mtu, stats.isup, stats.speed, [], []) for name, stats in psutil.net_if_stats().items()
    }
    for label, addresses in psutil.net_if_addrs().items():
        name = label.partition(":")[0]  # an address may have a label of its own: eth0:1
        if name not in found:
            continue  # it has gone meanwhile
        link = found[name]
        for family, address, netmask, *_ in addresses:
            if family == psutil.AF_LINK:
                found[name] = link._replace(mac=address)
            elif family in (socket.AF_INET, socket.AF_INET6) and netmask:
                written = "{}/{}".format(address.split("%", 1)[0], prefix_length(netmask))
                (link.ipv4 if family == socket.AF_INET else link.ipv6).append(written)
    return found


def _one(name: str, link: Link, parent: str, mtus: mtu.Persisted) -> Part:
    unknown = Unreadable("missing", "{}: its link is down, or its driver reports no speed".format(name)).as_part()
    return {
        "name": name,
        "mac": link.mac,
        "mtu": {"running": str(link.mtu), "persisted": attempt(mtus, name)},
        "up": link.up,
        "speed_mbps": link.speed or unknown,
        "ipv4": link.ipv4,
        "ipv6": link.ipv6,
        "bdf": parent if pci.is_bdf(parent) else None,
    }


def read(tree: Tree, unit: Part, counted: bool = True) -> tuple[list[Part], dict[str, Any]]:
    """Return interfaces by name, and the error counters of the PCI ones, if these are `counted`."""
    parents = {device.name: device.parent for device in devices(tree, "net")}
    mtus = mtu.Persisted(tree, unit)
    parts = [_one(name, link, parents.get(name, ""), mtus) for name, link in sorted(_links(tree).items())]
    counters: dict[str, Any] = {}
    for part in parts:
        if counted and part["bdf"]:
            counters.update(ethtool.counters(part["name"]) if tree.live else _recorded_counters(tree, part["name"]))
    return parts, counters


def _recorded_counters(tree: Tree, name: str) -> dict[str, Any]:
    values = tree.recorded("ethtool").get(name, {})
    return {"ethtool/{}/{}".format(name, key): value for key, value in values.items()}
