"""Memory, load, NUMA and huge pages."""

from __future__ import annotations

from .tree import Part, Tree, Unreadable, attempt


def parse_meminfo(lines: list[str]) -> dict[str, int]:
    """Numbers of /proc/meminfo: kilobytes, and plain counts for HugePages_*."""
    return {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines) if rest.split()}


def read(tree: Tree) -> Part:
    info = parse_meminfo(tree.lines("/proc/meminfo"))
    return {
        "total_bytes": info["MemTotal"] * 1024,
        "available_bytes": info.get("MemAvailable", info.get("MemFree", 0)) * 1024,
        "load_1m": float(tree.text("/proc/loadavg").split()[0]),
        "hugepages_total": attempt(lambda: info["HugePages_Total"]),
        "hugepage_kb": attempt(lambda: info["Hugepagesize"]),
    }


def _numa_nodes(tree: Tree) -> int:
    nodes = [name for name in tree.names("/sys/devices/system/node") if name[:4] == "node" and name[4:].isdigit()]
    if not nodes:
        raise Unreadable("missing", "/sys/devices/system/node")
    return len(nodes)


def read_numa(tree: Tree) -> Part:
    return {"nodes": attempt(_numa_nodes, tree)}
