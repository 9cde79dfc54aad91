"""The files that are a node's own, laid over the machine's: identity, accounts, keys and sshd's configuration."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

EMPTY = ("var/lib/docker", "var/lib/sdlab", "etc/docker")
"""Folders that are there and empty on a node, whatever the machine has in them."""

PRIVATE = ("etc/ssh", "etc/ssl/private", "etc/munge", "etc/wireguard", "etc/kubernetes", "var/spool/cron")
"""Folders with the machine's own keys and jobs: empty on a node where the machine has them."""

TUNING = ("etc/sysctl.d", "etc/modules-load.d", "etc/security/limits.d", "etc/default/grub.d", "var/lib/shakedown")
"""Where settings of the machine itself may stand, also those that Shakedown made: empty on a node."""

UNITS = "etc/systemd/system/**/*shakedown*"
"""Units that Shakedown left on the machine: absent on a node."""

SKELETON = Path("/etc/skel")

SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100:30:200
LogLevel DEBUG
Subsystem sftp internal-sftp
"""

USER_ID = 4200
"""Uid and gid of the ordinary user, far from any that the machine has."""


@dataclass(frozen=True)
class Device:
    """A character device. The default is the kernel's null device, which anybody may open, under another name."""

    major: int = 1
    minor: int = 3
    mode: int = 0o666
    group: str = "root"


PLAIN_DEVICES: Mapping[str, Device] = {
    "null": Device(1, 3),
    "zero": Device(1, 5),
    "full": Device(1, 7),
    "random": Device(1, 8),
    "urandom": Device(1, 9),
    "tty": Device(5, 0, group="tty"),
}
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key in OpenSSH's own text forms."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> KeyPair:
        no_password = serialization.NoEncryption()
        form = serialization.PrivateFormat.OpenSSH
        return cls.of(Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, form, no_password))

    @classmethod
    def of(cls, private: bytes) -> KeyPair:
        """The pair to a private key in OpenSSH's form."""
        openssh = serialization.Encoding.OpenSSH
        public = serialization.load_ssh_private_key(private, None).public_key()
        return cls(private.decode(), public.public_bytes(openssh, serialization.PublicFormat.OpenSSH).decode())


def write(path: Path, text: str, mode: int = 0o644, owner: int = 0) -> None:
    """Write a file with its folders; `owner` is both uid and gid."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, owner)


def make_identity(
    upper: Path, name: str, address: IPv4Interface, host_key: KeyPair, client_key: str, user: str | None, sudo: bool
) -> None:
    """Fill the upper layer of a node before its first boot.

    /etc/hosts is as Debian writes it: the node's own name stands on 127.0.1.1, and no other node's name is there.
    """
    for hidden in [*EMPTY, *(folder for folder in (*TUNING, *PRIVATE) if Path("/", folder).exists())]:
        make_opaque(upper / hidden)
    for unit in Path("/").glob(UNITS):
        white_out(upper / unit.relative_to("/"))
    for home in (Path("/root"), *filter(Path.is_dir, Path("/home").glob("*"))):
        hide_home(upper, home)
    (upper / "root/.ssh").unlink(missing_ok=True)
    make_opaque(upper / "root/.ssh")  # taking the whiteout away would show the machine's own keys again
    for folder, mode in (("etc", 0o755), ("root", 0o755 if user else 0o700), ("root/.ssh", 0o700), ("var/lib", 0o755)):
        (upper / folder).mkdir(parents=True, exist_ok=True)
        (upper / folder).chmod(mode)
    for dotfile in SKELETON.iterdir():
        (upper / "root" / dotfile.name).unlink(missing_ok=True)
        shutil.copy(dotfile, upper / "root" / dotfile.name)
    write(upper / "root/.ssh/authorized_keys", client_key, 0o600)
    write(upper / "etc/hostname", f"{name}\n")
    write(upper / "etc/hosts", f"127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n::1\tlocalhost ip6-localhost\n")
    write(upper / "etc/resolv.conf", "")
    write(upper / "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    write(upper / "etc/ssh/sshd_config", SSHD_CONFIG.format(address=address.ip))
    write(upper / "etc/ssh/ssh_host_ed25519_key", host_key.private, 0o600)
    write(upper / "etc/ssh/ssh_host_ed25519_key.pub", host_key.public)
    _make_accounts(upper, client_key, user, sudo)


def make_opaque(folder: Path) -> None:
    """An overlay folder that hides what the layer below has under the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    os.setxattr(folder, "trusted.overlay.opaque", b"y")


def white_out(path: Path) -> None:
    """An overlay entry that says: this does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o020000, os.makedev(0, 0))


def hide_home(upper: Path, home: Path) -> None:
    """Whiteouts for what a home of the machine holds, but for folders through which the running python is reached."""
    python = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    (upper / home.relative_to("/")).mkdir(parents=True, exist_ok=True)
    for path in home.iterdir():
        if not any(prefix.is_relative_to(path) for prefix in python):
            white_out(upper / path.relative_to("/"))


def make_devices(folder: Path, extra: Mapping[str, Device], groups: Mapping[str, int]) -> None:
    """A fresh /dev. A group that the node does not have becomes root's, as udev leaves it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("pts", "shm"):
        (folder / name).mkdir(parents=True)
    (folder / "shm").chmod(0o1777)
    for name, target in DEVICE_LINKS.items():
        (folder / name).symlink_to(target)
    for name, device in {**PLAIN_DEVICES, **extra}.items():
        node = folder / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, 0o020000 | device.mode, os.makedev(device.major, device.minor))
        os.chown(node, 0, groups.get(device.group, 0))
        node.chmod(device.mode)


def group_ids(group_file: Path) -> dict[str, int]:
    """{group: gid} of an /etc/group."""
    rows = (line.split(":") for line in group_file.read_text().splitlines() if line.count(":") == 3)
    return {row[0]: int(row[2]) for row in rows}


def _make_accounts(upper: Path, client_key: str, user: str | None, sudo: bool) -> None:
    """Write the machine's accounts, all without a password, and the ordinary user where one is wanted."""
    texts = {name: Path("/etc", name).read_text() for name in ("passwd", "group")}
    names = [row.partition(":")[0] for row in texts["passwd"].splitlines()]
    texts["shadow"] = "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names)
    if user:
        texts["passwd"] += f"{user}:x:{USER_ID}:{USER_ID}:lab user:/home/{user}:/bin/bash\n"
        texts["group"] += f"{user}:x:{USER_ID}:\n"
        texts["shadow"] += f"{user}:*:19000:0:99999:7:::\n"
        home = upper / "home" / user
        write(home / ".ssh/authorized_keys", client_key, 0o600, USER_ID)
        for folder in (home, home / ".ssh"):
            os.chown(folder, USER_ID, USER_ID)
            folder.chmod(0o700)
    if user and sudo:
        write(upper / "etc/sudoers.d/sdlab", f"{user} ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    for name, text in texts.items():
        write(upper / "etc" / name, text, 0o640 if name == "shadow" else 0o644)
