"""Which processes run in a node: those under its init, and those that entered its PID namespace from outside."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process by its pid on the machine (not the node's own number)."""

    pid: int
    parent: int
    name: str
    args: tuple[str, ...]


def inside(init_pid: int) -> list[Process]:
    """Processes of the node whose PID 1 is `init_pid`, without that one; containers (nested namespaces) included."""
    table = {process.pid: process for process in _all()}
    space = _space(init_pid)

    def belongs(process: Process | None) -> bool:
        while process is not None:
            if process.parent == init_pid:
                return True
            process = table.get(process.parent)
        return False

    found = (p for p in table.values() if p.pid != init_pid and (belongs(p) or (space and _space(p.pid) == space)))
    return sorted(found, key=lambda process: process.pid)


def _all() -> list[Process]:
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            head, _, tail = (folder / "stat").read_text().rpartition(")")
            if tail.split()[0] == "Z":
                continue
            args = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            processes.append(Process(int(folder.name), int(tail.split()[1]), head.partition("(")[2], tuple(args)))
    return processes


def _space(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""
