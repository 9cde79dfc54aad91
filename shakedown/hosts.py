"""What an inventory file needs: ranges of hosts.

    from shakedown.hosts import nodes

    rack7 = (nodes("node[01-08].rack7"), {"gpu": "mi300x", "nic": "thor2"})

A range is written as ClusterShell writes it.
"""

from __future__ import annotations

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException


def nodes(*patterns: str) -> list[str]:
    """The hosts of the patterns, in ClusterShell's notation ("node[01-32]", "rack[1-2]n[1-8]", "a,b"), in order.

    Raises ValueError for a pattern that cannot be read or that names no host: an inventory without hosts must never
    look like a rack in which all is well. "@name" is a name, and no group of a ClusterShell configuration.
    """
    try:
        names = [name for pattern in patterns for name in NodeSet(pattern, resolver=RESOLVER_NOGROUP)]
    except NodeSetException as error:
        form = 'expected a range from low to high, as "node[01-08]"'
        raise ValueError(f"nodes({', '.join(map(repr, patterns))}): {error}; {form}") from error
    if not names:
        raise ValueError(f"nodes({', '.join(map(repr, patterns))}): no host is named")
    return list(dict.fromkeys(names))
