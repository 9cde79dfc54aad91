"""Devices as udev enumerates them: by pyudev, which needs no udevd, only libudev and /sys. In a tree of a test, and
where there is no libudev (a slim container), the files of /sys give the same devices."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from .pci import is_bdf
from .tree import Tree, Unreadable, attempt, pairs


class Device(NamedTuple):
    """`path` is its folder below /sys/devices; `properties` are those of `udevadm info`."""

    name: str
    path: str
    properties: Dict[str, str]

    @property
    def parent(self) -> str:
        """The name of the device that it belongs to: of .../0000:05:00.0/net/eth0 the PCI function."""
        return self.path.rsplit("/", 3)[1]

    @property
    def function(self) -> Optional[str]:
        """The folder of the PCI function that it belongs to, None for a device in software. A driver may put a device
        of the auxiliary bus between them (.../0000:e5:00.0/ionic.rdma.0/infiniband/rdma0)."""
        names = self.path.split("/")
        own = [at for at, name in enumerate(names[:-1], 1) if is_bdf(name)]
        return "/".join(names[: own[-1]]) if own else None


def devices(tree: Tree, subsystem: str, name: str = "*", **attributes: str) -> List[Device]:
    """Return the devices of a subsystem by name, only those that fit the pattern and have these attributes in /sys."""
    subject = "udev {} {} {}".format(subsystem, name, sorted(attributes.items()))
    return [Device(*row) for row in tree.ask(subject, _devices, tree, subsystem, name, attributes)]


def _devices(tree: Tree, subsystem: str, name: str, attributes: Dict[str, str]) -> List[Device]:
    context = _context() if tree.live else None
    if context is None:
        return sorted(_from_files(tree, subsystem, name, attributes))
    enumerator = context.list_devices(subsystem=subsystem).match_sys_name(name)
    for attribute, value in attributes.items():
        enumerator.match_attribute(attribute, value)
    return sorted(Device(found.sys_name, found.sys_path, dict(found.properties)) for found in enumerator)


def monitor(subsystems: Sequence[str], buffer: int) -> Any:
    """Return pyudev's monitor of the kernel's events of these subsystems, with room for a burst of `buffer` bytes.
    Raise Unreadable where there is no libudev, OSError where the kernel refuses."""
    context = _context()
    if context is None:
        raise Unreadable("missing", "libudev")
    found = sys.modules["pyudev"].Monitor.from_netlink(context, source="kernel")  # which _context imports
    for subsystem in subsystems:
        found.filter_by(subsystem)
    attempt(found.set_receive_buffer_size, buffer)  # only root may
    found.start()
    return found


@lru_cache(maxsize=1)
def _context() -> Optional[Any]:
    # What a container has at /sys, or a node of the lab, need not be the kernel's own file system.
    os.environ.setdefault("SYSTEMD_DEVICE_VERIFY_SYSFS", "0")
    try:
        import pyudev  # not at the top: a node without libudev has no context, and an import that fails

        return pyudev.Context()
    except (ImportError, OSError):
        return None


def _from_files(tree: Tree, subsystem: str, pattern: str, attributes: Dict[str, str]) -> Iterator[Device]:
    folder = tree.first("/sys/bus/{}/devices".format(subsystem)) or "/sys/class/" + subsystem
    for name in tree.matching(folder, pattern):
        path = tree.followed("{}/{}".format(folder, name))
        try:
            properties = pairs(tree.lines(path + "/uevent")) if tree.exists(path + "/uevent") else {}
            if all(tree.text("{}/{}".format(path, key)) == value for key, value in attributes.items()):
                yield Device(name, path, properties)
        except OSError:
            continue  # it has gone meanwhile, or has no such attribute
