"""What takes long to build is built once per recipe and kept outside the checkout, also between CI runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.machine import require, run
from tests.machine_state import machine_home, proxies

CACHE = Path(os.environ.get("SHAKEDOWN_LAB_CACHE", machine_home() / ".cache" / "shakedown-lab"))


def cached(name: str, recipe: str, build: Callable[[Path], None]) -> Path:
    """The file or folder `name` made by `build(path)`, at once if this very recipe was built before.

    `recipe` holds everything the result depends on; its digest is part of the file name. Results of older recipes of
    the same name are deleted. Two processes that want the same thing build it once.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    wanted = CACHE / f"{name}-{digest}"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.exists():
            return wanted
        for old in CACHE.glob(f"{name}-{'[0-9a-f]' * 16}*"):
            _remove(old)
        unfinished = CACHE / f"{name}-{digest}.part"
        build(unfinished)
        unfinished.rename(wanted)
    return wanted


def debian(name: str, suite: str, packages: Sequence[str]) -> Path:
    """A Debian root file system as a tar with what `packages` need, made by mmdebstrap (1-2 minutes, network)."""
    require("mmdebstrap")
    wanted = sorted(packages)
    options = ["--mode=root", "--format=tar", "--quiet", "--aptopt=DPkg::Options::force-unsafe-io"]
    options += ["--aptopt=Apt::Install-Recommends false", "--dpkgopt=path-exclude=/usr/share/doc/*"]
    options += ["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]

    def build(path: Path) -> None:
        command = ["mmdebstrap", "--variant=minbase", *options, f"--include={','.join(wanted)}", suite, str(path)]
        run(["nice", "-n", "15", *command], timeout=1200, more=proxies())

    return cached(name, f"{suite} {wanted} {options}", build)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
