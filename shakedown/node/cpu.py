"""Processors: model, vendor, how many are online."""

from __future__ import annotations

from .setting import online_cpus
from .tree import Part, Tree, attempt, pick


def parse_cpuinfo(text: str) -> dict[str, str]:
    """The fields of the first processor."""
    pairs = (line.split(":", 1) for line in text.split("\n\n", 1)[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def read(tree: Tree) -> Part:
    # Only the beginning: the kernel writes this file processor by processor, and a rack's node has hundreds.
    info = attempt(lambda: parse_cpuinfo(tree.raw("/proc/cpuinfo", 4096).decode("utf-8", "replace")))
    return {
        "model": attempt(pick, info, "model name"),
        "count": len(online_cpus(tree)),
        "vendor": attempt(pick, info, "vendor_id"),
    }
