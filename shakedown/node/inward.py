"""Say whether a redirect leads from outside into a network that outsiders do not reach."""

from __future__ import annotations

import ipaddress
import socket
from typing import List, Optional, Union
from urllib.parse import urlsplit

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

# Where clouds give credentials to any process, besides 169.254.169.254: AWS over IPv6, Alibaba, Oracle, Azure.
CREDENTIALS = {
    ipaddress.ip_address(text) for text in ("fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
}
# IPv6 whose last 32 bits are an address of IPv4: NAT64 (RFC 6052, 8215), compatible (RFC 4291), translated (RFC 2765).
_HOLD_IPV4 = [ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")]


def refusal(here: str, there: str) -> Optional[str]:
    """Return why a redirect from one URL to another is not followed, or None. The same host may redirect to itself. A
    host of the site may redirect within the site, but no host to this node itself, to a link-local address, or to where
    a cloud gives credentials to any process that asks."""
    before, after = urlsplit(here).hostname, urlsplit(there).hostname
    if not before or not after or before == after:
        return None
    sources, targets = addresses(before), addresses(after)
    for address in targets:
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return "{} is {}, a link-local address".format(after, address)
        if address in CREDENTIALS:
            return "{} is {}, an address that gives credentials".format(after, address)
        if address.is_loopback and not (sources and all(source.is_loopback for source in sources)):
            return "{} is {}, this node itself".format(after, address)
        if _is_inner(address) and not (sources and all(map(_is_inner, sources))):
            return "{} is {}, an internal address of the site".format(after, address)
    return None


def addresses(host: str) -> List[Address]:
    """Return the addresses of a host; none where its name has none."""
    try:
        found = {str(row[4][0]).partition("%")[0] for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return []
    return [_plain(ipaddress.ip_address(text)) for text in found]


def _plain(address: Address) -> Address:
    """Return the address of IPv4 that one of IPv6 leads to, where it does."""
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    teredo = address.teredo
    inner = address.ipv4_mapped or address.sixtofour or (teredo and teredo[1])
    if inner is None and any(address in network for network in _HOLD_IPV4):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def _is_inner(address: Address) -> bool:
    """Return whether outsiders do not reach an address: private, shared by a provider's customers, reserved."""
    return not address.is_global or getattr(address, "is_site_local", False)
