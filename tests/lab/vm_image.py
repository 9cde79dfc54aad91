"""What the lab's virtual machines boot from: Debian trixie on an ext4 disk, its kernel, and a small initramfs.

Debian's own initramfs takes five seconds under emulation, and two minutes on a busy machine: it looks for any hardware
there could be. Ours holds busybox and the modules for virtio and ext4. At a disk's first boot it also unpacks the
machine's identity (name, address, keys), which the lab hands over as a tar on the second disk.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.lab import rootfs
from tests.lab.cache import cached, debian
from tests.lab.images import digest
from tests.lab.machine import require, run

HERE = Path(__file__).parent
COMMANDS = ("qemu-system-x86_64", "qemu-img", "mke2fs", "cpio", "busybox")
DISK_SIZE = "4G"
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")
KERNEL_ARGUMENTS = "console=ttyS0 net.ifnames=0 mitigations=off apparmor=0 panic=1 norandmaps init_on_alloc=0"
"""What an emulated machine needs, in GRUB_CMDLINE_LINUX. Mitigations cost a third of the speed, addresses that differ
from process to process a seventh (CPU seconds of torch's import, QEMU 7.2). A kernel that panics boots again."""

INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
for module in $(cat /modules/order); do insmod /modules/$module; done
until [ -b /dev/vda ]; do sleep 0.05; done
mount -t ext4 -o noatime /dev/vda /root || exit 1
if [ ! -e /root/etc/sdlab-identity ] && [ -b /dev/vdb ]; then
    tar -x -f /dev/vdb -C /root && touch /root/etc/sdlab-identity
fi
umount /proc
exec switch_root /root /sbin/init
"""

GRUB_DEFAULTS = f"""\
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="{KERNEL_ARGUMENTS}"
"""

MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "man-db.timer", "e2scrub_all.timer", "fstrim.timer"),
    *("dpkg-db-backup.timer", "logrotate.timer", "systemd-tmpfiles-clean.timer"),
    *("e2scrub_reap.service", "ldconfig.service", "systemd-networkd-persistent-storage.service"),
    *("systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount"),
    *("modprobe@configfs.service", "modprobe@drm.service", "modprobe@fuse.service", "modprobe@efi_pstore.service"),
    "systemd-journal-catalog-update.service",
)
"""A machine that wakes from a snapshot finds that days have passed, and would do all that the timers do at once. The
services are a quarter of a boot, and nothing here needs them."""
NOT_LOADED = (
    *("ata_generic", "ata_piix", "floppy", "psmouse", "serio_raw", "pcspkr", "i2c_piix4", "kvm_amd", "kvm_intel"),
    *("aesni_intel", "ghash_clmulni_intel", "sha1_ssse3", "sha256_ssse3", "sha512_ssse3"),
    *("crc32_pclmul", "crc32c_intel", "crct10dif_pclmul"),
)
"""Drivers that udev would load for what QEMU's machine has beside what it is here for."""
FSTAB = "LABEL=docker /var/lib/docker ext4 noatime 0 0\n"
STARTED_WHEN_USED = ("docker.service", "containerd.service")
"""Docker starts by its socket at the first command: it would cost every boot ten seconds."""


def build() -> Path:
    """A cached folder with `disk.img` (raw, sparse), `vmlinuz` and `initrd`. From nothing it takes two minutes."""
    require(*COMMANDS)
    packages = debian("vm-root", "trixie", (HERE / "vm_packages.txt").read_text().split())
    recipe = f"{digest(packages)} {DISK_SIZE} {MODULES} {INIT} {GRUB_DEFAULTS} {MASKED} {FSTAB} {STARTED_WHEN_USED}"
    recipe += f" {NOT_LOADED}"

    def make(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        tree = folder / "tree"
        tree.mkdir(parents=True)
        run(["tar", "-x", "-p", "--numeric-owner", "-f", str(packages), "-C", str(tree)])
        _settle(tree)
        _write_initrd(tree, folder / "initrd")
        shutil.copy(next((tree / "boot").glob("vmlinuz-*")), folder / "vmlinuz")
        image = str(folder / "disk.img")
        run(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-O", "^has_journal", "-d", str(tree), image, DISK_SIZE])
        shutil.rmtree(tree)

    return cached("vm", recipe, make)


def _settle(tree: Path) -> None:
    """What a freshly unpacked Debian lacks to boot by itself and to be logged in to."""
    rootfs.write(tree / "etc/default/grub", GRUB_DEFAULTS)
    rootfs.write(tree / "etc/fstab", FSTAB)
    rootfs.write(tree / "etc/modprobe.d/sdlab.conf", "".join(f"blacklist {name}\n" for name in NOT_LOADED))
    (tree / "var/lib/docker").mkdir(exist_ok=True)
    (tree / "boot/grub").mkdir(exist_ok=True)
    (tree / "etc/machine-id").write_text("uninitialized\n")
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    units = tree / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).symlink_to("/dev/null")
    for unit in STARTED_WHEN_USED:
        (units / "multi-user.target.wants" / unit).unlink(missing_ok=True)
    for name in ("systemd-networkd.service", "ssh.service"):
        (units / "multi-user.target.wants" / name).unlink(missing_ok=True)
        (units / "multi-user.target.wants" / name).symlink_to(f"/usr/lib/systemd/system/{name}")


def _write_initrd(tree: Path, target: Path) -> None:
    root = target.with_name("initrd.tree")
    for name in ("bin", "modules", "dev", "proc", "root"):
        (root / name).mkdir(parents=True)
    busybox = next(path for path in (Path("/bin/busybox"), Path("/usr/bin/busybox")) if path.exists())
    shutil.copy(busybox, root / "bin/busybox")
    rootfs.write(root / "init", INIT, 0o755)
    order = []
    for module in _modules(next((tree / "usr/lib/modules").iterdir())):
        name = module.name.removesuffix(".xz")
        content = module.read_bytes()
        (root / "modules" / name).write_bytes(lzma.decompress(content) if module.suffix == ".xz" else content)
        order.append(name)
    (root / "modules/order").write_text("\n".join(order))
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    pack = ["cpio", "-o", "-H", "newc", "--quiet"]
    made = subprocess.run(pack, input=names.encode(), cwd=root, capture_output=True, check=True)
    target.write_bytes(gzip.compress(made.stdout, 1))
    shutil.rmtree(root)


def _modules(folder: Path) -> Iterator[Path]:
    """Files of MODULES and what they depend on, in the order in which they can be loaded."""
    depends = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        module, _, rest = line.partition(":")
        depends[Path(module).name.partition(".")[0]] = (module, rest.split())
    seen = set[str]()
    for name in MODULES:
        path, needed = depends.get(name, ("", []))
        if not path:  # built into this kernel
            continue
        # modules.dep lists what a module needs directly first; the last one needs nothing.
        for file in [*reversed(needed), path]:
            if file not in seen:
                seen.add(file)
                yield folder / file
