"""Data Center Bridging as the kernel reports it over netlink: what `dcb pfc show` and `dcb app show` print, without
that program and without root. The numbers are of linux/dcbnl.h, linux/rtnetlink.h and linux/netlink.h."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Iterator

from .tree import Unreadable

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


def request(interface: str) -> bytes:
    """Return the message that asks an interface's driver for everything of IEEE 802.1Q."""
    name = interface.encode() + b"\0"
    body = struct.pack("=BBH", 0, _IEEE_GET, 0) + struct.pack("=HH", 4 + len(name), _IFNAME) + name
    body += bytes(-len(body) % 4)
    return struct.pack("=IHHII", 16 + len(body), _GETDCB, _REQUEST, 1, 0) + body


def parse(answer: bytes) -> dict[str, Any]:
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


def ask(interface: str) -> dict[str, Any]:
    """Ask the kernel about one interface (`parse`). Raises Unreadable where its driver knows nothing of DCB."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as link:
        link.settimeout(_SECONDS)
        link.bind((0, 0))
        link.send(request(interface))
        answer = link.recv(_LONGEST)
    try:
        return parse(answer)
    except OSError as error:
        error.filename = "DCB of " + interface
        raise
    except struct.error as error:
        raise Unreadable("malformed", "DCB of {}: {}".format(interface, error)) from None
