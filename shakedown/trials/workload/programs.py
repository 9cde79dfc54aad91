"""External programs: found, run with bounded output, ended with all their processes. Between nodes one end serves."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from . import owners, rocm

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


OUTPUT = 16 << 20  # bytes of output that are kept; a program that prints more is ended
PLACES = ("/opt/rccl-tests/build", "/usr/local/bin", "/workspace/rccl-tests/build")  # besides ROCm's own


class Failed(RuntimeError):
    """A program failed; the text has the reason."""


def find(program: str) -> str | None:
    """Return the path of a program; None: it is not installed. Raises Failed where others could have put it there."""
    path = shutil.which(program)  # the system's own path is its administrator's
    if path is None and (path := rocm.program(program) or shutil.which(program, path=os.pathsep.join(PLACES))):
        try:
            owners.own_file(path)
        except OSError as error:
            raise Failed(f"{path} is not run: {error.strerror}: {error.filename}") from None
    return path


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
    """Wait for a program; return why it failed, or nothing. `limit_s` None: the parent process has a limit."""
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"not finished after {limit_s:g} s"
    if code == -signal.SIGXFSZ:
        return f"it printed more than {OUTPUT >> 20} MiB"
    return f"exit code {code}" if code else ""


ATTEMPTS = 3  # another process can take a free port, and a stranger can be a server's first client
_SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


@dataclass
class Link:
    """One end of a pair. `store`: its part of the rendezvous; `limit_s`: of each program, and of each wait."""

    store: Store
    rank: int
    address: str  # of this end's servers
    device: str | None  # this rail's RDMA device; None: the node has none
    gid_index: int | None
    limit_s: float
    rates: dict[str, float]  # of earlier rounds of this process: they choose the length of a run

    def tell(self, key: str, value: str) -> None:
        """Send a value to the other end."""
        self.store.set(key, value)

    def hear(self, key: str) -> str:
        """Receive a value from the other end. Raises Failed when none comes in time."""
        try:
            self.store.wait([key], timedelta(seconds=self.limit_s))
            return bytes(self.store.get(key)).decode("ascii", "replace")
        except RuntimeError:
            raise Failed(f"the other node did not answer within {self.limit_s:g} s") from None

    def serve(self, name: str, words: Sequence[str]) -> None:
        """Start a server (`{port}`: a free one) for each attempt, until a client succeeds. Raises Failed."""
        for attempt in range(ATTEMPTS):
            port = _free_port()
            with running([word.replace("{port}", str(port)) for word in words]) as (process, _):
                if not _listens(process, port, self.limit_s):
                    continue
                self.tell(f"{name}/{attempt}/port", f"{self.address} {port}")
                if self.hear(f"{name}/{attempt}/done") == "yes":
                    return
        self.tell(f"{name}/{ATTEMPTS}/port", "none")
        raise Failed(f"{words[0]} served {ATTEMPTS} times, and no client measured")

    def connect(self, name: str, words: Sequence[str]) -> str:
        """Run a client against the other end's server. Returns its output. Raises Failed."""
        reason = "the server never listened"
        for attempt in range(ATTEMPTS):
            address, _, port = self.hear(f"{name}/{attempt}/port").partition(" ")
            if not port:
                break
            if not _is_endpoint(address, port):
                raise Failed("the other node sent no valid address and port")
            command = [word.replace("{port}", port).replace("{address}", address) for word in words]
            sys.stderr.write(f"$ {' '.join(command)}\n")
            with running(command) as (process, output):
                reason = failure(process, self.limit_s)
                text = read_output(output)
            sys.stderr.write(f"{text}\n{reason or 'exit code 0'}\n")
            self.tell(f"{name}/{attempt}/done", "no" if reason else "yes")
            if not reason:
                return text
        raise Failed(f"{words[0]}: {reason}")


def _is_endpoint(address: str, port: str) -> bool:
    """Return whether the other node sent an address and a port, and no option of the program."""
    try:
        return bool(ipaddress.ip_address(address)) and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
    except ValueError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _listens(process: subprocess.Popen[bytes], port: int, limit_s: float) -> bool:
    """Wait until a process listens on a port, by the kernel's table: a test connection would be the first client."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until and process.poll() is None:
        for table in _SOCKETS:
            if table.exists() and any(_is_listener(line, port) for line in table.read_text().splitlines()[1:]):
                return True
        time.sleep(0.05)
    return False


def _is_listener(line: str, port: int) -> bool:
    words = line.split()
    return len(words) > 3 and words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port
