"""Running a command once, and what it cost."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """`wall_s` seconds; `cpu_s` user and system seconds of the command and its children, `peak_mb` the largest
    resident set of any one of them, in 10^6 bytes (wait4(2): processes that daemonised are not in it); `nodes_cpu_s`
    user and system seconds of all nodes together, with their sshds."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    nodes_cpu_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a command came to: its cost, exit code, and its output and errors in one text."""

    cost: Cost
    code: int
    output: str


def run(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command to its end. It leads a session of its own, so that an interrupt here ends all that it started."""
    log = cwd / "output.txt"
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            _end(process)
            raise
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    cost = Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)
    return Outcome(cost, process.returncode, log.read_text(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each figure by itself."""
    return Cost(
        statistics.median(cost.wall_s for cost in costs),
        statistics.median(cost.cpu_s for cost in costs),
        statistics.median(cost.peak_mb for cost in costs),
        statistics.median(cost.nodes_cpu_s for cost in costs),
    )
