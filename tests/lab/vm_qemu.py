"""QEMU for one virtual machine: its command line, and the process that keeps it running.

    python -m tests.lab.vm_qemu FOLDER SLOT

starts the machine of a folder and starts it again whenever it reboots, until this process is told to end (SIGTERM), as
a rack's power supply would. The keeper plays the boot loader: at every boot it takes the kernel's command line from the
grub.cfg on the machine's disk, as `update-grub` in the machine wrote it.

A machine's folder holds `machine.json` (`Hardware`), `disk.img`, `docker.qcow2` and `identity.tar`; the keeper adds
`console.log`, `qemu.log` and the sockets `qmp` and `agent`.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel

from tests.lab import slots, vm_image
from tests.lab.machine import DIES_WITH_US, SBIN_PATH, run

MEMORY_MB = 2048
"""Room for one rank of the small GPT (0.6 GB) beside the system and its container engine. What is not used costs
nothing."""


class Hardware(BaseModel):
    """What QEMU has to know of a machine. `image` is the folder of `vm_image.build()`; `state`, where set, is memory to
    wake up with, at the first start only."""

    image: Path
    tap: str
    mac: str
    uuid: str
    state: Path | None = None


def kernel_arguments(folder: Path) -> str:
    """What the boot loader would pass now: grub.cfg's first entry, or the image's own before any update-grub."""
    shown = run(["debugfs", "-R", "cat /boot/grub/grub.cfg", str(folder / "disk.img")], check=False).stdout
    if entry := re.search(r"^\s*linux\s+\S+\s+(.*)$", shown, re.MULTILINE):
        return entry[1].strip()
    return f"root=/dev/vda rw {vm_image.KERNEL_ARGUMENTS} quiet"


def command(folder: Path, machine: Hardware, *, wake: bool) -> list[str]:
    """QEMU's argv, for a boot or to `wake` from the machine's saved state."""
    # thread=multi lets the kernel of a machine on busy cores find its other CPU stuck, and panic.
    # Fast string moves (erms, fsrm) are slow ones when they are emulated byte by byte.
    shape = ["-accel", "tcg,thread=single,tb-size=512", "-cpu", "max,erms=off,fsrm=off"]
    shape += ["-smp", "2", "-m", str(MEMORY_MB)]
    for number in (0, 1):
        shape += ["-object", f"memory-backend-ram,size={MEMORY_MB // 2}M,id=m{number}"]
        shape += ["-numa", f"node,nodeid={number},cpus={number},memdev=m{number}"]
    boot = ["-kernel", str(machine.image / "vmlinuz"), "-initrd", str(machine.image / "initrd")]
    boot += ["-append", kernel_arguments(folder)]
    disks = []
    for name, form in (("disk.img", "raw"), ("identity.tar", "raw"), ("docker.qcow2", "qcow2")):
        disks += ["-drive", f"file={folder / name},if=virtio,format={form},cache=unsafe"]
    network = ["-netdev", f"tap,id=n0,ifname={machine.tap},script=no,downscript=no"]
    network += ["-device", f"virtio-net-pci,id=nic0,netdev=n0,mac={machine.mac},romfile="]
    control = ["-qmp", f"unix:{folder / 'qmp'},server=on,wait=off", "-device", "virtio-serial-pci"]
    control += ["-chardev", f"socket,path={folder / 'agent'},server=on,wait=off,id=agent"]
    control += ["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]
    bare = ["-nographic", "-nodefaults", "-no-user-config", "-no-reboot", "-serial", "stdio"]
    more = ["-device", "virtio-rng-pci", "-uuid", machine.uuid]
    memory = ["-incoming", f"exec:cat {shlex.quote(str(machine.state))}"] if wake else []
    return ["qemu-system-x86_64", *bare, *shape, *boot, *disks, *network, *control, *more, *memory]


def keep(folder: Path, slot: slots.Slot) -> None:
    """Run QEMU, which ends when the machine reboots, again and again. Returns when QEMU failed."""
    machine = Hardware.model_validate_json((folder / "machine.json").read_text())
    wake = machine.state is not None
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    while True:
        with (folder / "console.log").open("ab") as console, (folder / "qemu.log").open("ab") as log:
            argv = [*DIES_WITH_US, *command(folder, machine, wake=wake)]
            running = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=console, stderr=log, env={"PATH": SBIN_PATH}
            )
        slot.record(running.pid)
        try:
            if running.wait():
                return
        finally:
            running.kill()
            running.wait()
        wake = False


if __name__ == "__main__":
    keep(Path(sys.argv[1]), slots.Slot(int(sys.argv[2]), lock_fd=-1))
