"""The lowest priority that the kernel has, for CPU and disk: the job must not notice that it is watched."""

from __future__ import annotations

import os

from ..tree import Tree, attempt


def lower() -> None:
    """Take nice 19, the idle class of the disk scheduler, and SCHED_IDLE: a three-hundredth of a CPU that has other
    work. What the kernel refuses stays as it was."""
    for change in (lambda: os.nice(19), _idle_disk, lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))):
        attempt(change)


def _idle_disk() -> None:
    psutil = Tree().psutil
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
