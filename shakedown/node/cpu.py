"""Processors: model, frequency governors, idle state C2."""

from __future__ import annotations

import re

from .tree import Part, Tree, Unreadable, attempt, pick

_FOLDER = "/sys/devices/system/cpu"


def parse_cpuinfo(text: str) -> dict[str, str]:
    """The fields of the first processor."""
    pairs = (line.split(":", 1) for line in text.split("\n\n", 1)[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def parse_cpu_list(text: str) -> list[int]:
    """ "0-2,5" -> [0, 1, 2, 5]."""
    numbers: list[int] = []
    for span in text.split(","):
        first, _, last = span.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _governors(tree: Tree, cpus: list[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for cpu in cpus:
        path = "{}/cpu{}/cpufreq/scaling_governor".format(_FOLDER, cpu)
        governor = tree.text(path)
        counts[governor] = counts.get(governor, 0) + 1
    return counts


def _c2_enabled(tree: Tree, cpus: list[int]) -> int:
    if not any(tree.exists("{}/cpu{}/cpuidle/state2".format(_FOLDER, cpu)) for cpu in cpus[:1]):
        raise Unreadable("missing", _FOLDER + "/cpu*/cpuidle/state2")
    return sum(tree.number("{}/cpu{}/cpuidle/state2/disable".format(_FOLDER, cpu)) == 0 for cpu in cpus)


def read(tree: Tree) -> Part:
    # Only the beginning: the kernel writes this file processor by processor, and a rack's node has hundreds.
    info = attempt(lambda: parse_cpuinfo(tree.raw("/proc/cpuinfo", 4096).decode("utf-8", "replace")))
    names = [name for name in tree.names(_FOLDER) if re.match(r"cpu\d+$", name)]
    online = attempt(lambda: parse_cpu_list(tree.text(_FOLDER + "/online")))
    cpus = online if isinstance(online, list) else sorted(int(name[3:]) for name in names)
    return {
        "model": attempt(pick, info, "model name"),
        "count": len(cpus),
        "vendor": attempt(pick, info, "vendor_id"),
        "governors": attempt(_governors, tree, cpus),
        "c2_enabled": attempt(_c2_enabled, tree, cpus),
    }
