"""A machine that has booted and started its container engine, asleep: `state` is its memory, the disks as it left them.

Machines that wake from it answer ssh within seconds, where a boot takes a minute on busy cores.
"""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path

from tests.lab import qemu_socket, slots, vm_docker, vm_image, vm_qemu
from tests.lab.cache import cached
from tests.lab.machine import LabError, run
from tests.lab.rootfs import KeyPair
from tests.lab.vm_identity import SIZE, Identity
from tests.lab.vm_machine import EmulatedMachine, copy_disk, overlay_disk

BOOT_WAIT_S = 600
SETTLED = "systemctl start docker && docker info >/dev/null && systemctl is-system-running --wait"


def build() -> Path:
    """A cached folder with `state`, `disk.img` and `docker.qcow2`, which lies over the disk of `vm_docker`.

    From nothing it takes a minute beside what its disks take.
    """
    image, docker = vm_image.build(), vm_docker.build()
    emulator = run(["qemu-system-x86_64", "--version"]).stdout
    recipe = f"{image.name} {docker.name} {emulator} {Path(vm_qemu.__file__).read_text()} {SETTLED} {SIZE}"

    def make(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with slots.place() as slot:
            machine = EmulatedMachine(slot, "golden", folder, slot.link(1), "02:5d:00:00:00:01")
            Identity("golden", KeyPair.generate()).write(folder / "identity.tar")
            copy_disk(image / "disk.img", folder)
            overlay_disk(docker, "raw", folder)
            run(["ip", "-batch", "-"], stdin="\n".join(machine.plug()))
            try:
                machine.power_on()
                machine.wait_for_agent(BOOT_WAIT_S)
                machine.exec(SETTLED, timeout=BOOT_WAIT_S)
                machine.exec("sync")
                _save(machine, folder / "state")
            finally:
                machine.down()

    return cached("vm-golden", recipe, make)


def _save(machine: EmulatedMachine, target: Path) -> None:
    """Write the machine's memory; it stands still from then on. Raises LabError."""
    with qemu_socket.monitor(machine.folder / "qmp") as monitor:
        monitor.ask("migrate-set-parameters", **{"max-bandwidth": 2**34})
        monitor.ask("migrate", uri=f"exec:cat > {shlex.quote(str(target))}")
        deadline = time.monotonic() + 120
        while (status := monitor.ask("query-migrate"))["status"] != "completed":
            if status["status"] == "failed" or time.monotonic() > deadline:
                raise LabError(f"no snapshot: {status}")
            time.sleep(0.2)
        monitor.ask("quit")
