"""Devices as udev enumerates them: by pyudev, which needs no udevd, only libudev and /sys.

Where there is no libudev (a slim container), and in a tree of a test, which libudev cannot be pointed at, the same is
read from the files of /sys: the kernel's `uevent` has the properties that do not come from udev's database. Whoever
asks cannot tell the difference, so that a tree tests what a node runs.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Dict, List, NamedTuple, Optional

from .tree import Tree


class Device(NamedTuple):
    """`path` is its folder below /sys/devices; `properties` are those of `udevadm info`."""

    name: str
    path: str
    properties: Dict[str, str]

    @property
    def parent(self) -> str:
        """The name of the device that it belongs to: of .../0000:05:00.0/net/eth0 the PCI function."""
        return self.path.rsplit("/", 3)[1]


def devices(tree: Tree, subsystem: str, name: str = "*", **attributes: str) -> List[Device]:
    """Return the devices of a subsystem by name, only those that fit the pattern and have these attributes in /sys."""
    context = _context() if tree.live else None
    found = (
        _in_files(tree, subsystem, name, attributes)
        if context is None
        else _by_udev(context, subsystem, name, attributes)
    )
    return sorted(found)


@lru_cache(maxsize=1)
def _context() -> Optional[Any]:
    # What a container has at /sys, or a node of the lab, need not be the kernel's own file system.
    os.environ.setdefault("SYSTEMD_DEVICE_VERIFY_SYSFS", "0")
    try:
        import pyudev

        return pyudev.Context()
    except (ImportError, OSError):
        return None


def _by_udev(context: Any, subsystem: str, name: str, attributes: Dict[str, str]) -> List[Device]:
    enumerator = context.list_devices(subsystem=subsystem).match_sys_name(name)
    for attribute, value in attributes.items():
        enumerator.match_attribute(attribute, value)
    return [Device(device.sys_name, device.sys_path, dict(device.properties)) for device in enumerator]


def _in_files(tree: Tree, subsystem: str, pattern: str, attributes: Dict[str, str]) -> List[Device]:
    bus, kind = "/sys/bus/{}/devices".format(subsystem), "/sys/class/" + subsystem
    folder = bus if tree.exists(bus) else kind
    found = []
    for name in tree.matching(folder, pattern):
        path = os.path.realpath(tree.path("{}/{}".format(folder, name)))[
            len(os.path.realpath(tree.root or "/").rstrip("/")) :
        ]
        try:
            lines = tree.lines(path + "/uevent") if tree.exists(path + "/uevent") else []
            if all(tree.text("{}/{}".format(path, key)) == value for key, value in attributes.items()):
                found.append(Device(name, path, dict(line.split("=", 1) for line in lines if "=" in line)))
        except OSError:
            continue  # it has gone meanwhile, or has no such attribute
    return found
