"""The lowest priority that the kernel has, for CPU and disk: the job must not notice that it is watched."""

from __future__ import annotations

import ctypes
import os

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # the system call's number: glibc has no function for it
_WHO_PROCESS, _CLASS_IDLE, _CLASS_SHIFT = 1, 3, 13  # linux/ioprio.h


def lower() -> None:
    """nice 19, the idle class of the disk scheduler, and SCHED_IDLE: only where a CPU has nothing else to do, or a
    three-hundredth of one that has. What the kernel refuses stays as it was."""
    try:
        os.nice(19)
        number = _IOPRIO_SET[os.uname().machine]
        ctypes.CDLL(None, use_errno=True).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE << _CLASS_SHIFT)
    except (OSError, KeyError, AttributeError):
        pass
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError):
        pass


def end_with_parent() -> None:
    """Have the kernel kill the calling process when its parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
