"""What makes a machine this machine: name, id, keys, address, user. It comes as a tar on the machine's second disk,
which the initramfs unpacks at a disk's first boot; a machine that wakes from a snapshot unpacks it by `ADOPT`."""

from __future__ import annotations

import os
import tarfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.images import add_file
from tests.lab.rootfs import USER_ID, KeyPair

SIZE = 1 << 20
"""Bytes. The same for all: a machine that wakes takes its disk for as large as the one it fell asleep with."""

ADOPT = """\
set -e
date -s @{now} >/dev/null
tar -x -f /dev/vdb -C /
hostname "$(cat /etc/hostname)"
systemd-sysusers
ip link set eth0 down
ip link set eth0 address {mac} mtu {mtu} name {interface}
systemctl restart systemd-networkd ssh
systemctl reload docker
"""
"""Becoming the machine of the tar while the kernel is up: its card still has the name and the MAC of the machine that
slept, and its clock stands where it fell asleep."""


@dataclass(frozen=True)
class Identity:
    """`files` adds {path: text} to what every machine has; scripts among them can be executed."""

    name: str
    host_key: KeyPair
    client_key: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    sudo: bool = False

    def write(self, target: Path) -> None:
        """The tar, padded to the disk's size."""
        files = {
            "etc/hostname": (f"{self.name}\n", 0o644),
            "etc/hosts": (f"127.0.0.1\tlocalhost\n127.0.1.1\t{self.name}\n::1\tlocalhost\n", 0o644),
            "etc/machine-id": (f"{uuid.uuid4().hex}\n", 0o444),
            "etc/ssh/ssh_host_ed25519_key": (self.host_key.private, 0o600),
            "etc/ssh/ssh_host_ed25519_key.pub": (self.host_key.public, 0o644),
            "etc/ssh/sshd_config.d/lab.conf": ("PermitRootLogin prohibit-password\nUseDNS no\n", 0o644),
            "root/.ssh/authorized_keys": (self.client_key, 0o600),
        }
        files |= {path: (text, 0o755 if text.startswith("#!") else 0o644) for path, text in self.files.items()}
        with tarfile.open(target, "w") as tar:
            for path, (text, mode) in files.items():
                add_file(tar, path, text.encode(), mode)
            if self.user:
                self._add_user(tar, self.user)
        assert target.stat().st_size <= SIZE
        os.truncate(target, SIZE)

    def _add_user(self, tar: tarfile.TarFile, user: str) -> None:
        line = f'u {user} {USER_ID}:{USER_ID} "lab user" /home/{user} /bin/bash\n'
        add_file(tar, "etc/sysusers.d/lab.conf", f"g {user} {USER_ID}\n{line}".encode())
        for path in (f"home/{user}", f"home/{user}/.ssh"):
            folder = tarfile.TarInfo(path)
            folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o700, USER_ID, USER_ID
            tar.addfile(folder)
        add_file(tar, f"home/{user}/.ssh/authorized_keys", self.client_key.encode(), 0o600, USER_ID)
        if self.sudo:
            add_file(tar, "etc/sudoers.d/lab", f"{user} ALL=(ALL) NOPASSWD: ALL\n".encode(), 0o440)
