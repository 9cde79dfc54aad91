"""A docker engine inside a node: its configuration, its start at boot, and where its storage lies."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping
from pathlib import Path

COMMANDS = ("dockerd", "runc", "iptables")
RUNTIME = Path(__file__).with_name("oci_runtime.py")
RUNTIME_PATH = "usr/local/lib/sdlab/oci-runtime"
PROCESSES = frozenset({"dockerd", "containerd"})

START = """\
#!/bin/sh
exec dockerd >>/var/log/dockerd.log 2>&1
"""


def answers(control: Path) -> bool:
    """Whether a docker engine answers a ping on its Unix socket."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(control))
        connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        return b" 200 " in connection.recv(64)
    return False


def settings(gateway: str, insecure_ports: tuple[int, ...], extra: Mapping[str, object]) -> dict[str, str]:
    """{path: text}: what an engine inside a node is told; `extra` adds to daemon.json.

    The registries of the rack at `insecure_ports` may speak plain http; the one with TLS has to be trusted.
    """
    daemon = {
        "storage-driver": "overlay2",
        "insecure-registries": [f"{gateway}:{port}" for port in insecure_ports],
        "runtimes": {"sdlab": {"path": f"/{RUNTIME_PATH}"}},
        "default-runtime": "sdlab",
        "shutdown-timeout": 3,
        **extra,
    }
    return {"etc/docker/daemon.json": json.dumps(daemon, indent=1) + "\n", RUNTIME_PATH: RUNTIME.read_text()}


def started_at_boot(
    gateway: str, insecure_ports: tuple[int, ...], cgroup: str, extra: Mapping[str, object]
) -> dict[str, str]:
    """{path: text} for a node without systemd, with the machine's control groups; those of the node lie in `cgroup`."""
    told = settings(gateway, insecure_ports, {"cgroup-parent": f"/{cgroup}", **extra})
    return {**told, "usr/local/lib/sdlab/boot.d/dockerd": START}


def mounts(root: Path, disk: Path, disk_mb: int | None) -> list[str]:
    """fstab lines: the machine's control groups, and storage in a folder or, so that it can be full, on a tmpfs."""
    target = root / "var/lib/docker"
    storage = f"tmpfs {target} tmpfs size={disk_mb}m" if disk_mb else f"{disk} {target} none bind"
    return [f"/sys/fs/cgroup {root}/sys/fs/cgroup none rbind", storage]
