"""Running the product in the lab as a user does: the commands of the README, from another folder, in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shakedown.jobs.launch import CONTAINER_LABEL
from tests import forks

if TYPE_CHECKING:
    from tests.lab.namespaces import Node
    from tests.lab.vms import Vm

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LONG = {"iterations": 2000, "options": {}}
"""Of a job that is to be disturbed: far more than any test lets run, of the model that the recipe has."""
SMALL_VENV = "/opt/small"
WITHOUT_TORCH = {
    f"{SMALL_VENV[1:]}/bin/torchrun": (Path(__file__).parent / "isolation" / "torchrun").read_text("utf-8"),
    f"{SMALL_VENV[1:]}/bin/python": "#!/bin/sh\necho shakedown lacks:\n",
}
"""Files of nodes (`NodeSpec.files`): a small program trains there in the place of torch, with `smoke(venv=SMALL_VENV)`.
Torch takes each node six seconds of CPU to import, and a long job all cores."""
SLEEPY: dict[str, object] = {"iterations": 2000, "venv": SMALL_VENV, "environment": {"PACE_S": "0.1"}}
"""Of a job of such nodes that is to be disturbed."""
SMALL = {"hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "vocab_size": 64, "seq_length": 32}
"""The recipe's options for a model that takes half the time, most of which is then torch's import."""


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Product:
    """The commands, run in one working folder, where they leave `runs/`."""

    folder: Path

    def environment(self) -> dict[str, str]:
        path = f"{BIN}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYINFRA_PROGRESS": "off", "COLUMNS": "10000"}

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        """Start a command; whoever starts it ends it."""
        return subprocess.Popen(
            [str(word) for word in argv],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str | Path, timeout: float = 400) -> Ran:
        """Run a command to its end; one that takes too long is killed and fails the test.

        Ours are forked, which saves a second of CPU each. What is started (`start`) is a process from nothing.
        """
        if argv[0] not in ("pyinfra", "shakedown"):
            done = subprocess.run(
                argv, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=timeout
            )
            return Ran(done.returncode, done.stdout, done.stderr)
        return Ran(*forks.run([str(BIN / argv[0]), *map(str, argv[1:])], self.folder, self.environment(), timeout))

    def deploy(self, inventory: Path, name: str = "megatron", *options: str, timeout: float = 400) -> Ran:
        """`pyinfra INVENTORY deploy/NAME.py OPTIONS`."""
        return self.run("pyinfra", inventory, PROJECT / "deploy" / f"{name}.py", *options, timeout=timeout)

    def drift(self, inventory: Path, *options: str) -> Ran:
        """`shakedown drift INVENTORY OPTIONS`."""
        return self.run("shakedown", "drift", inventory, *options)

    def findings(self, inventory: Path) -> list[dict[str, Any]]:
        """The findings of `shakedown drift --format jsonl`."""
        return [json.loads(line) for line in self.drift(inventory, "--format", "jsonl").out.splitlines()]

    def record(self) -> dict[str, Any]:
        """run.json of the newest run."""
        document: dict[str, Any] = json.loads((self.folder / "runs/latest/run.json").read_text())
        return document


def smoke(**changes: object) -> dict[str, object]:
    """The site's layer of a rack whose nodes train the small GPT on their CPUs, one rank each."""
    recipe: dict[str, object] = {
        "recipe": "gpt-small",
        "ranks_per_node": 1,
        "venv": str(BIN.parent),
        "options": SMALL,
        "steady": False,  # other work takes turns on the cores
        "environment": {"OMP_NUM_THREADS": "1"},  # the nodes share the machine's cores and do not know it
    }
    return {"gpu": "cpu", "smoke": recipe | changes}


def until(condition: Callable[[], bool], seconds: float, every: float = 0.2) -> None:
    """Wait for it, looking `every` so many seconds. Raises AssertionError where it does not happen in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(every)


def until_it_trains(nodes: Sequence[Node]) -> None:
    """Wait until the job is in the middle: iterations are being printed."""
    log = "cat /root/.cache/shakedown/runs/*/leader.log"
    until(lambda: "iteration" in nodes[-1].exec(log, check=False).stdout, 120)


def one_rank(node: Node) -> str:
    """The pid, on the node, of one rank (not of torchrun's agent)."""
    listing = node.exec("ps -eo pid,args | grep '[t]rain.py' | grep -v -e torchrun -e torch.distributed").stdout
    return listing.split()[0]


def ours(node: Node | Vm) -> list[str]:
    """Ids of the containers that runs have on the node, running or not."""
    return node.exec(f"docker ps --all --quiet --filter label={CONTAINER_LABEL}", timeout=300).stdout.split()


def until_gone(node: Node | Vm, seconds: float, every: float = 0.5) -> None:
    """Wait until no run has a container on the node. Raises AssertionError where one is left."""
    until(lambda: ours(node) == [], seconds, every)


def patiently(run: Callable[[], Ran]) -> Ran:
    """Again where a reading or the machine was not there in time: an emulated one on a busy machine reads a thousand
    GIDs slowly, its engine's socket answers late, and so does its sshd."""
    for _ in range(3):
        ran = run()
        if not any(late in ran.text for late in ("no answer in", "timed out", '"reachable"')):
            break
    return ran


def finish(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    """Exit code and all output of a command that has to end by itself. Raises AssertionError where it does not."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end in {seconds} s:\n{out}{err}") from None
    return process.returncode, out + err
