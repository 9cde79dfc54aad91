"""What the lab needs of the machine it runs on: root, commands that are there, and ones that fail loudly."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import system
from tests.system import SBIN_PATH

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Before a command that must end when the thread that starts it does."""


class LabError(Exception):
    """The lab itself cannot do what was asked; the product under test is not to blame."""


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    timeout: float = 180,
    stdin: str | None = None,
    cwd: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of the lab (never of the product) with root's path and `more` variables; `timeout` is in seconds.

    Raises LabError with the command's own words when it fails and `check` holds.
    """
    env = {**os.environ, "PATH": SBIN_PATH, "LC_ALL": "C.UTF-8", **(more or {})}
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=timeout, env=env, cwd=cwd, check=False
    )
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {said[-2000:]}")
    return done


def require_root() -> None:
    """Raises LabError where the lab has not the rights to make namespaces, bridges and mounts."""
    if os.geteuid():
        raise LabError("the lab makes namespaces, bridges and mounts: run it as root, or without: pytest -m 'not lab'")


def require(*needs: str) -> None:
    """Have commands that the lab needs, by their names in tests/system.toml; `make test` has installed them all before.
    Raises LabError."""
    try:
        system.ensure(needs)
    except system.Missing as error:
        raise LabError(str(error)) from None
