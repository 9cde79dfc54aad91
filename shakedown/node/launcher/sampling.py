"""The sampler beside the job (`shakedown/node/telemetry`): its start right before the leader's, and its end. One that
cannot be started, or dies, costs its files and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional

from . import folder, processes

FOLDER = folder.OWN + "/sampler"  # its sources
LOG = folder.OWN + "/sampler.log"  # what it says where something is wrong with itself
_KMSG = "/dev/kmsg"
_END_S = 10.0  # for its last sample: on a node where every CPU is busy it is among the last to get one


class Sampler:
    """`job["sampler"]` says how often it samples, and which interface the job uses; without it there is none."""

    def __init__(self, path: str, job: Dict[str, Any]) -> None:
        self._path = path
        self._wanted: Optional[Dict[str, Any]] = job.get("sampler")
        self._process: Optional["subprocess.Popen[bytes]"] = None

    def start(self, environment: Dict[str, str]) -> None:
        """Begin. The kernel's log is read from here on. Raises nothing."""
        if not self._wanted:
            return
        kmsg = -1
        try:
            kmsg = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(kmsg, 0, os.SEEK_END)
            words = ["--kmsg", str(kmsg)]
        except OSError as error:
            words = ["--why", "%s: %s" % (_KMSG, error.strerror)]
        words += ["--begin", "%.6f" % time.monotonic(), "--folder", os.path.join(self._path, folder.OWN)]
        for name in ("interval", "interface"):
            if self._wanted.get(name):
                words += ["--" + name, str(self._wanted[name])]
        output = -1
        try:
            output = folder.open_log(self._path, LOG)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.join(self._path, FOLDER), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._path,
                env={processes.MARK: environment[processes.MARK]},
                start_new_session=True,
                preexec_fn=_prepare,
                pass_fds=() if kmsg < 0 else (kmsg,),
            )
        except (OSError, subprocess.SubprocessError):
            pass  # the files that are not there tell it
        finally:
            for handle in (kmsg, output):
                if handle >= 0:
                    os.close(handle)

    def pids(self) -> List[int]:
        """Return the sampler's pid: the one that reaps orphans leaves it to `stop`."""
        return [self._process.pid] if self._process else []

    def own(self, members: List[processes.Process], others: bool = False) -> List[processes.Process]:
        """Return which of a run's processes are the sampler and its children, or the others, which are the job's."""
        family, before = set(self.pids()), -1
        while len(family) > before:
            before = len(family)
            family |= {process.pid for process in members if process.parent in family}
        return [process for process in members if (process.pid in family) != others]

    def stop(self, turn: Callable[[], Optional[bool]]) -> None:
        """Ask for the last sample, and wait a moment for it. `turn` passes the time, and says when there is none."""
        if self._process is None or self._process.poll() is not None:
            return
        _raise_priority(self._process.pid)
        self._process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _END_S
        while self._process.poll() is None and time.monotonic() < until:
            if turn():
                return


def _raise_priority(pid: int) -> None:
    """Let it come to its end as soon as others do; a user who is not root may not, and waits longer."""
    with suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, pid, 0)


def _prepare() -> None:
    """Hold SIGTERM back until the sampler listens (in the child), so that a short job has its last sample too."""
    processes.end_with_parent()
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
