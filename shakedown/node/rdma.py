"""RDMA devices: port state, GID table, counters (/sys/class/infiniband, port 1), and what lossless RoCE needs.

Data Center Bridging comes from the kernel over netlink, as `dcb pfc show` and `dcb app show` print it, without root;
the numbers are of linux/dcbnl.h, linux/rtnetlink.h and linux/netlink.h. The driver's files have its congestion control.
Nothing is changed: where a reading would have to change something first it is missing.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
from typing import Any, Callable, Iterator, List, Optional

from . import pci
from .known import KNOWN
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable, pick
from .udev import Device, devices

_NETLINK_ROUTE, _REQUEST, _ERROR = 0, 1, 2
_GETDCB, _IEEE_GET = 78, 21
_IFNAME, _IEEE = 1, 13  # enum dcbnl_attrs
_PFC, _APP_TABLE, _TRUST_TABLE = 2, 3, 11  # enum ieee_attrs
_APP = 1  # the kind of an entry of the application table: dcb_app
_KIND = 0x3FFF  # the two highest bits of an attribute's kind are flags
_DSCP = 5  # of dcb_app's selectors: the protocol is a DSCP
_SELECTORS = {1: "ethertype", 2: "stream", 3: "dgram", 4: "any", _DSCP: "dscp", 255: "pcp"}
_PRIORITIES = 8
_PFC_SIZE = 136  # struct ieee_pfc: 3 octets, one of padding, delay, padding up to 8, then 2 x 8 counters of 64 bits
_LONGEST = 65536  # octets of an answer; 64 DSCPs and all ports in use take 2 KiB
_SECONDS = 2.0


def _attributes(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(block):
        length, kind = struct.unpack_from("=HH", block, at)
        if length < 4 or at + length > len(block):
            raise ValueError("an attribute of {} octets where {} are left".format(length, len(block) - at))
        yield kind & _KIND, block[at + 4 : at + length]
        at += (length + 3) & ~3


def dcb_request(interface: str) -> bytes:
    """Return the message that asks an interface's driver for everything of IEEE 802.1Q."""
    name = interface.encode() + b"\0"
    body = struct.pack("=BBH", 0, _IEEE_GET, 0) + struct.pack("=HH", 4 + len(name), _IFNAME) + name
    body += bytes(-len(body) % 4)
    return struct.pack("=IHHII", 16 + len(body), _GETDCB, _REQUEST, 1, 0) + body


def parse_dcb(answer: bytes) -> dict[str, Any]:
    """Return {"pfc": priorities with priority flow control, or None where the driver reports none; "pauses": {"rx":
    [8], "tx": [8]} frames since the interface is up; "dscp": {"26": 3}; "trust": ["dscp"], or None where the kernel or
    the driver does not report it (it does since Linux 6.3, for few drivers)}. Raises OSError with the kernel's errno,
    ValueError."""
    length, kind = struct.unpack_from("=IH", answer)
    if kind == _ERROR:
        number = -struct.unpack_from("=i", answer, 16)[0]
        raise OSError(number, os.strerror(number))
    if kind != _GETDCB or length > len(answer):
        raise ValueError("the kernel answers something else than DCB: kind {}, {} octets".format(kind, length))
    found: dict[str, Any] = {"pfc": None, "pauses": None, "dscp": {}, "trust": None}
    for outer, nested in _attributes(answer[20:length]):
        for inner, value in _attributes(nested) if outer == _IEEE else ():
            if inner == _PFC:
                found.update(_flow_control(value))
            elif inner == _APP_TABLE:
                found["dscp"] = _dscps(value)
            elif inner == _TRUST_TABLE:
                found["trust"] = [_SELECTORS.get(entry[0], str(entry[0])) for _, entry in _attributes(value) if entry]
    return found


def _flow_control(value: bytes) -> dict[str, Any]:
    if len(value) < _PFC_SIZE:
        raise ValueError("PFC of {} octets".format(len(value)))
    enabled = value[1]
    counts = struct.unpack_from("=16Q", value, 8)
    return {
        "pfc": [priority for priority in range(_PRIORITIES) if enabled >> priority & 1],
        # requests: pauses that were sent; indications: pauses that were received.
        "pauses": {"tx": list(counts[:_PRIORITIES]), "rx": list(counts[_PRIORITIES:])},
    }


