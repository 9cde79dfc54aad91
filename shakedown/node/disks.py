"""Mounted file systems that hold files, and the room on them."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

import psutil

from . import pci
from .children import alone, answers, start
from .tree import Part, Tree, Unreadable, attempt, is_unreadable
from .udev import devices

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "9p", "glusterfs", "fuse.glusterfs"}
_NETWORK |= {"wekafs", "fuse.sshfs", "fuse.ceph", "fuse.juicefs", "fuse.weka", "afs", "pvfs2", "panfs", "vast"}
# Answered from the kernel's own memory or disks. Whatever else there is may be a server's, and is not waited for.
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "virtiofs", "vfat"}
_LOCAL |= {"tmpfs", "ramfs", "overlay", "squashfs", "iso9660", "exfat", "ntfs3"}
# The kernel's own, which hold no user's files.
_KERNEL = {
    "proc", "sysfs", "devpts", "devtmpfs", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "pstore", "bpf",
}  # fmt: skip
_KERNEL |= {"mqueue", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "efivarfs", "nsfs", "rpc_pipefs", "selinuxfs"}
_WHEN_NEEDED = "autofs"
_SECONDS = 2.0


def mounts(tree: Tree) -> Dict[str, Tuple[str, str]]:
    """Map mount points that hold files to device and type. What was mounted later on the same point covers the rest."""
    table = {
        partition.mountpoint: (partition.device, partition.fstype)
        for partition in tree.psutil.disk_partitions(all=True)
    }
    return {mount: (device, kind) for mount, (device, kind) in sorted(table.items()) if kind not in _KERNEL}


def room(path: str) -> Optional[Tuple[int, int]]:
    """Return (total, free to an ordinary user), bytes. None where no file system of its own is: another mount covers
    it, or it is a folder that is mounted a second time within its own file system."""
    if not os.path.ismount(path):
        return None
    usage = psutil.disk_usage(path)
    return usage.total, usage.free


def read(tree: Tree) -> List[Part]:
    """Return one part per file system. A child of its own asks what may be a server's, with what is mounted below it: a
    server that is gone blocks the asking process in the kernel, and no second one is started beside it."""
    table = mounts(tree)
    waits = [mount for mount, (_, kind) in table.items() if kind not in _LOCAL and kind != _WHEN_NEEDED]
    readings = [
        {mount: ("statvfs " + mount, _SECONDS, alone, ("statvfs " + mount, room, tree.path(mount)))}
        for mount, (_, kind) in table.items()
        if kind != _WHEN_NEEDED and any((mount + "/").startswith(above.rstrip("/") + "/") for above in waits)
    ]
    found = answers(start(readings))
    for mount, (_, kind) in table.items():
        if kind == _WHEN_NEEDED:  # asking would mount it
            words = mount + " is mounted on demand and is not mounted now"
            found[mount] = Unreadable("missing", words).as_part()
        elif mount not in found:
            found[mount] = attempt(room, mount) if tree.live else attempt(lambda at: tree.recorded("disks")[at], mount)
    return [_part(mount, *table[mount], found[mount]) for mount in table if found[mount] is not None]


def _part(mount: str, device: str, kind: str, answer: Any) -> Part:
    total, free = (answer, answer) if is_unreadable(answer) else answer
    return {
        "mount": mount,
        "device": device,
        "fstype": kind,
        "total_bytes": total,
        "free_bytes": free,
        "network": kind in _NETWORK,
    }


def controllers(tree: Tree) -> List[Part]:
    return [
        {
            "name": device.name,
            "bdf": device.parent if pci.is_bdf(device.parent) else None,
            "model": attempt(tree.text, device.path + "/model"),
            "serial": attempt(tree.text, device.path + "/serial"),
            "firmware": attempt(tree.text, device.path + "/firmware_rev"),
        }
        for device in devices(tree, "nvme")
    ]
