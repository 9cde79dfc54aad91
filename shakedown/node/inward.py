"""Say whether a redirect leads from outside into a network that outsiders do not reach."""

from __future__ import annotations

import ipaddress
import socket
from typing import List, Optional, Union
from urllib.parse import urlsplit

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


def why_not(here: str, there: str) -> Optional[str]:
    """Return why a redirect from one URL to another is not followed, or None.

    The same host may redirect to itself. A host of the site may redirect within the site, but nobody to this node
    itself or to a link-local address: 169.254.169.254 gives a cloud's credentials to whoever asks.
    """
    before, after = urlsplit(here).hostname, urlsplit(there).hostname
    if not before or not after or before == after:
        return None
    sources, targets = addresses(before), addresses(after)
    for address in targets:
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return "{} is {}, a link-local address".format(after, address)
        if address.is_loopback and not (sources and all(source.is_loopback for source in sources)):
            return "{} is {}, this node itself".format(after, address)
        if address.is_private and not (sources and all(source.is_private for source in sources)):
            return "{} is {}, an address of the site's own".format(after, address)
    return None


def addresses(host: str) -> List[Address]:
    """Return the addresses of a host; none where its name has none."""
    try:
        found = {str(row[4][0]).partition("%")[0] for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return []
    made = [ipaddress.ip_address(text) for text in found]
    return [getattr(address, "ipv4_mapped", None) or address for address in made]