def _dscps(table: bytes) -> dict[str, int]:
    """Map each DSCP to its priority; of a DSCP that stands twice the kernel takes the highest."""
    found: dict[int, int] = {}
    for kind, entry in _attributes(table):
        if kind != _APP or len(entry) < 4:
            continue
        selector, priority, protocol = struct.unpack_from("=BBH", entry)
        if selector == _DSCP:
            found[protocol] = max(priority, found.get(protocol, 0))
    return {str(dscp): found[dscp] for dscp in sorted(found)}


def ask_dcb(interface: str) -> dict[str, Any]:
    """Ask the kernel about one interface (`parse`). Raises Unreadable where its driver knows nothing of DCB."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as link:
        link.settimeout(_SECONDS)
        link.bind((0, 0))
        link.send(dcb_request(interface))
        answer = link.recv(_LONGEST)
    try:
        return parse_dcb(answer)
    except OSError as error:
        error.filename = "DCB of " + interface
        raise
    except struct.error as error:
        raise Unreadable("malformed", "DCB of {}: {}".format(interface, error)) from None


PARAMETERS: List[str] = KNOWN["rdma"]["congestion_parameters"]


def _congestion(tree: Tree, device: str, bdf: str) -> dict[str, Any]:
    """Read the parameters that say what is done, not those that tune how fast: each file asks the firmware."""
    folders = [form.format(device=device, bdf=bdf) for form in KNOWN["rdma"]["congestion_folders"]]
    reason = Unreadable("missing", "no folder of congestion control: " + ", ".join(folders))
    for folder in folders:
        try:
            names = [name for name in tree.names(folder) if name in PARAMETERS]
            if names:
                return {name: attempt(tree.number, folder + "/" + name) for name in names}
        except PermissionError as error:
            reason = Unreadable("not permitted", str(error.filename))
    raise reason


def read_lossless(tree: Tree, device: str, bdf: str, interface: Any) -> Part:
    """Read a port. `interface`: the device's network interface, or the unreadable part that has the reason."""
    found = attempt(lambda: tree.ask("dcb " + pick(interface), ask_dcb, interface))
    settings = {name: found if is_unreadable(found) else found[name] for name in ("pfc", "dscp", "trust")}
    if settings["pfc"] is None:
        settings["pfc"] = Unreadable("missing", "DCB of {}: its driver reports no PFC".format(interface)).as_part()
    return dict(settings, congestion=attempt(_congestion, tree, device, bdf))


CLASS = "/sys/class/infiniband"
_NO_PCI = Unreadable("missing", "not a PCI device").as_part()
_EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
# Names that the drivers of the three NIC families give to faults (tests/data/machines/counters.toml). Not among them:
# what a queue pair flushed when it ended, since the cause has a counter of its own; packets out of sequence, which
# adaptive routing makes; congestion notifications.
ERROR_NAME = re.compile(KNOWN["rdma"]["error_name"], re.IGNORECASE)


def mapped_ipv4(gid: str) -> Optional[str]:
    """Return the IPv4 address of an IPv4-mapped GID (::ffff:a.b.c.d), else None."""
    octets = bytes.fromhex(gid.replace(":", ""))
    return socket.inet_ntoa(octets[12:]) if len(octets) == 16 and octets[:12] == bytes(10) + b"\xff\xff" else None


def gids(tree: Tree, port: str) -> list[Part]:
    """Return the filled entries of a port's table of up to 1024: to ask an empty one for its type is an error."""
    folder = port + "/gids"
    names = tree.names(folder)
    if not names:
        raise Unreadable("missing", folder)
    entries = ((index, tree.text("{}/{}".format(folder, index))) for index in sorted(map(int, names)))
    return [
        {
            "index": index,
            "gid": gid,
            "type": attempt(tree.text, "{}/gid_attrs/types/{}".format(port, index)),
            "netdev": attempt(tree.text, "{}/gid_attrs/ndevs/{}".format(port, index)),
            "ipv4": mapped_ipv4(gid),
        }
        for index, gid in entries
        if gid not in ("", _EMPTY_GID)
    ]


