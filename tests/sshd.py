"""A real sshd on loopback, for tests that need a node and not a laboratory."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


@dataclass
class Node:
    """One sshd: its port, and its log at debug level."""

    folder: Path
    port: int

    def sessions(self) -> int:
        """Exec and subsystem channels that the server has opened so far."""
        return (self.folder / "log").read_text().count("Starting session:")

    def data(self) -> dict[str, Any]:
        return {
            "ssh_hostname": "127.0.0.1",
            "ssh_port": self.port,
            "ssh_user": getpass.getuser(),
            "ssh_key": str(self.folder / "key"),
            "ssh_known_hosts_file": str(self.folder / "known_hosts"),
        }


def start(folder: Path, *options: str, host_key: Path | None = None) -> tuple[Node, subprocess.Popen[bytes]]:
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": f'"{host_key or folder / "host"}"', "PidFile": "none",
        "UsePAM": "no", "AuthorizedKeysFile": f'"{folder / "key.pub"}"', "StrictModes": "no", "LogLevel": "DEBUG1",
    }  # fmt: skip
    (folder / "config").write_text("\n".join([*(f"{key} {value}" for key, value in settings.items()), *options]) + "\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([str(SSHD), "-D", "-f", str(folder / "config"), "-E", str(folder / "log")])
    node = Node(folder, port)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return node, server
        time.sleep(0.05)
    raise AssertionError((folder / "log").read_text())


def connections(server: int) -> list[int]:
    """The process ids of the sshds that serve one connection each; `server` is the one that listens."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()[1:]]
    return [int(pid) for pid, parent, name in rows if name.startswith("sshd") and int(parent) == server]
