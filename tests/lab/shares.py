"""Namespace nodes in control groups of their own: even shares of the machine, and less for one of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.lab.namespaces import Rack
from tests.lab.processes import inside

PERIOD_US = 100_000


@contextlib.contextmanager
def shared(lab: Rack, quota: dict[str, float]) -> Iterator[None]:
    """The nodes share evenly what the machine has for them, which is most of it, and not all: other tests go on. They
    are in control groups of equal weight below one of theirs, and so is this process with what it starts: a controller
    must not wait for the nodes that it watches. `quota`: node -> cores that it may have at most; it has a quarter of
    the others' weight, too."""
    first = Path("/sys/fs/cgroup/cpu")
    legacy = first.is_dir()
    top = (first if legacy else Path("/sys/fs/cgroup")) / f"shakedown-shares-{os.getpid()}"
    top.mkdir()
    if not legacy:
        (top / "cgroup.subtree_control").write_text("+cpu")
    (top / ("cpu.shares" if legacy else "cpu.weight")).write_text("16384" if legacy else "1600")
    folders = []
    try:
        for node in lab:
            folder = top / node.name
            folder.mkdir()
            folders.append(folder)
            most = int(quota[node.name] * PERIOD_US) if node.name in quota else None
            if most is not None and legacy:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(most))
            elif most is not None:
                (folder / "cpu.max").write_text(f"{most} {PERIOD_US}")
            if node.name in quota:
                (folder / ("cpu.shares" if legacy else "cpu.weight")).write_text("256" if legacy else "25")
            for process in inside(node._up_pid()):
                (folder / "cgroup.procs").write_text(str(process.pid))
        controller = top / "controller"
        controller.mkdir()
        folders.append(controller)
        (controller / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for folder in folders:
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (top.parent / "cgroup.procs").write_text(pid)
            folder.rmdir()
        top.rmdir()
