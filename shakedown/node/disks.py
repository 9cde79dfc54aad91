"""Mounted file systems that hold files, and the room on them."""

from __future__ import annotations

import os

from .children import Child, gather
from .pattern import Pattern
from .tree import Part, Tree, Unreadable, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "9p", "glusterfs", "fuse.glusterfs"}
_NETWORK |= {"wekafs", "fuse.sshfs", "fuse.ceph", "fuse.juicefs", "fuse.weka", "afs", "pvfs2", "panfs", "vast"}
# Answered from the kernel's own memory or disks. Whatever else there is may be a server's, and is not waited for.
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "virtiofs", "vfat"}
_LOCAL |= {"tmpfs", "ramfs", "overlay", "squashfs", "iso9660", "exfat", "ntfs3"}
# The kernel's own, which hold no files of anybody.
_KERNEL = {
    "proc",
    "sysfs",
    "devpts",
    "devtmpfs",
    "cgroup",
    "cgroup2",
    "securityfs",
    "debugfs",
    "tracefs",
    "pstore",
    "bpf",
}
_KERNEL |= {"mqueue", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "efivarfs", "nsfs", "rpc_pipefs", "selinuxfs"}
_ESCAPE = Pattern(r"\\([0-7]{3})")
_WHEN_NEEDED = "autofs"
_SECONDS = 2.0


def parse_mountinfo(lines: list[str]) -> list[tuple[str, str, str]]:
    """(device, mount point, type) of the mounts that a path can reach, by /proc/self/mountinfo (proc(5)), sorted by
    mount point.

    One that another mount covers is not reached. A folder that is mounted a second time within its own file system
    (a bind mount) is no file system of its own.
    """
    mounts: dict[str, tuple[str, str, str, str, str]] = {}  # id -> parent's id, device number, device, point, type
    for line in lines:
        fields, _, rest = line.partition(" - ")
        words, kind = fields.split(" "), rest.split(" ")
        if len(words) >= 5 and len(kind) >= 2:
            parent = "" if words[1] == words[0] else words[1]  # older kernels show the first root as its own
            mounts[words[0]] = (parent, words[2], _unescaped(kind[1]), _unescaped(words[4]), kind[0])
    top = next((key for key, (parent, _, _, point, _) in mounts.items() if point == "/" and parent not in mounts), "")
    # The kernel attaches what comes later to what is there, also on one and the same point.
    on = {(mount[0] if mount[0] in mounts else top, mount[3]): key for key, mount in mounts.items() if key != top}

    def reached(path: str) -> str:
        at, words = top, [word for word in path.split("/") if word]
        for count in range(len(words) + 1):
            point = "/" + "/".join(words[:count])
            while (at, point) in on:
                at = on[(at, point)]
        return at

    found = []
    for key, (_, number, device, point, kind_) in mounts.items():
        above = reached(point.rpartition("/")[0] or "/")
        bound = point != "/" and above in mounts and mounts[above][1] == number
        if kind_ not in _KERNEL and reached(point) == key and not bound:
            found.append((device, point, kind_))
    return sorted(found, key=lambda entry: entry[1])


def _unescaped(text: str) -> str:
    """Blanks and the like are octal escapes: "/mnt/my\\040disk"."""
    if "\\" not in text:
        return text
    return _ESCAPE.compiled().sub(lambda match: chr(int(match.group(1), 8)), text)


def room(path: str) -> tuple[int, int]:
    """(total, free to an ordinary user), bytes."""
    info = os.statvfs(path)
    return info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize


def may_wait(tree: Tree) -> bool:
    """Whether there is a file system that may be a server's, and so may wait for one that is gone."""
    kinds = [line.partition(" - ")[2].split(" ", 1)[0] for line in tree.lines("/proc/self/mountinfo")]
    return not _LOCAL.union(_KERNEL, [_WHEN_NEEDED]).issuperset(kinds)


def read(tree: Tree) -> list[Part]:
    """One part per file system. Each that may be a server's is asked in a child of its own: a server that is gone
    blocks whoever asks, in the kernel."""
    mounts = parse_mountinfo(tree.lines("/proc/self/mountinfo"))
    asked = {
        mount: Child("statvfs " + mount, _SECONDS, room, tree.path(mount))
        for _, mount, kind in mounts
        if kind not in _LOCAL and kind != _WHEN_NEEDED
    }
    gather(list(asked.values()))
    return [_part(tree, mount, asked.get(mount[1])) for mount in mounts]


def _part(tree: Tree, entry: tuple[str, str, str], child: Any) -> Part:
    device, mount, kind = entry
    if child is not None:
        answer = attempt(child.value)
    elif kind == _WHEN_NEEDED:  # asking would mount it
        answer = Unreadable("missing", mount + " is mounted when it is needed, and is not now").as_part()
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
