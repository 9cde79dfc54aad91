"""Virtual machines as nodes: a kernel of their own, real reboots, real drivers, under software emulation.

    with vms(2) as lab:                                   # 10 s on a quiet machine, once the snapshot is there
        lab.inventory(tmp_path / "lab.py")
        lab["vm1"].exec("modprobe amdgpu; ls -l /dev/kfd")   # by the guest agent, not over ssh

They wake from a snapshot (vm_golden.py), with docker running and the training image's layers on its disk, and are given
an identity. A reboot is a boot from the beginning.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

from tests.lab import slots, vm_golden, vm_image
from tests.lab.hosts import Hosts, mac, running
from tests.lab.machine import LabError, require, require_root, run
from tests.lab.node_spec import NodeSpec, Wanted, each
from tests.lab.registry import PLAIN_PORTS
from tests.lab.rootfs import KeyPair
from tests.lab.vm_identity import ADOPT, Identity
from tests.lab.vm_machine import EmulatedMachine, copy_disk, overlay_disk

BOOT_WAIT_S = 400
"""A boot takes 15 s on a quiet machine and four times as long beside three others."""
FIRST_HOST = 800
INTERFACES = ("ens3", "eno1", "enp1s0", "eth-a")


class Vm(EmulatedMachine):
    """One virtual machine, with the same verbs as a namespace node."""

    def __init__(self, slot: slots.Slot, index: int, spec: NodeSpec, host_key: KeyPair, client_key: str) -> None:
        if spec.proc or spec.sys or spec.sys_tree or spec.dev:
            raise LabError("a virtual machine's /proc, /sys and /dev are its kernel's: they cannot be set from outside")
        self.spec = replace(
            spec, name=spec.name or f"vm{index}", interface=spec.interface or INTERFACES[(index - 1) % len(INTERFACES)]
        )
        self.interface = self.spec.interface
        self.address: IPv4Address = slot.network[FIRST_HOST + index]
        self.host_key = host_key
        folder = slot.disk / f"v{index}"
        folder.mkdir()
        super().__init__(slot, self.spec.name, folder, slot.link(FIRST_HOST + index), mac(self.address))
        files = {**self._network(), **self.spec.files}
        Identity(self.name, host_key, client_key, files, spec.user, spec.sudo).write(folder / "identity.tar")

    def processes(self) -> list[str]:
        """Command lines of what runs in containers and in users' sessions: none of it belongs to the system."""
        listed = self.exec("ps -eo pid,cgroup:200,args --no-headers | awk '$2 ~ /user.slice|docker-|libpod/'").stdout
        lines = (line.split(None, 2) for line in listed.splitlines())
        own = ("sshd", "/usr/lib/systemd/systemd --user", "(sd-pam)")
        return [line[2] for line in lines if len(line) == 3 and not line[2].startswith(own)]

    def freeze(self) -> None:
        """SIGSTOP to every sshd of the machine: its kernel still accepts connections, nobody answers."""
        self.exec("pkill -STOP '^sshd'")

    def thaw(self) -> None:
        self.exec("pkill -CONT '^sshd'")

    def cut(self) -> None:
        """Pull the cable."""
        self.set_link(up=False)

    def heal(self) -> None:
        self.set_link(up=True)

    def up(self) -> None:
        """Power on after `down` and wait for ssh."""
        self.power_on()
        self.wait()

    def wake(self, golden: Path, *, dies_with_us: bool = True) -> None:
        """Power on for the first time, from the snapshot; `adopt` gives it its own identity."""
        copy_disk(golden / "disk.img", self.folder)
        overlay_disk(golden / "docker.qcow2", "qcow2", self.folder)
        self.power_on(state=golden / "state", dies_with_us=dies_with_us)

    def adopt(self) -> None:
        self.wait_for_agent(BOOT_WAIT_S)
        values = {"mac": self.mac, "mtu": self.spec.mtu, "interface": self.interface}
        self.exec(ADOPT.format(now=time.time(), **values), timeout=BOOT_WAIT_S)

    def wait(self, timeout: float = BOOT_WAIT_S) -> None:
        """Wait for sshd's banner. Raises LabError with the end of the console."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.has_power:
            with contextlib.suppress(OSError), socket.create_connection((str(self.address), 22), 5) as connection:
                connection.settimeout(20)
                if connection.recv(4) == b"SSH-":
                    return
            time.sleep(0.2)
        raise LabError(f"{self.name} did not come up: {self.console()[-2000:]}")

    def _network(self) -> dict[str, str]:
        """networkd's files for the interface, and the registries that docker may speak plain http with."""
        match = f"[Match]\nMACAddress={self.mac}\n\n"
        address = f"{self.address}/{self._slot.network.prefixlen}"
        insecure = ", ".join(f'"{self._slot.gateway}:{port}"' for port in PLAIN_PORTS)
        return {
            "etc/systemd/network/10-lab.link": f"{match}[Link]\nName={self.interface}\nMTUBytes={self.spec.mtu}\n",
            "etc/systemd/network/10-lab.network": (
                f"{match}[Network]\nAddress={address}\nGateway={self._slot.gateway}\nIPv6AcceptRA=no\n"
            ),
            "etc/docker/daemon.json": f'{{"insecure-registries": [{insecure}]}}\n',
        }


class VmLab(Hosts[Vm]):
    """Virtual machines on one bridge."""

    def __init__(self, slot: slots.Slot, specs: Sequence[NodeSpec]) -> None:
        super().__init__(slot)
        public = self.client_key.public
        self._know([Vm(slot, i, spec, KeyPair.generate(), public) for i, spec in enumerate(specs, start=1)])

    def start(self, *, dies_with_us: bool) -> None:
        golden = vm_golden.build()
        run(["ip", "-batch", "-"], stdin="\n".join(line for vm in self.nodes for line in vm.plug()) + "\n")
        for vm in self.nodes:
            vm.wake(golden, dies_with_us=dies_with_us)
        for vm in self.nodes:
            vm.adopt()
        for vm in self.nodes:
            vm.wait()

    def stop(self) -> None:
        for vm in self.nodes:
            vm.down()

    def host_data(self, node: Vm, *, user: str | None = None) -> dict[str, object]:
        """As for any host, with patience: an emulated machine on busy cores takes its time to let somebody in."""
        patience = {"banner_timeout": 90, "auth_timeout": 90, "channel_timeout": 90}
        return {**super().host_data(node, user=user), "ssh_paramiko_connect_kwargs": patience}


def vms(
    machines: Wanted = 2, spec: NodeSpec | None = None, *, stay: bool = False, beside: slots.Slot | None = None
) -> AbstractContextManager[VmLab]:
    """Virtual machines: a number, all like `spec`, or one NodeSpec each, without `proc`, `sys`, `sys_tree` and `dev`.

    Raises LabError."""
    require_root()
    require(*vm_image.COMMANDS, "ip", "ssh")
    specs = each(machines, spec)
    return running(lambda slot: VmLab(slot, specs), stay=stay, beside=beside)
