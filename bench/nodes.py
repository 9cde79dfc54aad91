"""N nodes on loopback: one real sshd per address 127.1.0.x, in a mount namespace of its own and one PID namespace.

The namespaces keep what a deploy writes on its nodes off this machine, and take every process along when they end.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
STARTED_WITHIN_S = 300.0
SESSIONS_END_WITHIN_S = 60.0


class BenchError(Exception):
    """The bench cannot run here, or something it measures did not do its work; says what."""


@dataclass(frozen=True)
class Nodes:
    """Nodes that answer: where, with which keys, and `pid`, a process within their namespaces."""

    addresses: list[str]
    port: int
    scratch: Path
    pid: int

    @property
    def key(self) -> Path:
        return self.scratch / "key"

    @property
    def known_hosts(self) -> Path:
        return self.scratch / "known_hosts"

    def inside(self, *command: str) -> list[str]:
        """The command, to be run on a node without SSH."""
        return ["nsenter", "--mount", "--pid", "--target", str(_children_of(self.pid)[0]), *command]

    def cpu_s(self) -> float:
        """User and system seconds that the sshds and all their sessions have used. Waits for open sessions to end:
        only then are they in their parent's account, and out of the next measurement."""
        deadline = time.monotonic() + SESSIONS_END_WITHIN_S
        sshds = _children_of(self.pid)
        while any(_children_of(sshd) for sshd in sshds):
            if time.monotonic() > deadline:
                raise BenchError(f"sessions of the nodes are still open after {SESSIONS_END_WITHIN_S:g} s")
            time.sleep(0.02)
        return sum(_ticks(sshd) for sshd in sshds) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(count: int, answer: str = "") -> Iterator[Nodes]:
    """Start `count` nodes (at most 254), with files in a folder of their own; all of it ends with the context, or the
    nodes with this process. `answer`: what they say to every command, which they then do not run."""
    if os.geteuid() != 0:
        raise BenchError("the nodes need namespaces of their own: run as root")
    sshd = _sshd()
    addresses = [f"127.1.0.{number}" for number in range(1, count + 1)]
    port = _free_port(addresses)
    scratch = Path(tempfile.mkdtemp(prefix="sdb", dir="/tmp"))  # short: a socket's path holds 108 characters
    try:
        yield from _running(addresses, port, sshd, scratch, answer)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _running(addresses: list[str], port: int, sshd: str, scratch: Path, answer: str) -> Iterator[Nodes]:
    (scratch / "keys").mkdir()
    keys = {address: scratch / "keys" / address for address in addresses}
    for path in (scratch / "key", *keys.values()):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    if answer:
        (scratch / "answer").write_text(answer)
    lines = (f"[{address}]:{port} {path.with_name(f'{address}.pub').read_text()}" for address, path in keys.items())
    (scratch / "known_hosts").write_text("".join(lines))
    (scratch / "addresses").write_text("".join(f"{address} {port}\n" for address in addresses))

    home = pwd.getpwuid(os.geteuid()).pw_dir
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    script = ["sh", str(HERE / "nodes.sh"), str(scratch), sshd, home]
    log = scratch / "sshd.log"
    with log.open("wb") as output:
        namespace = subprocess.Popen(
            [*unshare, *script], stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_for(addresses, port, namespace, log)
        yield Nodes(addresses, port, scratch, _children_of(namespace.pid)[0])
    finally:
        namespace.kill()  # its child, the namespace's first process, goes with it, and with that all the others
        namespace.wait()


def _sshd() -> str:
    found = _find_sshd()
    if found is None:
        if shutil.which("apt-get") is None:
            raise BenchError("no sshd here: install the OpenSSH server")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # runlevel 1 starts no service
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "openssh-server", "openssh-client"]
        subprocess.run(install, check=True, env=quiet, stdout=subprocess.DEVNULL)
        found = _find_sshd()
    if found is None:
        raise BenchError("openssh-server is installed, and there is no sshd")
    return found


def _find_sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _free_port(addresses: list[str]) -> int:
    """A port that is free on every one of the addresses."""
    for _ in range(20):
        with socket.socket() as first:
            first.bind((addresses[0], 0))
            port = int(first.getsockname()[1])
        if all(_can_bind(address, port) for address in addresses):
            return port
    raise BenchError(f"no port is free on all of {addresses[0]} to {addresses[-1]}")


def _can_bind(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _wait_for(addresses: list[str], port: int, namespace: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTED_WITHIN_S
    for address in addresses:
        while True:
            if namespace.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the nodes did not start: {log.read_text().strip()[-500:]}")
            try:
                socket.create_connection((address, port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)


def _children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ticks(pid: int) -> int:
    """utime, stime, cutime and cstime of proc(5); the name in the second field may hold spaces."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])
