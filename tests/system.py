"""The first step of the tests: what they need of the system, in one place and by one call of apt-get.

    python3.11 tests/system.py setup test

installs what tests/system.toml names in these groups and the machine lacks, starts none of the services that come with
it, and does nothing where all is there. Without root, or without apt-get, it names what is missing and what to do.
Standard library alone: it runs before there is a virtual environment.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SBIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A root login's path: sshd, dockerd and ip live in sbin, which a plain environment may lack."""

POLICY_FILE = Path("/usr/sbin/policy-rc.d")
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")


class Missing(Exception):
    """Something that the tests need is not there and cannot be installed; the text says what to do."""


@cache
def needs() -> dict[str, dict[str, str]]:
    """Group -> what is needed -> the Debian package that brings it."""
    document: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("system.toml").read_text("utf-8"))
    return document


def is_there(need: str) -> bool:
    """Whether this machine has it: a command, "module NAME" of this python, or "file PATH"."""
    kind, _, name = need.rpartition(" ")
    if kind == "module":
        return importlib.util.find_spec(name) is not None
    return Path(name).exists() if kind == "file" else shutil.which(name, path=SBIN_PATH) is not None


def ensure(wanted: Sequence[str]) -> None:
    """Have what is needed, by the names of system.toml. Raises Missing; KeyError for a name that is not in there."""
    packages = {need: package for group in needs().values() for need, package in group.items()}
    missing = {need: packages[need] for need in wanted if not is_there(need)}
    if missing:
        _install(missing)
    if still := [need for need in missing if not is_there(need)]:
        raise Missing(f"{', '.join(missing[need] for need in still)} did not bring {', '.join(still)}")


def _install(missing: dict[str, str]) -> None:
    packages = sorted(set(missing.values()))
    by_hand = f"missing here: {', '.join(sorted(missing))}. As root on Debian 12: apt-get install {' '.join(packages)}"
    if not shutil.which("apt-get"):
        raise Missing(f"{by_hand}; this system has no apt-get: install what brings these there")
    if os.geteuid():
        raise Missing(by_hand)
    print(f"installing {' '.join(packages)}", file=sys.stderr, flush=True)
    with _alone(), _no_services():
        wanted = ("install", "-y", "--no-install-recommends", *packages)
        if _apt(*wanted).returncode:  # lists are absent or old: once more with fresh ones
            _apt("update")
            done = _apt(*wanted)
            if done.returncode:
                raise Missing(f"{by_hand}. apt-get says: {(done.stderr or done.stdout).strip()[-2000:]}")


def _apt(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": SBIN_PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run((*_APT, *words), env=environment, capture_output=True, text=True, timeout=1200, check=False)


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


def main(groups: Sequence[str]) -> int:
    """Have everything of the groups; 1 where that cannot be."""
    try:
        ensure([need for group in groups for need in needs()[group]])
    except Missing as error:
        print(f"tests/system.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(needs())))
