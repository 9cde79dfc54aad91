"""External programs: where they are installed, with bounded output, and ended with all their processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import rocm

OUTPUT = 16 << 20  # bytes of output that are kept; a program that prints more is ended
PLACES = ("/opt/rccl-tests/build", "/usr/local/bin", "/workspace/rccl-tests/build")  # besides ROCm's own


class Failed(RuntimeError):
    """A program failed; the text has the reason."""


def find(program: str) -> str | None:
    """Return the path of a program; None: it is not installed."""
    return rocm.program(program) or shutil.which(program, path=os.pathsep.join(PLACES))


@contextlib.contextmanager
def running(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a program with its output in a file of bounded size."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        with output.open("wb") as file:
            limited = ["sh", "-c", f'ulimit -f {OUTPUT // 512}; exec "$@"', "sh", *words]
            process = subprocess.Popen(
                limited, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield process, output
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read_output(output: Path) -> str:
    """Read the output of a program."""
    return output.read_bytes()[:OUTPUT].decode("utf-8", "replace")


def failure(process: subprocess.Popen[bytes], limit_s: float | None = None) -> str:
    """Wait for a program, and return why it failed; empty: it succeeded.

    `limit_s`: None where the process that started this one has a limit.
    """
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"not finished after {limit_s:g} s"
    if code == -signal.SIGXFSZ:
        return f"it printed more than {OUTPUT >> 20} MiB"
    return f"exit code {code}" if code else ""
