"""RDMA devices: port state, GID table, counters (/sys/class/infiniband, port 1)."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Optional

from . import lossless, pci
from .tree import Part, Tree, Unreadable, attempt, attempt_or
from .udev import Device, devices

CLASS = "/sys/class/infiniband"
_EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
# Names that the drivers of the three NIC families give to faults (tests/data/machines/counters.toml). Not among them:
# what a queue pair flushed when it ended, since the cause has a counter of its own; packets out of sequence, which
# adaptive routing makes; congestion notifications.
ERROR_NAME = re.compile(
    r"^(?!.*flush).*(?:err|retrans|retx|drop|discard|nak|inval|overflow|oflow|overrun|out_?of_?buf|outof_atomic|reset|fail"
    r"|timeout|excd|exceed|missin|mismatch|no_perm|unsup|unaligned|icrc|link_down|dup_re|duplicate)",
    re.IGNORECASE,
)


def parse_state(text: str) -> str:
    """Return "ACTIVE" for "4: ACTIVE"."""
    return text.split(":", 1)[1].strip()


def parse_rate(text: str) -> float:
    """Return 400.0 for "400 Gb/sec (4X NDR)"."""
    return float(text.split()[0])


def mapped_ipv4(gid: str) -> Optional[str]:
    """Return the IPv4 address of an IPv4-mapped GID (::ffff:a.b.c.d), else None."""
    words = gid.split(":")
    if len(words) != 8 or words[:6] != ["0000"] * 5 + ["ffff"]:
        return None
    return ".".join(str(int(word[at : at + 2], 16)) for word in words[6:] for at in (0, 2))


def gids(tree: Tree, port: str) -> list[Part]:
    """Return the filled entries of a port's table of up to 1024. Only those are asked for type and interface: asking an
    empty entry for its type is an error."""
    folder = port + "/gids"
    names = tree.names(folder, in_order=False)
    if not names:
        raise Unreadable("missing", folder)
    found = []
    for index in sorted(map(int, names)):
        gid = tree.text("{}/{}".format(folder, index))
        if gid not in ("", _EMPTY_GID):
            found.append(
                {
                    "index": index,
                    "gid": gid,
                    "type": attempt(tree.text, "{}/gid_attrs/types/{}".format(port, index)),
                    "netdev": attempt(tree.text, "{}/gid_attrs/ndevs/{}".format(port, index)),
                    "ipv4": mapped_ipv4(gid),
                }
            )
    return found


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
    name, hardware = device.name, device.function
    folder = CLASS + "/" + name
    port = folder + "/ports/1"
    function = hardware or folder + "/device"
    bdf = os.path.basename(function)
    vendor = attempt(tree.text, function + "/vendor") if hardware else None
    filled = attempt(gids, tree, port)
    netdev = attempt(_netdev, tree, function, filled)
    return {
        "name": name,
        "bdf": bdf if hardware else None,
        "physical_function": tree.link_name(function + "/physfn") if hardware else None,
        "ports": max(1, len(tree.names_if_permitted(folder + "/ports"))),
        "guid": attempt(_guid, tree, folder),
        "vendor": vendor[2:] if isinstance(vendor, str) else None,
        "numa_node": attempt(pci.numa_node, tree, function),
        "link": pci.link(tree, function) if hardware else None,
        "driver": tree.link_name(function + "/driver") if hardware else None,
        "firmware": attempt(tree.text, folder + "/fw_ver"),
        "state": attempt(lambda: parse_state(tree.text(port + "/state"))),
        "phys_state": attempt(lambda: parse_state(tree.text(port + "/phys_state"))),
        "rate_gbps": attempt(lambda: parse_rate(tree.text(port + "/rate"))),
        "link_layer": attempt(tree.text, port + "/link_layer"),
        "netdev": netdev,
        "gids": filled,
        "max_read_request": attempt(pci.read_max_read_request, tree, bdf) if hardware else _no_pci(),
        "lossless": lossless.read(tree, name, bdf, netdev) if hardware else _no_pci(),
    }


def _guid(tree: Tree, folder: str) -> str:
    guid = tree.text(folder + "/node_guid")
    if not guid.strip("0:"):
        raise Unreadable("missing", folder + "/node_guid is zero")
    return guid


def _no_pci() -> Part:
    return Unreadable("missing", "not a PCI device").as_part()


def _counters(tree: Tree, name: str) -> dict[str, Any]:
    """Return error counters of a port. A driver may list one that it does not have: the kernel then refuses the file
    (EINVAL: bnxt_re, prometheus/procfs#675), or it says N/A (i40iw, prometheus/node_exporter#966)."""
    found: dict[str, Any] = {}
    for folder in ("counters", "hw_counters"):
        path = "{}/{}/ports/1/{}".format(CLASS, name, folder)
        for counter in tree.names(path):
            if ERROR_NAME.search(counter) and not attempt_or(False, _is_absent, tree, path + "/" + counter):
                found["rdma/{}/{}".format(name, counter)] = attempt(tree.number, path + "/" + counter)
    return found


def _is_absent(tree: Tree, path: str) -> bool:
    try:
        return tree.text(path).startswith("N/A")
    except OSError as error:
        return error.errno in (errno.EINVAL, errno.EOPNOTSUPP)


def read(tree: Tree, counted: bool = True) -> tuple[list[Part], dict[str, Any]]:
    """Return devices in PCI order, software ones last, and their error counters, if these are `counted`. No device is
    an empty list: whether there should be some is not the probe's business."""
    parts = [_one(tree, device) for device in devices(tree, "infiniband")]
    counters: dict[str, Any] = {}
    for part in parts if counted else []:
        counters.update(_counters(tree, part["name"]))
    return sorted(parts, key=lambda part: (part["bdf"] is None, part["bdf"] or "", part["name"])), counters
