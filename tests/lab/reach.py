"""Nodes whose init is a process of this machine: they can be reached from outside, whatever their sshd does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.lab import engine
from tests.lab.machine import SBIN_PATH, LabError, run
from tests.lab.processes import Process, inside


class Reachable:
    """What a namespace node and a container node have in common."""

    name: str
    init_pid: int
    """Of the node's PID 1, on the machine; 0 while the node is down."""
    INFRASTRUCTURE: ClassVar[frozenset[str]] = frozenset({"sshd", "sshd-session"}) | engine.PROCESSES
    """Names of the processes that a node has when nobody uses it."""

    @property
    def root(self) -> Path:
        """The node's whole file system, seen from outside, while it is up."""
        return Path(f"/proc/{self._up_pid()}/root")

    def exec(self, command: str, *, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the node as root, out of band. Raises LabError when it fails and `check` holds."""
        enter = ["nsenter", "-t", str(self._up_pid()), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        env = ["env", "-i", f"PATH={SBIN_PATH}", "HOME=/root", "LC_ALL=C.UTF-8"]
        return run([*enter, *env, "sh", "-c", command], check=check, timeout=timeout)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def write(self, path: str, text: str) -> None:
        (self.root / path.lstrip("/")).write_text(text)

    def processes(self) -> list[Process]:
        """What runs on the node, containers included, besides its init, services and open ssh sessions."""
        return [process for process in inside(self._up_pid()) if process.name not in self.INFRASTRUCTURE]

    def freeze(self) -> None:
        """SIGSTOP to every sshd of the node: the kernel still accepts connections, nobody answers."""
        self._signal_sshd(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_sshd(signal.SIGCONT)

    def _up_pid(self) -> int:
        if not (pid := self.init_pid):
            raise LabError(f"{self.name} is down")
        return pid

    def _signal_sshd(self, number: signal.Signals) -> None:
        for process in inside(self._up_pid()):
            if process.name.startswith("sshd"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
