"""Nodes for tests of the launcher: folders of this machine, each with a home and a lock of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shakedown.common.text import file_name
from shakedown.jobs.answers import Status
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.jobs.remote import Node
from tests import launchers

RUN = f"run-{os.getpid()}"
"""The id of a test's run: a launcher ends what carries its mark on the whole machine, so test processes must differ."""


USERS_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where every user finds python3: a version manager's lies in the home of who tests."""


def as_user(uid: int) -> list[str]:
    """The words before a command that another user is to run; only root can."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


class LocalNodes:
    """A `Remote`. `lost` holds nodes that do not answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: set[str] = set()
        self.unanswered: list[str] = []  # nodes of calls that were lost
        self.deaf: dict[str, int] = {}  # nodes that do what they are told, and whose next so many answers are lost
        self.stdin: list[str] = []
        self.argv: list[list[str]] = []
        self.user: int | None = None  # who connects, where it is another one than who tests
        self.cwd: Path | None = None  # where a connection begins
        self.environment: dict[str, str] = {}

    def home(self, node: str) -> Path:
        """The node's home folder."""
        home = self.folder / file_name(node)
        home.mkdir(parents=True, exist_ok=True)
        return home

    def __call__(
        self, node: str, argv: list[str], stdin: str | None, timeout: float
    ) -> tuple[bool, list[str], list[str]]:
        if node in self.lost:
            time.sleep(0.1)
            self.unanswered.append(node)
            return False, [], ["no route to host"]
        self.argv.append(argv)
        # The lock's name belongs to the network namespace: the folder keeps test processes apart, the name the nodes.
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # python3 without a version manager's shim
            "HOME": str(self.home(node)),
            "SHAKEDOWN_NODE": self.lock_name(node),
            **self.environment,
        }
        if self.user is not None:
            environment["PATH"] = USERS_PATH
            argv = [*as_user(self.user), *argv]
        if not self.environment and launchers.is_forked(argv):
            code, out, err = launchers.run(argv, environment, self.cwd, timeout)
            return self._answered(node, code, out, err)
        done = subprocess.run(
            ["timeout", "-k", "1", str(timeout), *argv],
            input=stdin,
            text=True,
            capture_output=True,
            env=environment,
            cwd=self.cwd,
            check=False,
        )
        return self._answered(node, done.returncode, done.stdout, done.stderr)

    def _answered(self, node: str, code: int, out: str, err: str) -> tuple[bool, list[str], list[str]]:
        if self.deaf.get(node, 0) > 0:
            self.deaf[node] -= 1
            return False, [], ["the answer was lost"]
        return code == 0, out.splitlines(), err.splitlines()

    def watchdog(self, node: str, run_id: str) -> int | None:
        """The pid of a run's watchdog, as long as it lives."""
        try:
            pid: int = json.loads((self.run_dir(node, run_id) / ".launcher/control.json").read_text())["process"][0]
        except OSError:
            return None
        return pid if alive(pid) else None

    def lock_name(self, node: str) -> str:
        """What tells the node from others of this machine."""
        return f"{self.folder}/{node}"[-90:]

    def run_dir(self, node: str, run_id: str) -> Path:
        """Where the node keeps a run."""
        return self.home(node) / ".cache/shakedown/runs" / run_id


def launch_plan(commands: dict[str, list[str]], run_id: str = RUN, **more: Any) -> LaunchPlan:
    """One job: a command for each node. `more` goes to the plan, or to each node's plan where that has the field."""
    of_node = {key: more.pop(key) for key in list(more) if key in NodePlan.model_fields}
    nodes = [
        NodePlan(name=name, node_rank=rank, ranks=1, address="127.0.0.1", interface="lo", command=command, **of_node)
        for rank, (name, command) in enumerate(commands.items())
    ]
    values: dict[str, Any] = {
        "run_id": run_id,
        "recipe": "test",
        "runtime": "process",
        "world_size": len(nodes),
        "micro_batch": 1,
        "global_batch": len(nodes),
        "seq_length": 8,
        "iterations": 5,
        "master_address": "127.0.0.1",
        "master_port": 29500,
        "start_timeout_s": 20,
        "stall_timeout_s": 20,
        "timeout_s": 40,
    }
    return LaunchPlan(nodes=nodes, **{**values, **more})


def marked(run_id: str, node: str) -> list[int]:
    """Pids of this machine that carry the mark of a run on a node; zombies are gone."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        ours = f"SHAKEDOWN_RUN={run_id}/{node}/".encode()
        if any(entry.startswith(ours) for entry in environment) and state not in "ZX":
            found.append(int(process.name))
    return found


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition: Callable[[], object], timeout: float = 15) -> None:
    """Wait for it."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def wait(node: Node, state: str, timeout: float = 20) -> Status:
    """The first status in that state."""
    deadline = time.monotonic() + timeout
    while (status := node.poll(0)).state != state:
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    return status


def hit(run_id: str, node: str, number: signal.Signals) -> None:
    """Send a signal to everything of a run on a node."""
    for pid in marked(run_id, node):
        os.kill(pid, number)
