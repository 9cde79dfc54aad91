"""Processes of a run: who they are, and their end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from typing import Callable, List, NamedTuple, Optional

MARK = "SHAKEDOWN_RUN"  # stands in the environment of everything that a run starts: "<run id>/<node>/<random>"
_ENVIRONMENT = 1 << 20  # characters: any user decides how long that of a process of theirs looks (PR_SET_MM_MAP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


class Process(NamedTuple):
    """One line of /proc/PID/stat. A pid and its start time name a process for good, a pid alone does not."""

    pid: int
    started: int  # clock ticks since boot
    parent: int
    state: str  # "R", "S", "D", "T", "Z"
    command: str

    def __str__(self) -> str:
        return "%d %s (%s)" % (self.pid, self.command, self.state)


def kernel_text(path: str, limit: int = -1) -> str:
    """Return what a file of /proc says; empty where it cannot be read: it has gone, or is another user's."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def read(pid: int) -> Optional[Process]:
    text = kernel_text("/proc/%d/stat" % pid)
    if not text:
        return None
    opening, closing = text.index("("), text.rindex(")")  # the command may hold spaces and brackets
    fields = text[closing + 2 :].split()
    return Process(pid, int(fields[19]), int(fields[1]), fields[0], text[opening + 1 : closing])


def boot_id() -> str:
    """Return the kernel's id of the current boot; empty where there is none."""
    return kernel_text("/proc/sys/kernel/random/boot_id").strip()


def identity(pid: int) -> List[int]:
    """Return the pid with its start time: what `find` takes."""
    process = read(pid)
    return [pid, process.started if process else 0]


def find(pid: int, started: int) -> List[Process]:
    """Return the process of that identity, if it is alive."""
    process = read(pid)
    return [process] if process and process.started == started and process.state not in "ZX" else []


def named(identity: object) -> List[Process]:
    """Find the process of an identity that was read from a file; nothing where it is none."""
    known = (
        isinstance(identity, list) and len(identity) == 2 and all(type(part) is int and part > 0 for part in identity)
    )
    return find(*identity) if known else []  # type: ignore[misc]


def descendants(ancestor: Optional[int], among: List[Process]) -> List[Process]:
    """Return the processes that descend from one."""
    family, before = {ancestor}, 0
    while len(family) > before:
        before = len(family)
        family |= {process.pid for process in among if process.parent in family}
    return [process for process in among if process.parent in family]


def members(mark: str, watchdog: Optional[int]) -> List[Process]:
    """Return a run's processes: descendants of its watchdog, and any process that carries the run's mark. The watchdog
    inherits orphans (it is their subreaper), so a descendant that cleared its environment is found by its parents, and
    one that outlived the watchdog by its mark."""
    every = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    alive = [process for process in every if process and process.state not in "ZX"]
    family, entry = set(descendants(watchdog, alive)), "\0%s=%s\0" % (MARK, mark)

    def carries_mark(pid: int) -> bool:
        return entry in "\0%s\0" % kernel_text("/proc/%d/environ" % pid, _ENVIRONMENT)

    outsiders = {os.getpid(), watchdog}
    others = [process for process in alive if process.pid not in outsiders]
    return [process for process in others if process in family or carries_mark(process.pid)]


def send(process: Process, number: int) -> None:
    """Send a signal, if the process is still the same one."""
    now = read(process.pid)
    if now is not None and now.started == process.started:
        with suppress(OSError):  # ended meanwhile, or another user's: it then stays among the survivors
            os.kill(process.pid, number)


def end(
    alive_now: Callable[[], List[Process]], grace_s: float, kill_s: float, pause: Callable[[float], None] = time.sleep
) -> List[Process]:
    """End everything that `alive_now` finds: SIGTERM, after `grace_s` SIGKILL, and again for `kill_s` what comes anew.
    Returns the processes that could not be ended (uninterruptible sleep, another user's)."""
    began = time.monotonic()
    signalled = set()
    while True:
        alive = alive_now()
        waited = time.monotonic() - began
        if not alive or waited > grace_s + kill_s:
            return alive
        for process in alive:
            if waited >= grace_s:
                send(process, signal.SIGKILL)
            elif process[:2] not in signalled:
                signalled.add(process[:2])
                send(process, signal.SIGTERM)
                send(process, signal.SIGCONT)  # a stopped process acts on SIGTERM only when it goes on
        pause(0.1)


def adopt_orphans() -> None:
    """Make the calling process the parent of its orphaned descendants, in place of init."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Have the kernel send SIGTERM to the calling process when its parent dies: no job without its watchdog."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def reap_orphans(own: List[int]) -> None:
    """Collect the exit of adopted processes. `own` are children that other code waits for."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in own:
            return
        os.waitpid(found.si_pid, 0)
