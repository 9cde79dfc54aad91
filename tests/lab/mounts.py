"""The mount table of a namespace node: what of the machine it sees, and what is its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

OWN = ("dev", "run", "tmp")  # folders of which each node has its own


def table(folder: Path, engine: Sequence[str] = ()) -> list[str]:
    """The lines of the node's fstab, from outside in; `engine` are those of its container engine, if it has one.

    Paths are those that hold before pivot_root.
    """
    root = folder / "root"
    lines = [f"sdlab {root} overlay lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"]
    for number, point in enumerate(_other_file_systems()):
        extra = folder / f"extra{number}"
        for layer in ("upper", "work"):
            (extra / layer).mkdir(parents=True, exist_ok=True)
        lines.append(f"sdlab {root}{point} overlay lowerdir={point},upperdir={extra}/upper,workdir={extra}/work")
    lines += [f"proc {root}/proc proc defaults", *_sys_mounts(folder)]
    # Sysctls outside net/ are the machine's own: a node may read them, not write them.
    kept = [part.name for part in Path("/proc/sys").iterdir() if part.name != "net"]
    lines += [f"{root}/proc/sys/{name} {root}/proc/sys/{name} none bind,ro" for name in kept]
    bound = sorted(file.relative_to(folder) for file in (folder / "proc").rglob("*") if file.is_file())
    lines += [f"{folder}/{file} {root}/{file} none bind" for file in bound]
    lines += [f"{folder}/{name} {root}/{name} none bind" for name in OWN]
    for path in _hidden():
        (folder / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
        lines.append(f"{path} {root}{path} none bind,ro")
    return [*lines, *engine, f"devpts {root}/dev/pts devpts newinstance,ptmxmode=0666,mode=0620,gid=5"]


def _hidden() -> list[Path]:
    """The checkout and its python where they lie in a folder of which a node has its own: a clone under /tmp."""
    needed = {Path(__file__).resolve().parents[2], Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    hidden = [path for path in sorted(needed) if path.parts[1] in OWN]
    return [path for path in hidden if not any(path != other and path.is_relative_to(other) for other in hidden)]


def _sys_mounts(folder: Path) -> list[str]:
    """The machine's /sys as this network namespace sees it, read-only, or with the node's own tree over it."""
    point = folder / "root/sys"
    if not (folder / "sys/upper").exists():
        return [f"sysfs {point} sysfs ro"]
    layers = f"lowerdir={point},upperdir={folder}/sys/upper,workdir={folder}/sys/work"
    return [f"sysfs {point} sysfs defaults", f"sdlab {point} overlay {layers}"]


def _other_file_systems() -> list[str]:
    """Mount points besides / that hold the checkout or its python: an overlay of / alone would not show them."""
    needed = {Path(__file__).resolve(), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    points = {next(str(p) for p in (path, *path.parents) if os.path.ismount(p)) for path in needed}
    return sorted(points - {"/"})
