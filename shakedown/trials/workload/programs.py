"""Programs of somebody else's: found where they are installed, with a bound to what they may print, and ended with all
that they started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

OUTPUT = 16 << 20  # bytes of a program's output that are kept; one that prints more is ended
PLACES = ("/opt/rocm/bin", "/opt/rccl-tests/build", "/usr/local/bin", "/workspace/rccl-tests/build")


class Failed(RuntimeError):
    """A program did not do what it was started for; the text says why."""


def found(program: str) -> str | None:
    """Where a program is installed; None: nowhere."""
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(PLACES))


@contextlib.contextmanager
def running(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A program, with its output in a file that cannot grow beyond what is kept."""
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


def text_of(output: Path) -> str:
    """What a program has printed."""
    return output.read_bytes()[:OUTPUT].decode("utf-8", "replace")


def ended(process: subprocess.Popen[bytes], limit_s: float | None = None) -> str:
    """Why a program came to no good end; empty: it did. `limit_s`: None where whoever started this process has one."""
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"not through after {limit_s:g} s"
    if code == -signal.SIGXFSZ:
        return f"it printed more than {OUTPUT >> 20} MiB"
    return f"exit code {code}" if code else ""
