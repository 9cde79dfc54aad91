"""A node state as paths and values, without what differs between any two readings of a node that nobody touched."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from shakedown.state.node import NodeState

# What names an entry of a list, in the order in which they are looked for: entries keep their names when one is added.
_NAMES = ("bdf", "name", "path", "mount", "destination", "id", "index", "pid")
# Readings of the moment, as patterns of paths.
CHANGING = (
    "probe.wall_s",
    "probe.cpu_s",
    "probe.version",
    "system.boot_id",
    "system.taken_at",
    "system.epoch_s",
    "memory.available_bytes",
    "memory.load_1m",
    "gpus.*.vram_used_bytes",
    "gpus.*.temperature_c",
    "gpus.*.power_w",
    "gpus.*.ecc_*",  # counters: the gates have what a run raised
    "gpus.*.pcie_replays",
    "gpu_processes*",
    "listening*",
    "containers.running",
    "disks.*.free_bytes",
    "clock.offset_s",
    "kernel_log.*",
    "counters.*",
)


THERE = "there"  # of an entry of a list, such as a GPU, at the path that those of its values begin with


def settled(state: NodeState) -> dict[str, str]:
    """Dotted path -> value, of all that stays as it is until somebody or something changes the node."""
    leaves = _leaves(state.model_dump(mode="json"), "")
    return {path: value for path, value in leaves if not any(fnmatchcase(path, pattern) for pattern in CHANGING)}


def without_missing(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    """Return the first node's values, of an entry that the other has not only that it is there."""
    missing = tuple(f"{path}." for path, value in one.items() if value == THERE and path not in two)
    return {path: value for path, value in one.items() if not path.startswith(missing)}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and "unreadable" in value:
        yield path, f"unreadable ({value['unreadable']})"  # its detail may hold times and numbers of processes
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            entry = f"{path}.{_name_of(item, number)}"
            yield entry, THERE
            yield from _leaves(item, entry)
    elif isinstance(value, list):
        yield path, ", ".join(str(item) for item in value)
    else:
        yield path, "" if value is None else str(value)


def _name_of(item: Any, number: int) -> str:
    name = next((item[key] for key in _NAMES if isinstance(item, dict) and item.get(key) is not None), number)
    return str(name)
