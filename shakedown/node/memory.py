"""Memory, load, NUMA and huge pages."""

from __future__ import annotations

import re

from .bootunit import setting_at_boot
from .cmdline import argument
from .sysctl import NUMA_BALANCING
from .tree import Part, Tree, Unreadable, attempt, is_unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def parse_meminfo(lines: list[str]) -> dict[str, int]:
    """Numbers of /proc/meminfo: kilobytes, and plain counts for HugePages_*."""
    return {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines) if rest.split()}


def parse_choice(text: str) -> str:
    """The bracketed word: "always [madvise] never" -> "madvise"."""
    match = re.search(r"\[(\S+)\]", text)
    if not match:
        raise Unreadable("malformed", "{}: {}".format(_THP, text))
    return match.group(1)


def _thp_at_boot(unit: Part, cmdline: Part) -> Optional[str]:
    return setting_at_boot(unit, "thp") or argument(cmdline["persisted"], "transparent_hugepage")


def read(tree: Tree, unit: Part, cmdline: Part) -> Part:
    info = parse_meminfo(tree.lines("/proc/meminfo"))
    return {
        "total_bytes": info["MemTotal"] * 1024,
        "available_bytes": info.get("MemAvailable", info.get("MemFree", 0)) * 1024,
        "load_1m": float(tree.text("/proc/loadavg").split()[0]),
        "thp": {
            "running": attempt(lambda: parse_choice(tree.text(_THP))),
            "persisted": attempt(_thp_at_boot, unit, cmdline),
        },
        "hugepages_total": attempt(lambda: info["HugePages_Total"]),
        "hugepage_kb": attempt(lambda: info["Hugepagesize"]),
    }


def _numa_nodes(tree: Tree) -> int:
    nodes = [name for name in tree.names("/sys/devices/system/node") if re.match(r"node\d+$", name)]
    if not nodes:
        raise Unreadable("missing", "/sys/devices/system/node")
    return len(nodes)


def read_numa(tree: Tree, sysctls: dict[str, Part], cmdline: Part) -> Part:
    """NUMA nodes and balancing. sysctl.d comes after the command line at boot, so it decides where both speak."""
    balancing = dict(sysctls[NUMA_BALANCING])
    if balancing["persisted"] is None and not is_unreadable(cmdline["persisted"]):
        word = argument(cmdline["persisted"], "numa_balancing")
        balancing["persisted"] = {"disable": "0", "enable": "1"}.get(word or "")
    return {"nodes": attempt(_numa_nodes, tree), "balancing": balancing}
