"""The sampler beside the job (`shakedown/node/telemetry`): its start right before the leader's, and its end. One that
cannot be started, or dies, costs its files and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import folder, processes

FOLDER = folder.OWN + "/sampler"  # its sources
LOG = folder.OWN + "/sampler.log"  # what it says where something is wrong with itself
_KMSG = "/dev/kmsg"
_END_S = 10.0  # for its last sample: on a node where every CPU is busy it is among the last to get one


class Sampler:
    """`wanted` says how often it samples, and which interface the job uses; without it there is none. `begin` starts
    a program of the run (of the watchdog)."""

    def __init__(
        self, path: str, wanted: Optional[Dict[str, Any]], begin: Callable[..., "subprocess.Popen[bytes]"]
    ) -> None:
        self._path = path
        self._wanted = wanted
        self._begin = begin
        self._process: Optional["subprocess.Popen[bytes]"] = None

    def start(self, mark: str) -> None:
        """Begin. The kernel's log is read from here on. Raises nothing."""
        if not self._wanted:
            return
        keep: Tuple[int, ...] = ()
        try:
            keep = (os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC),)
            os.lseek(keep[0], 0, os.SEEK_END)
            words = ["--kmsg", str(keep[0])]
        except OSError as error:
            words = ["--why", "%s: %s" % (_KMSG, error.strerror)]
        words += ["--begin", "%.6f" % time.monotonic(), "--folder", os.path.join(self._path, folder.OWN)]
        for name in ("interval", "interface"):
            if self._wanted.get(name):
                words += ["--" + name, str(self._wanted[name])]
        # Until the sampler listens, so that a short job has its last sample too.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        with suppress(OSError, subprocess.SubprocessError):  # the files that are not there tell it
            argv = [sys.executable, "-I", "-S", os.path.join(self._path, FOLDER), *words]
            self._process = self._begin(argv, LOG, {processes.MARK: mark}, keep)
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        for handle in keep:
            os.close(handle)

    def own(self, members: List[processes.Process], others: bool = False) -> List[processes.Process]:
        """Return which of a run's processes are the sampler and its children, or the others, which are the job's."""
        sampler = self._process.pid if self._process else None
        family = {sampler, *(process.pid for process in processes.descendants(sampler, members))}
        return [process for process in members if (process.pid in family) != others]

    def stop(self, turn: Callable[[], Optional[bool]]) -> None:
        """Ask for the last sample, and wait a moment for it. `turn` passes the time, and says when there is none."""
        if self._process is None or self._process.poll() is not None:
            return
        with suppress(OSError):  # to end as soon as others do; a user who is not root may not, and waits longer
            os.sched_setscheduler(self._process.pid, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, self._process.pid, 0)
        self._process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _END_S
        while self._process.poll() is None and time.monotonic() < until:
            if turn():
                return
