"""Start the workload under torchrun, for tests."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import shakedown
from shakedown.logs.iterations import Iteration
from tests import forks
from tests.training_logs import parse

WORKLOAD = Path(shakedown.__file__).parent / "jobs" / "workload"
TINY = "--hidden-size 64 --num-layers 2 --seq-length 64 --vocab-size 128 --micro-batch-size 4 --global-batch-size 16"


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes when the tests end: torchrun leaves one behind in the temporary one after every run."""
    return tempfile.TemporaryDirectory(prefix="torchrun-")


def environment() -> dict[str, str]:
    """One thread per rank, gloo on loopback, and this Python's torchrun first on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": temporary().name}


def start(
    arguments: str, *, ranks: int = 2, nodes: int = 1, node_rank: int = 0, port: int = 0, script: Path | None = None
) -> subprocess.Popen[str]:
    """One torchrun agent with `ranks` ranks, in a session of its own; output and errors come on its stdout."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--node-rank", str(node_rank)]
    command += ["--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1", "--master-port", str(port or free_port())]
    command += [str(script or WORKLOAD / "train.py"), *arguments.split()]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def train_forked(arguments: str, *, ranks: int = 2, script: Path | None = None) -> tuple[int, str]:
    """Exit code and output of one whole run on one node, without an agent, and with ranks of a process that has torch
    and Megatron-Core loaded: importing them takes each rank and an agent 3 s of CPU."""
    words = [forks.RANKS, str(ranks), str(free_port()), str(script or WORKLOAD / "train.py"), *arguments.split()]
    code, output, errors = forks.run(words, Path.cwd(), environment(), 180)
    return code, output + errors


def iterations(output: str) -> list[Iteration]:
    """The iteration lines of an output."""
    return list(parse(output.splitlines(keepends=True)))


def summary(output: str) -> dict[str, float]:
    """The summary lines at the end of an output, by name."""
    return {name: float(value) for name, value in re.findall(r"^([\w /]+): ([\d.]+|nan)$", output, re.MULTILINE)}
