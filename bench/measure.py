"""Running a command once, and what it cost."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A child that is forked from a large process counts as large as that at first (getrusage(2)): a small process between
# runs the command, and tells what its child has used.
_BETWEEN = """
import os, sys
os.set_inheritable(int(sys.argv[1]), False)
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
os.write(int(sys.argv[1]), f"{status} {used.ru_utime + used.ru_stime} {used.ru_maxrss}".encode())
"""


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
    # An installed program finds itself compiled. Here that is what a run that does not count leaves behind.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    reader, writer = os.pipe()
    with log.open("wb") as output, os.fdopen(reader, "rb") as shown:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BETWEEN, str(writer), *argv],
            cwd=cwd,
            env={**inherited, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[writer],
        )
        os.close(writer)
        try:
            process.wait()
        except BaseException:
            _end(process)
            raise
        wall = time.perf_counter() - began
        words = shown.read().split()
    text = log.read_text(errors="replace")
    if len(words) != 3:
        raise OSError(f"{argv[0]} could not be run: {text}")
    status, cpu_s, peak_kib = words
    return Outcome(Cost(wall, float(cpu_s), int(peak_kib) * 1024 / 1e6), os.waitstatus_to_exitcode(int(status)), text)


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
