"""The TCP ports that something listens on."""

from __future__ import annotations

from .tree import Tree


def parse(lines: list[str]) -> list[int]:
    """Local ports of the sockets in state LISTEN (0A) of /proc/net/tcp or tcp6."""
    rows = (line.split() for line in lines[1:])
    return [int(row[1].rsplit(":", 1)[1], 16) for row in rows if len(row) > 3 and row[3] == "0A"]


def read(tree: Tree) -> list[int]:
    """Return the ports. psutil would look for the owner of each socket among all processes. A kernel without IPv6 has
    no tcp6."""
    files = [path for path in ("/proc/net/tcp", "/proc/net/tcp6") if tree.exists(path)]
    return sorted({port for path in files or ["/proc/net/tcp"] for port in parse(tree.lines(path))})
