"""Mounted file systems that hold files, and the room on them."""

from __future__ import annotations

import os

from .children import Child, gather
from .tree import Part, Tree, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "9p", "glusterfs", "fuse.glusterfs"}
_NETWORK |= {"wekafs", "fuse.sshfs", "fuse.ceph", "fuse.juicefs", "fuse.weka", "afs", "pvfs2", "panfs", "vast"}
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "virtiofs", "vfat"}
_SECONDS = 2.0


def parse_mounts(lines: list[str]) -> list[tuple[str, str, str]]:
    """(device, mount point, type) of /proc/mounts, for types that hold files; a device mounted twice counts once."""
    found: dict[tuple[str, str], tuple[str, str, str]] = {}
    for line in lines:
        words = line.split()
        if len(words) < 3:
            continue
        device, kind = words[0], words[2]
        # Blanks and the like are octal escapes: "/mnt/my\\040disk".
        mount = words[1].encode("latin-1", "backslashreplace").decode("unicode_escape")
        if kind in _LOCAL or kind in _NETWORK or (kind == "overlay" and mount == "/"):
            known = found.get((device, kind))
            if known is None or len(mount) < len(known[1]):
                found[(device, kind)] = (device, mount, kind)
    return sorted(found.values(), key=lambda entry: entry[1])


def room(path: str) -> tuple[int, int]:
    """(total, free to an ordinary user), bytes."""
    info = os.statvfs(path)
    return info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize


def read(tree: Tree) -> list[Part]:
    """One part per file system. Each on the network is asked in a child of its own: a server that is gone blocks
    whoever asks, in the kernel."""
    mounts = parse_mounts(tree.lines("/proc/self/mounts"))
    asked = {
        mount: Child("statvfs " + mount, _SECONDS, room, tree.path(mount))
        for _, mount, kind in mounts
        if kind in _NETWORK
    }
    gather(list(asked.values()))
    return [_part(tree, mount, asked.get(mount[1])) for mount in mounts]


def _part(tree: Tree, entry: tuple[str, str, str], child: Any) -> Part:
    device, mount, kind = entry
    if child is not None:
        answer = attempt(child.value)
    elif tree.live:
        answer = attempt(room, mount)
    else:
        answer = attempt(lambda: tree.recorded("disks")[mount])
    known = not isinstance(answer, dict)
    return {
        "mount": mount,
        "device": device,
        "fstype": kind,
        "total_bytes": answer[0] if known else answer,
        "free_bytes": answer[1] if known else answer,
        "network": kind in _NETWORK,
    }
