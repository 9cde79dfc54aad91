"""A network driver's own statistics, by the ioctl that `ethtool -S` uses: no program and no root is needed."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from typing import Any

from .rdma import ERROR_NAME
from .tree import Unreadable, explain

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37  # linux/ethtool.h
_SET_STATS = 1
_NAME_LENGTH = 32
# "[3]: rx_discards", "rx3_dropped", "rx-3.errors", "rx_queue_3_drops": one of many queues.
_QUEUE = re.compile(r"^\[\d+\]:?\s*|(?<=rx)[-_]?(?:queue[-_])?\d+|(?<=tx)[-_]?(?:queue[-_])?\d+|(?<=^ch)\d+")


def parse_names(block: bytes) -> list[str]:
    """Return the names of ETHTOOL_GSTRINGS: 32 bytes for one, ended by NUL."""
    rows = (block[at : at + _NAME_LENGTH] for at in range(0, len(block), _NAME_LENGTH))
    return [row.split(b"\0", 1)[0].decode("ascii", "replace").strip() for row in rows]


def error_counters(names: list[str], values: list[int]) -> dict[str, int]:
    """Return the error counters among a driver's statistics, those of its queues added up under one name with a `*`."""
    found: dict[str, int] = {}
    errors, queue = ERROR_NAME, _QUEUE
    for name, value in zip(names, values):
        if errors.search(name):
            key = queue.sub("*", name, count=1)
            found[key] = found.get(key, 0) + value
    return found


def _call(handle: Any, interface: str, command: array.array[int]) -> None:
    request = struct.pack("16sP16x", interface.encode()[:15], command.buffer_info()[0])
    fcntl.ioctl(handle, _SIOCETHTOOL, request)


def statistics(interface: str) -> dict[str, int]:
    """Return the error counters of one interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        size = array.array("B", struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET_STATS, 0))
        _call(handle, interface, size)
        _, _, present, count = struct.unpack("=IIQI", size.tobytes())
        if not present or not count:
            raise Unreadable("missing", "{}: the driver has no statistics".format(interface))
        names = array.array("B", struct.pack("=III", _GSTRINGS, _SET_STATS, count) + bytes(count * _NAME_LENGTH))
        _call(handle, interface, names)
        values = array.array("B", struct.pack("=II", _GSTATS, count) + bytes(count * 8))
        _call(handle, interface, values)
    numbers = struct.unpack("={}Q".format(count), values.tobytes()[8:])
    return error_counters(parse_names(names.tobytes()[12:]), list(numbers))


def counters(interface: str) -> dict[str, Any]:
    """Return them by the keys of state.py, "ethtool/<interface>/<counter>"; none where the driver has none."""
    try:
        return {"ethtool/{}/{}".format(interface, name): value for name, value in statistics(interface).items()}
    except Exception as error:
        failure = explain(error)
        return {} if failure.reason == "missing" else {"ethtool/{}/*".format(interface): failure.as_part()}
