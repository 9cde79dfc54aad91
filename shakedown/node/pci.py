"""PCI functions in sysfs: identity, link, NUMA node, and what only their configuration space holds."""

from __future__ import annotations

import os
import re
import struct
from typing import Callable, Optional

from .tree import Part, Tree, Unreadable, attempt

# Reads 32 bits of configuration space at an offset; None where the kernel gives no more to this user.
Config = Callable[[int], Optional[int]]

DEVICES = "/sys/bus/pci/devices"
DEVICE_CONTROL = "CAP_EXP+8.w"  # a register as setpci(8) names it
READ_REQUEST = 0x7000  # the bits of device control that hold log2(bytes / 128)
ACS_CONTROLS = 0x7F  # source validation ... direct translated P2P (PCIe base specification, 7.7.8.3)


def is_bdf(name: Optional[str]) -> bool:
    return bool(name and re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", name))


def link(tree: Tree, folder: str) -> Part:
    """Return the PciLink of the function in a sysfs folder, speeds in GT/s."""

    def speed(name: str) -> float:
        return float(tree.text(folder + "/" + name).split()[0])  # of "32.0 GT/s PCIe"; "Unknown" is malformed

    return {
        "speed_gts": attempt(speed, "current_link_speed"),
        "width": attempt(tree.number, folder + "/current_link_width"),
        "max_speed_gts": attempt(speed, "max_link_speed"),
        "max_width": attempt(tree.number, folder + "/max_link_width"),
    }


def numa_node(tree: Tree, folder: str) -> int:
    """Return the function's NUMA node; the kernel has -1 for an unknown one."""
    node = tree.number(folder + "/numa_node")
    if node < 0:
        raise Unreadable("missing", folder + "/numa_node: -1")
    return node


# Number of a capability, the bits of a list's entry that hold it, the bit from which on the next entry's offset stands,
# and the least offset: of PCI's own list, and of PCI Express' extended one, which begins there.
_CAPABILITIES = {"CAP_EXP": (0x10, 0xFF, 8, 0x40), "ECAP_ACS": (0x0D, 0xFFFF, 20, 0x100)}


def offset_of(config: Config, register: str) -> Optional[int]:
    """Return where a register lies; None for a function without the capability."""
    name, _, rest = register.partition("+")
    wanted, mask, link, least = _CAPABILITIES[name]
    pointer = least if name.startswith("ECAP_") else _dword(config, 0x34) & 0xFC
    for _ in range(480):  # as many as fit: a broken list may run in circles
        header = _dword(config, pointer) if pointer >= least else 0xFFFFFFFF
        if header == 0xFFFFFFFF:
            return None
        if header & mask == wanted:
            return pointer + int(rest.partition(".")[0], 16)
        pointer = header >> link & mask & ~3
    return None


def _dword(config: Config, offset: int) -> int:
    value = config(offset)
    if value is None:
        raise Unreadable("not permitted", "configuration space at 0x{:x}".format(offset))
    return value


def word(config: Config, register: str) -> Optional[int]:
    """Return the 16 bits of a register; None for a function without the capability."""
    offset = offset_of(config, register)
    return None if offset is None else _dword(config, offset & ~3) >> 8 * (offset & 3) & 0xFFFF


def max_read_request(config: Config) -> int:
    """Return the bytes of a read request."""
    control = word(config, DEVICE_CONTROL)
    if control is None:
        raise Unreadable("missing", "no PCI Express capability")
    return int(128 << ((control & READ_REQUEST) >> 12))


class ConfigFile:
    """Configuration space by pread of single words: each is a bus transaction, so only what is needed is read."""

    def __init__(self, tree: Tree, bdf: str, flags: int = os.O_RDONLY) -> None:
        self.handle = os.open(tree.path("{}/{}/config".format(DEVICES, bdf)), flags | os.O_CLOEXEC)
        self.size = os.fstat(self.handle).st_size

    def __call__(self, offset: int) -> Optional[int]:
        word = os.pread(self.handle, 4, offset)
        return int(struct.unpack("<I", word)[0]) if len(word) == 4 else None

    def __enter__(self) -> ConfigFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)


def read_max_read_request(tree: Tree, bdf: str) -> int:
    def read() -> int:
        with ConfigFile(tree, bdf) as config:
            return max_read_request(config)

    return int(tree.ask("read request " + bdf, read))


def registers(tree: Tree, register: str) -> dict[str, int]:
    """Return a register of every function that has it, by BDF. Only functions with extended configuration space are
    asked for a capability there. Raises Unreadable where this user may not read it."""

    def read() -> dict[str, int]:
        found = {}
        for bdf in tree.names(DEVICES):
            with ConfigFile(tree, bdf) as config:
                value = word(config, register) if config.size > 256 or not register.startswith("ECAP_") else None
            if value is not None:
                found[bdf] = value
        return found

    return dict(tree.ask("registers " + register, read))


def put(tree: Tree, bdf: str, register: str, value: int, mask: int) -> None:
    """Set the bits of `mask` in a register, where they differ."""
    with ConfigFile(tree, bdf, os.O_RDWR) as config:
        offset, now = offset_of(config, register), word(config, register)
        if offset is not None and now is not None and now & mask != value & mask:
            os.pwrite(config.handle, struct.pack("<H", now & ~mask | value & mask), offset)
