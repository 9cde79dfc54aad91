"""Device files that jobs open: /dev/kfd, /dev/dri, /dev/infiniband."""

from __future__ import annotations

import os
import stat
from typing import List, NamedTuple, Optional, Set

from . import gpu
from .known import KNOWN
from .system import rows, user_name
from .tree import Part, Tree, Unreadable, attempt, attempt_or
from .udev import devices


class Access(NamedTuple):
    """Files that one driver makes. `patterns` are shell patterns of paths, `kernel_names` are udev's; `mode` is the
    least that there must be. `modules` make the files. No group: the file's own is right."""

    patterns: List[str]
    kernel_names: List[str]
    mode: str
    modules: List[str]
    group: Optional[str] = None


# By the operations of operations/devices.py.
ACCESS = {name: Access(**entry) for name, entry in KNOWN["devices"]["access"].items()}


def _kfd_major(tree: Tree) -> int:
    """Return the major of the character device; behind "Block devices:" stand others."""
    for line in tree.text("/proc/devices").partition("Block")[0].splitlines():
        if line.split()[1:] == ["kfd"]:
            return int(line.split()[0])
    raise Unreadable("missing", "kfd in /proc/devices")


def _openable(tree: Tree, path: str) -> bool:
    """Open it, as a job would: modes do not show what a container's device policy forbids. An issm file is only asked
    for its mode, since opening one makes the port a subnet manager's."""
    if path.rsplit("/", 1)[-1].startswith("issm"):
        return os.access(tree.path(path), os.R_OK | os.W_OK)
    try:
        os.close(os.open(tree.path(path), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    except PermissionError:
        return False
    return True


def _look_at(tree: Tree, path: str, groups: dict[str, str]) -> Part:
    info = os.stat(tree.path(path))
    kinds = ((stat.S_ISCHR, "char"), (stat.S_ISBLK, "block"), (stat.S_ISDIR, "dir"))
    return {
        "path": path,
        "kind": next((kind for test, kind in kinds if test(info.st_mode)), "other"),
        "major": os.major(info.st_rdev),
        "minor": os.minor(info.st_rdev),
        "mode": "{:04o}".format(stat.S_IMODE(info.st_mode)),
        "owner": user_name(rows(tree, "/etc/passwd"), info.st_uid) if info.st_uid else "root",
        "group": groups.get(str(info.st_gid), str(info.st_gid)),
        "openable": attempt(_openable, tree, path),
    }


def _folder(tree: Tree, folder: str, groups: dict[str, str], without: set[str]) -> list[Part]:
    paths = [folder + "/" + name for name in tree.names(folder) if name not in without]
    parts = [tree.ask("device " + path, _look_at, tree, path, groups) for path in paths]
    return [part for part in parts if part["kind"] != "dir"]


def _unconfigured(tree: Tree) -> set[str]:
    """Return names under /dev/dri of partitions that their GPU is not divided into. amdgpu makes device files for eight
    partitions of each GPU whatever it is divided into. Those in use stand in the compute driver's topology. To open
    another is refused, and the driver writes an error into the kernel's log each time ("amdgpu: renderD153 partition 1
    not valid!": ROCm/ROCm issue 5720, on amd-smi), so none is."""
    minors = {"renderD{}".format(minor) for minor in attempt_or([], gpu.render_minors, tree)}
    found: Set[str] = set()
    for device in devices(tree, "drm", "renderD*"):
        if device.parent.startswith("amdgpu_xcp") and device.name not in minors:
            found.update(tree.names(os.path.dirname(device.path)))  # with its card
    return found


def read(tree: Tree) -> Part:
    groups = {row[2]: row[0] for row in rows(tree, "/etc/group")}
    return {
        "kfd": attempt(tree.ask, "device /dev/kfd", _look_at, tree, "/dev/kfd", groups),
        "kfd_major": attempt(_kfd_major, tree),
        "dri": attempt(lambda: _folder(tree, "/dev/dri", groups, _unconfigured(tree))),
        "infiniband": attempt(_folder, tree, "/dev/infiniband", groups, set()),
    }
