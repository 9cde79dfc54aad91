"""Network interfaces and routes."""

from __future__ import annotations

import sys

from . import ethtool, mtu, pci
from .tree import Part, Tree, Unreadable, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    Addresses = Dict[str, Dict[str, List[str]]]

CLASS = "/sys/class/net"
_UP = 0x1
_AF_INET, _AF_INET6 = 2, 10  # linux/socket.h


def prefix_length(netmask: str) -> int:
    """ "255.255.255.0" -> 24, "ffff:ffff::" -> 32."""
    base, parts = (16, netmask.split(":")) if ":" in netmask else (10, netmask.split("."))
    return sum(bin(int(part, base)).count("1") for part in parts if part)


def parse_routes(lines: list[str]) -> list[Part]:
    """/proc/net/route: the main table, addresses as hexadecimal words in the machine's byte order."""

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


def _addresses(tree: Tree) -> Addresses:
    """Addresses with prefix length by interface. The kernel has no file for them, so psutil asks it."""
    if not tree.live:
        return dict(tree.recorded("addresses"))
    found: Addresses = {}
    for name, family, address, netmask, *_ in _psutil().net_if_addrs():
        kind = {_AF_INET: "ipv4", _AF_INET6: "ipv6"}.get(family)
        if kind and netmask:
            own = found.setdefault(name, {"ipv4": [], "ipv6": []})
            own[kind].append("{}/{}".format(address.split("%", 1)[0], prefix_length(netmask)))
    return found


def _psutil() -> Any:
    """psutil's extension module without the package around it, which takes 20 ms of CPU to import, a third of what
    the probe costs. The bundle carries one version of it (pyproject.toml), so its functions are known."""
    inside = [folder + "/psutil" for folder in sys.path]
    sys.path[:0] = inside
    try:
        import _psutil_linux
    finally:
        del sys.path[: len(inside)]
    return _psutil_linux


def _speed(tree: Tree, folder: str) -> int:
    """Mb/s; -1, or an error, where the link is down."""
    try:
        speed = tree.number(folder + "/speed")
    except OSError as error:
        raise Unreadable("missing", "{}/speed: {}".format(folder, error.strerror)) from None
    if speed < 0:
        raise Unreadable("missing", folder + "/speed: -1")
    return speed


def _is_up(tree: Tree, folder: str) -> bool:
    """Administratively up and with a carrier; virtual drivers answer "unknown" for the latter."""
    state = tree.text(folder + "/operstate")
    return state == "up" or (state == "unknown" and bool(tree.number(folder + "/flags") & _UP))


def _one(tree: Tree, name: str, addresses: Addresses, mtus: mtu.Persisted) -> Part:
    folder = CLASS + "/" + name
    bdf = tree.link_name(folder + "/device")
    own = addresses.get(name, {})
    return {
        "name": name,
        "mac": tree.text(folder + "/address"),
        "mtu": {"running": attempt(tree.text, folder + "/mtu"), "persisted": attempt(mtus, name)},
        "up": _is_up(tree, folder),
        "speed_mbps": attempt(_speed, tree, folder),
        "ipv4": own.get("ipv4", []),
        "ipv6": own.get("ipv6", []),
        "bdf": bdf if pci.is_bdf(bdf) else None,
    }


def may_wait(tree: Tree) -> bool:
    """Whether there is a PCI device among them: its driver answers for it, and may never do."""
    return any(pci.is_bdf(tree.link_name("{}/{}/device".format(CLASS, name))) for name in tree.names(CLASS))


def read(tree: Tree, unit: Part, counted: bool = True) -> tuple[list[Part], dict[str, Any]]:
    """Interfaces by name, and the error counters of the PCI ones, if these are `counted`. One that vanishes meanwhile
    is left out."""
    addresses = _addresses(tree)
    mtus = mtu.Persisted(tree, unit)
    names = [name for name in tree.names(CLASS) if tree.exists("{}/{}/mtu".format(CLASS, name))]
    found = [attempt(_one, tree, name, addresses, mtus) for name in names]
    parts = [part for part in found if "name" in part]
    counters: dict[str, Any] = {}
    for part in parts:
        if counted and part["bdf"]:
            counters.update(ethtool.counters(part["name"]) if tree.live else _recorded_counters(tree, part["name"]))
    return parts, counters


def _recorded_counters(tree: Tree, name: str) -> dict[str, Any]:
    values = tree.recorded("ethtool").get(name, {})
    return {"ethtool/{}/{}".format(name, key): value for key, value in values.items()}
