"""A PostgreSQL server of the tests' own: Debian's, in a temporary folder, reached by a socket there alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDERS = "/usr/lib/postgresql"  # Debian's, a folder for each version; its programs are not on the path
USER = "nobody"  # it refuses root


def programs() -> Path:
    """The folder of initdb and pg_ctl, of the newest version."""
    found = sorted(Path(FOLDERS).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, f"no PostgreSQL in {FOLDERS}: make system"
    return found[-1].parent


@contextmanager
def server() -> Iterator[str]:
    """A running server; yields the URL of a database of it. What it writes need not survive the machine."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path has at most 107 bytes
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, USER)
        as_user = ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups", "--"]
    data, log = folder / "data", folder / "log"

    def run(*words: object) -> None:
        argv = [*as_user, *map(str, words)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        said = log.read_text() if log.exists() else ""
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}{said}"

    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    try:
        run(programs() / "initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "-D", data)
        run(programs() / "pg_ctl", "-w", "-t", "60", "-l", log, "-o", options, "-D", data, "start")
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        if data.exists():
            run(programs() / "pg_ctl", "-w", "-m", "immediate", "-D", data, "stop")
        shutil.rmtree(folder)
