"""One emulated machine as seen from outside: power, console, and commands by its guest agent rather than over ssh."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from tests.lab import qemu_socket, slots, vm_image
from tests.lab.machine import DIES_WITH_US, SBIN_PATH, LabError, run
from tests.lab.vm_qemu import Hardware, kernel_arguments

CHECKOUT = Path(__file__).parents[2]
PRIORITY = -5


class EmulatedMachine:
    """A machine in a folder with its disks; `tap` is its end of a cable, and `mac` that of its interface."""

    def __init__(self, slot: slots.Slot, name: str, folder: Path, tap: str, mac: str) -> None:
        self.name, self.folder, self.tap, self.mac = name, folder, tap, mac
        self._slot = slot
        self._keeper: subprocess.Popen[bytes] | None = None

    def plug(self) -> list[str]:
        """The lines for `ip -batch` that make the machine's tap on the bridge."""
        return [f"tuntap add {self.tap} mode tap", f"link set {self.tap} master {self._slot.bridge} up"]

    def power_on(self, *, state: Path | None = None, dies_with_us: bool = True) -> None:
        """Start it, or wake it from the `state` of its memory; from then on reboots are its own affair."""
        number = str(uuid.uuid5(uuid.NAMESPACE_OID, self.mac))
        hardware = Hardware(image=vm_image.build(), tap=self.tap, mac=self.mac, uuid=number, state=state)
        (self.folder / "machine.json").write_text(hardware.model_dump_json())
        lifeline = DIES_WITH_US if dies_with_us else []
        with (self.folder / "qemu.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [*lifeline, sys.executable, "-m", "tests.lab.vm_qemu", str(self.folder), str(self._slot.number)],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._slot.record(self._keeper.pid)
        prefer(self._keeper.pid)

    def down(self) -> None:
        """Power off without warning."""
        if self._keeper is not None:
            self._keeper.terminate()
            self._keeper.wait()
            self._keeper = None

    @property
    def has_power(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def exec(self, command: str, *, check: bool = True, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root by the guest agent. Raises LabError when it fails and `check` holds."""
        argv = ["sh", "-c", command]
        environment = [f"PATH={SBIN_PATH}", "HOME=/root", "LC_ALL=C.UTF-8"]
        deadline = time.monotonic() + timeout
        with qemu_socket.agent(self.folder / "agent", timeout) as guest:
            job = {"path": "/bin/sh", "arg": argv[1:], "env": environment, "capture-output": True}
            pid = guest.ask("guest-exec", **job)["pid"]
            while not (state := guest.ask("guest-exec-status", pid=pid))["exited"]:
                if time.monotonic() > deadline:
                    raise LabError(f"{self.name}: still running after {timeout} s: {command}")
                time.sleep(0.2)
        out, err = (base64.b64decode(state.get(key, "")).decode(errors="replace") for key in ("out-data", "err-data"))
        code = state.get("exitcode", -int(state.get("signal", 0)))
        if check and code:
            raise LabError(f"{self.name}: {command}: exit {code}: {(err or out)[-2000:]}")
        return subprocess.CompletedProcess(argv, code, out, err)

    def read(self, path: str) -> str:
        return self.exec(f"cat '{path}'").stdout

    def write(self, path: str, text: str) -> None:
        encoded = base64.b64encode(text.encode()).decode()
        self.exec(f"echo {encoded} | base64 -d > '{path}'")

    def wait_for_agent(self, timeout: float) -> None:
        """Until commands can be run. Raises LabError with what QEMU and the end of the console say."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.has_power:
            try:
                with qemu_socket.agent(self.folder / "agent", 10):
                    return
            except LabError:
                time.sleep(0.2)
        said = (self.folder / "qemu.log").read_text(errors="replace")
        raise LabError(f"{self.name} did not come up: {said[-1000:]} {self.console()[-2000:]}")

    def console(self) -> str:
        """What the kernel and systemd wrote to the serial console, over all boots."""
        log = self.folder / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def kernel_arguments(self) -> str:
        """What the next boot passes to the kernel."""
        return kernel_arguments(self.folder)

    def set_link(self, *, up: bool) -> None:
        with qemu_socket.monitor(self.folder / "qmp") as monitor:
            monitor.ask("set_link", name="nic0", up=up)


def copy_disk(image: Path, folder: Path) -> None:
    """A machine's own root disk. It is raw, not an overlay: `kernel_arguments` reads it from outside."""
    run(["cp", "--sparse=always", "--reflink=auto", str(image), str(folder / "disk.img")])


def overlay_disk(base: Path, form: str, folder: Path) -> None:
    """A machine's own disk for its container engine, over one that is shared."""
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", form, str(folder / "docker.qcow2")])


def prefer(pid: int) -> None:
    """Give a session's first process, and what it starts, the time of three on busy cores: the virtual machines take
    longest of all, with a thread each. Linux goes by the session where it groups processes by it, else by the process.
    """
    with contextlib.suppress(OSError):  # a container may not raise a priority
        os.setpriority(os.PRIO_PROCESS, pid, PRIORITY)
        Path(f"/proc/{pid}/autogroup").write_text(str(PRIORITY))
