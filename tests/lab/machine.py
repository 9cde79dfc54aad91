"""What the lab needs of the machine it runs on: root, some Debian packages, and commands that fail loudly."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SBIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A root login's path: sshd, dockerd and ip live in sbin, which a plain environment may lack."""

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Before a command that must end when the thread that starts it does."""

POLICY_FILE = Path("/usr/sbin/policy-rc.d")


class LabError(Exception):
    """The lab itself cannot do what was asked; the product under test is not to blame."""


def run(
    argv: Sequence[str], *, check: bool = True, timeout: float = 180, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the lab (never of the product) with root's path; `timeout` is in seconds.

    Raises LabError with the command's own words when it fails and `check` holds.
    """
    env = {**os.environ, "PATH": SBIN_PATH, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout, env=env, check=False)
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {said[-2000:]}")
    return done


def require_root() -> None:
    """Raises LabError where the lab has not the rights to make namespaces, bridges and mounts."""
    if os.geteuid():
        raise LabError("the lab makes namespaces, bridges and mounts: run it as root, or without: pytest -m 'not lab'")


def require(packages: Mapping[str, str]) -> None:
    """Install the Debian package of each command that is missing: {command: package}; one quiet apt-get for all."""
    missing = {package for command, package in packages.items() if not shutil.which(command, path=SBIN_PATH)}
    if missing:
        install(sorted(missing))


def install(packages: Sequence[str]) -> None:
    """Install Debian packages without starting the services they bring."""
    if not shutil.which("apt-get"):
        raise LabError(f"the lab needs {', '.join(packages)}, and this machine has no apt-get to install them with")
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    with _alone(), _no_services():
        wanted = [*apt, "install", "-y", "--no-install-recommends", *packages]
        if run(wanted, check=False, timeout=900).returncode:  # lists are absent or old: once more with fresh ones
            run([*apt, "update"], timeout=600)
            run(wanted, timeout=900)


@contextmanager
def _alone() -> Iterator[None]:
    """One at a time: `apt-get update` has a lock that it does not wait for, and the switch below is one file."""
    with Path("/run/sdlab.install").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _no_services() -> Iterator[None]:
    """Debian's own switch: while this file says 101, no package starts its daemon on the machine."""
    if POLICY_FILE.exists():
        yield
        return
    POLICY_FILE.write_text("#!/bin/sh\nexit 101\n")
    POLICY_FILE.chmod(0o755)
    try:
        yield
    finally:
        POLICY_FILE.unlink(missing_ok=True)
