"""A git server of the rack: git's own daemon on the bridge."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.lab.machine import LabError

PORT = 9418


@contextmanager
def serve(folder: Path, address: str) -> Iterator[str]:
    """Serve every repository below `folder`, read-only; gives the URL that their names are appended to."""
    options = ["--export-all", "--reuseaddr", f"--listen={address}", f"--port={PORT}", f"--base-path={folder}"]
    with subprocess.Popen(["git", "daemon", *options, folder]) as daemon:
        try:
            _wait(address)
            yield f"git://{address}:{PORT}"
        finally:
            daemon.terminate()


def _wait(address: str) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection((address, PORT), timeout=1):
            return
        time.sleep(0.05)
    raise LabError(f"git daemon does not answer at {address}:{PORT}")
