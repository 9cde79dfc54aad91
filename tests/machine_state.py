"""Take away from a test process what a person or a machine has set: it is none of the tests' business."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

TAKEN = "TESTS_TOOK_AWAY"
"""The environment variable with what was taken, for processes that this one starts (xdist's workers among them)."""

KEPT_HOME = "TESTS_MACHINE_HOME"
"""The environment variable with the machine's home."""

SETTINGS = re.compile(
    r"(?i:(http|https|ftp|all|no)_proxy)|LANG|LANGUAGE|LC_.*|TZ|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR.*|PAGER|EDITOR"
    r"|(XDG|GIT|SSH|PG|DOCKER|KUBE|SLURM|SBATCH|SQUEUE|SHAKEDOWN|PYINFRA|MASTER|NCCL|RCCL|HF|HIP|ROCR|OMP)[_A-Z].*"
    r"|PYTHON(?!PATH$).*|RANK|WORLD_SIZE|LOCAL_RANK|NODE_RANK|CDPATH|GREP_OPTIONS|BASH_ENV|ENV|LESS"
)
"""Variables that change what programs do or print. SHAKEDOWN_LAB_CACHE says where the lab builds, and stays."""

SOURCE_CHANGES = {"PYTHONDONTWRITEBYTECODE": "the source changes"}
"""The environment of tests whose source may change twice in a second: Python takes what it compiled before for new."""

MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  # bytes that are free in it: the files of all tests are half a gigabyte
PROXIES = re.compile("(?i:(http|https|ftp|all|no)_proxy)")


def make_neutral() -> None:
    """Give this process, and what it starts, a plain environment and umask and an empty home."""
    os.umask(0o022)
    if _holds_files(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    for name in ("COLUMNS", "LINES"):  # xdist gives its workers those of its own terminal
        os.environ.pop(name, None)
    if TAKEN in os.environ:
        return
    kept = {"SHAKEDOWN_LAB_CACHE"} | {name for name, value in SOURCE_CHANGES.items() if os.environ.get(name) == value}
    names = [name for name in os.environ if SETTINGS.fullmatch(name) and name not in kept]
    taken = {name: os.environ.pop(name) for name in names}
    if taken.keys() & SOURCE_CHANGES.keys():  # images of containers set it: each process would compile all anew
        sys.dont_write_bytecode = False
    if not _usable(Path(tempfile.gettempdir())):
        os.environ.pop("TMPDIR", None)
        tempfile.tempdir = None
    # A version manager's shim for python3 takes 0.1 s of CPU to find it, at each reading of a node.
    found = os.environ.get("PATH", os.defpath).split(":")
    os.environ["PATH"] = ":".join(f"{sys.base_prefix}/bin" if path.endswith("/shims") else path for path in found)
    home = Path(tempfile.mkdtemp(prefix="home-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(home, ignore_errors=True))
    os.environ |= {
        KEPT_HOME: str(Path.home()),
        TAKEN: json.dumps(taken),
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }


def machine_home() -> Path:
    """Return the home that the machine has: pythons of other versions and what the lab has built are there."""
    return Path(os.environ.get(KEPT_HOME, Path.home()))


def proxies() -> dict[str, str]:
    """Return the machine's proxy variables, for the few commands that fetch from outside."""
    taken: dict[str, str] = json.loads(os.environ.get(TAKEN, "{}"))
    return {name: value for name, value in taken.items() if PROXIES.fullmatch(name)}


def _holds_files(folder: Path) -> bool:
    """Say whether the tests may have their files there. They write a node's 2,000 files a hundred times: up to 2 s of
    CPU for each on a disk's file system, 0.1 s in memory. Some make devices, and programs that others run."""
    restricted = os.ST_NODEV | os.ST_NOEXEC | os.ST_NOSUID
    usable = folder.is_dir() and _usable(folder) and os.access(folder, os.W_OK)
    if not usable or os.statvfs(folder).f_flag & restricted:
        return False
    return shutil.disk_usage(folder).free > ROOM


def _usable(folder: Path) -> bool:
    """Say whether every user may enter a folder, and no shell divides its name: some tests become another user, and
    the programs that tests put in place of others are shell scripts."""
    return re.fullmatch(r"[\w./+-]+", str(folder), re.ASCII) is not None and all(
        path.stat().st_mode & 0o001 for path in (folder, *folder.parents)
    )
