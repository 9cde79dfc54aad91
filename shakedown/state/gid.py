"""The GID index of an RDMA device, derived from what its table holds.

Published settings name 1 and 3 for the same NIC: the place of an entry depends on the order in which addresses were
added, so only the table itself can say. Entries of fe80 addresses are never taken: they hang gloo, and are not routed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shakedown.state.node import Interface, RdmaDevice, is_unreadable

ROCE_V2 = "RoCE v2"


@dataclass(frozen=True)
class NoGid:
    """Why a device has no usable entry. `unread`: an entry that could not be read may have been the one."""

    reason: str
    unread: bool = False

    def __str__(self) -> str:
        return self.reason


def gid_index(device: RdmaDevice, addresses: Sequence[str]) -> int | NoGid:
    """Return the index of the RoCE v2 entry for the first of `addresses` that has one.

    `addresses` are IPv4, with or without a prefix length, the preferred first (see `addresses_of`). Of several entries
    for one address the lowest index is taken. Without any, a fabric of IPv6 alone has its first routed address
    (MI300X with bnxt_re, fd93::/16: uccl-project/uccl#803, 2026-03-09). An InfiniBand port has one GID, at 0.
    """
    if device.link_layer == "InfiniBand":
        return 0
    if is_unreadable(device.gids):
        return NoGid(f"{device.name}: the GID table is {device.gids}", unread=True)
    wanted = [address.partition("/")[0] for address in addresses]
    own = [entry for entry in device.gids if (entry.ipv4 in wanted if wanted else _is_routed_ipv6(entry.gid))]
    usable = [entry for entry in own if entry.type == ROCE_V2]
    if usable:
        return min(usable, key=lambda entry: (wanted.index(str(entry.ipv4)) if wanted else 0, entry.index)).index
    unread = [entry.index for entry in own if is_unreadable(entry.type)]
    if unread:
        return NoGid(f"{device.name}: the type of GID {unread[0]} is unreadable", unread=True)
    if not wanted and not own:
        return NoGid(f"{device.name}: its interface {device.netdev} has no address that is routed")
    addresses = " or ".join(wanted) or "an IPv6 address"
    held = ", ".join(f"{entry.index}: {entry.ipv4 or entry.gid[:4]} {entry.type}" for entry in device.gids) or "nothing"
    return NoGid(f"{device.name}: no {ROCE_V2} GID for {addresses}; the table holds {held}")


def addresses_of(device: RdmaDevice, interfaces: Iterable[Interface]) -> list[str]:
    """Return the IPv4 addresses of a device: those of its own interface, then of the VLANs in its table."""
    by_name: Mapping[str, Interface] = {interface.name: interface for interface in interfaces}
    names = [device.netdev]
    if not is_unreadable(device.gids):
        names += [entry.netdev for entry in device.gids]
    known = [name for name in dict.fromkeys(names) if isinstance(name, str) and name in by_name]
    return [address for name in known for address in by_name[name].ipv4]


def _is_routed_ipv6(gid: str) -> bool:
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return False
    return not (address.ipv4_mapped or address.is_link_local)