def _netdev(tree: Tree, function: str, filled: Any) -> str:
    """Return the interface of the first filled GID, else the only one of the same PCI function."""
    for gid in filled if isinstance(filled, list) else []:
        if isinstance(gid["netdev"], str):
            return str(gid["netdev"])
    names = tree.names(function + "/net")
    if len(names) != 1:
        raise Unreadable("missing", function + "/net")
    return names[0]


def _one(tree: Tree, device: Device) -> Part:

    def word(file: str) -> str:
        return tree.text(port + "/" + file).split(":", 1)[1].strip()  # of "4: ACTIVE"

    name, hardware = device.name, device.function
    folder = CLASS + "/" + name
    port = folder + "/ports/1"
    function = hardware or folder + "/device"
    bdf = os.path.basename(function)
    filled = attempt(gids, tree, port)
    netdev = attempt(_netdev, tree, function, filled)
    return {
        "name": name,
        "bdf": bdf if hardware else None,
        "physical_function": tree.link_name(function + "/physfn") if hardware else None,
        "ports": max(1, len(tree.names_if_permitted(folder + "/ports"))),
        "guid": attempt(_guid, tree, folder),
        "vendor": attempt_or(None, lambda: tree.text(function + "/vendor")[2:]) if hardware else None,
        "numa_node": attempt(pci.numa_node, tree, function),
        "link": pci.link(tree, function) if hardware else None,
        "driver": tree.link_name(function + "/driver") if hardware else None,
        "firmware": attempt(tree.text, folder + "/fw_ver"),
        "state": attempt(word, "state"),
        "phys_state": attempt(word, "phys_state"),
        "rate_gbps": attempt(lambda: float(tree.text(port + "/rate").split()[0])),  # of "400 Gb/sec (4X NDR)"
        "link_layer": attempt(tree.text, port + "/link_layer"),
        "netdev": netdev,
        "gids": filled,
        "max_read_request": attempt(pci.read_max_read_request, tree, bdf) if hardware else _NO_PCI,
        "lossless": read_lossless(tree, name, bdf, netdev) if hardware else _NO_PCI,
    }


def _guid(tree: Tree, folder: str) -> str:
    guid = tree.text(folder + "/node_guid")
    if not guid.strip("0:"):
        raise Unreadable("missing", folder + "/node_guid is zero")
    return guid


def error_files(names: Callable[[str], list[str]], name: str) -> dict[str, str]:
    """Return the files of a port's error counters, by "rdma/<device>/<counter>". `names`: what lists a folder."""
    folders = ["{}/{}/ports/1/{}".format(CLASS, name, kind) for kind in ("counters", "hw_counters")]
    found = [(counter, folder) for folder in folders for counter in names(folder)]
    return {"rdma/" + name + "/" + counter: at + "/" + counter for counter, at in found if ERROR_NAME.search(counter)}


def _counters(tree: Tree, name: str) -> dict[str, Any]:
    """Return error counters of a port. A driver may list one that it does not have: the kernel then refuses the file
    (EINVAL: bnxt_re, prometheus/procfs#675), or it says N/A (i40iw, prometheus/node_exporter#966)."""
    files = error_files(tree.names, name).items()
    return {key: attempt(tree.number, file) for key, file in files if not attempt_or(False, _is_absent, tree, file)}


def _is_absent(tree: Tree, path: str) -> bool:
    try:
        return tree.text(path).startswith("N/A")
    except OSError as error:
        return error.errno in (errno.EINVAL, errno.EOPNOTSUPP)


def read(tree: Tree, counted: bool = True) -> tuple[list[Part], dict[str, Any]]:
    """Return devices in PCI order, software ones last, and their error counters, if these are `counted`."""
    parts = [_one(tree, device) for device in devices(tree, "infiniband")]
    counters: dict[str, Any] = {}
    for part in parts if counted else []:
        counters.update(_counters(tree, part["name"]))
    return sorted(parts, key=lambda part: (part["bdf"] is None, part["bdf"] or "", part["name"])), counters
