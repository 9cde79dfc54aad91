"""Virtual machines as nodes: a kernel of their own, real reboots, real drivers, under software emulation.

    with vms(2) as lab:                                   # about 40 s on a quiet machine
        lab.inventory(tmp_path / "lab.py")
        lab["vm1"].exec("modprobe amdgpu; ls -l /dev/kfd")   # by the guest agent, not over ssh

The lab plays the boot loader: at every boot it takes the kernel's command line from the grub.cfg on the machine's disk,
as `update-grub` in the machine wrote it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import subprocess
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address

from tests.lab import qemu_socket, slots, vm_image
from tests.lab.hosts import Hosts
from tests.lab.images import add_file
from tests.lab.machine import SBIN_PATH, LabError, require, require_root, run
from tests.lab.node_spec import NodeSpec
from tests.lab.registry import PLAIN_PORTS
from tests.lab.rootfs import USER_ID, KeyPair

BOOT_WAIT_S = 400
"""A boot takes 15 s on a quiet machine and four times as long beside three others."""
FIRST_HOST = 800
MEMORY_MB = 768
INTERFACES = ("ens3", "eno1", "enp1s0", "eth-a")


class Vm:
    """One virtual machine, with the same verbs as a namespace node."""

    def __init__(self, slot: slots.Slot, index: int, spec: NodeSpec, host_key: KeyPair, client_key: str) -> None:
        if spec.proc or spec.sys or spec.sys_tree or spec.dev:
            raise LabError("a virtual machine's /proc, /sys and /dev are its kernel's: they cannot be set from outside")
        self.spec = replace(
            spec, name=spec.name or f"vm{index}", interface=spec.interface or INTERFACES[(index - 1) % len(INTERFACES)]
        )
        self.name, self.interface = self.spec.name, self.spec.interface
        self.address: IPv4Address = slot.network[FIRST_HOST + index]
        self.host_key = host_key
        self.folder = slot.disk / f"v{index}"
        self.folder.mkdir()
        self._slot, self._tap = slot, f"{slot.bridge}n{FIRST_HOST + index}"
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._off = threading.Event()
        self._write_identity(client_key)

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
                time.sleep(0.05)
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
        self._set_link(up=False)

    def heal(self) -> None:
        self._set_link(up=True)

    def down(self) -> None:
        """Power off without warning."""
        self._off.set()
        if self._process is not None:
            self._process.kill()
        if self._keeper is not None:
            self._keeper.join()

    def up(self) -> None:
        """Power on after `down` and wait for ssh."""
        self.power_on()
        self.wait()

    def power_on(self) -> None:
        self._off.clear()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def wait(self, timeout: float = BOOT_WAIT_S) -> None:
        """Wait for sshd's banner. Raises LabError with the end of the console."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._keeper is not None and self._keeper.is_alive():
            with contextlib.suppress(OSError), socket.create_connection((str(self.address), 22), 5) as connection:
                connection.settimeout(20)
                if connection.recv(4) == b"SSH-":
                    return
            time.sleep(0.2)
        raise LabError(f"{self.name} did not come up: {self.console()[-2000:]}")

    def console(self) -> str:
        """What the kernel and systemd wrote to the serial console, over all boots."""
        log = self.folder / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def kernel_arguments(self) -> str:
        """What the boot loader would pass now: grub.cfg's first entry, or the image's own before any update-grub."""
        shown = run(["debugfs", "-R", "cat /boot/grub/grub.cfg", str(self.folder / "disk.img")], check=False).stdout
        if entry := re.search(r"^\s*linux\s+\S+\s+(.*)$", shown, re.MULTILINE):
            return entry[1].strip()
        return f"root=/dev/vda rw {vm_image.KERNEL_ARGUMENTS} quiet"

    def _keep(self) -> None:
        """Run QEMU, which ends when the machine reboots, again and again until `down`."""
        while not self._off.is_set():
            with (self.folder / "console.log").open("ab") as console, (self.folder / "qemu.log").open("ab") as log:
                self._process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", *self._qemu(self.kernel_arguments())],
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=log,
                    env={"PATH": SBIN_PATH},
                    start_new_session=True,
                )
                self._slot.record(self._process.pid)
                if self._process.wait() > 0:
                    return

    def _qemu(self, kernel_arguments: str) -> list[str]:
        half = MEMORY_MB // 2
        shape = ["-accel", "tcg,thread=single,tb-size=256", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MB)]
        for number in (0, 1):
            shape += ["-object", f"memory-backend-ram,size={half}M,id=m{number}"]
            shape += ["-numa", f"node,nodeid={number},cpus={number},memdev=m{number}"]
        folder, image = self.folder, vm_image.build()
        boot = ["-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"), "-append", kernel_arguments]
        disks = []
        for name in ("disk.img", "identity.tar"):
            disks += ["-drive", f"file={folder / name},if=virtio,format=raw,cache=unsafe"]
        network = ["-netdev", f"tap,id=n0,ifname={self._tap},script=no,downscript=no"]
        network += ["-device", f"virtio-net-pci,id=nic0,netdev=n0,mac={self._mac()},romfile="]
        control = ["-qmp", f"unix:{folder / 'qmp'},server=on,wait=off", "-device", "virtio-serial-pci"]
        control += ["-chardev", f"socket,path={folder / 'agent'},server=on,wait=off,id=agent"]
        control += ["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]
        bare = ["-nographic", "-nodefaults", "-no-user-config", "-no-reboot", "-serial", "stdio"]
        more = ["-device", "virtio-rng-pci", "-uuid", str(uuid.uuid5(uuid.NAMESPACE_OID, str(self.address)))]
        return ["qemu-system-x86_64", *bare, *shape, *boot, *disks, *network, *control, *more]

    def _mac(self) -> str:
        return ":".join(f"{byte:02x}" for byte in (0x02, 0x5D, *self.address.packed))

    def _set_link(self, *, up: bool) -> None:
        with qemu_socket.monitor(self.folder / "qmp") as machine:
            machine.ask("set_link", name="nic0", up=up)

    def plug(self) -> list[str]:
        """The lines for `ip -batch` that make the machine's tap on the bridge."""
        return [f"tuntap add {self._tap} mode tap", f"link set {self._tap} master {self._slot.bridge} up"]

    def _write_identity(self, client_key: str) -> None:
        """The tar that the initramfs unpacks at the first boot, padded to what a disk has to be."""
        spec, match = self.spec, f"[Match]\nMACAddress={self._mac()}\n\n"
        address = f"{self.address}/{self._slot.network.prefixlen}"
        network = f"[Network]\nAddress={address}\nGateway={self._slot.gateway}\nIPv6AcceptRA=no\n"
        files: dict[str, tuple[str | bytes, int]] = {
            "etc/hostname": (f"{self.name}\n", 0o644),
            "etc/hosts": (f"127.0.0.1\tlocalhost\n127.0.1.1\t{self.name}\n::1\tlocalhost\n", 0o644),
            "etc/machine-id": (f"{uuid.uuid4().hex}\n", 0o444),
            "etc/ssh/ssh_host_ed25519_key": (self.host_key.private, 0o600),
            "etc/ssh/ssh_host_ed25519_key.pub": (self.host_key.public, 0o644),
            "etc/ssh/sshd_config.d/lab.conf": ("PermitRootLogin prohibit-password\nUseDNS no\n", 0o644),
            "etc/systemd/network/10-lab.link": (f"{match}[Link]\nName={self.interface}\nMTUBytes={spec.mtu}\n", 0o644),
            "etc/systemd/network/10-lab.network": (f"{match}{network}", 0o644),
            "root/.ssh/authorized_keys": (client_key, 0o600),
        }
        if spec.docker:
            insecure = ", ".join(f'"{self._slot.gateway}:{port}"' for port in PLAIN_PORTS)
            files["etc/docker/daemon.json"] = (f'{{"insecure-registries": [{insecure}]}}\n', 0o644)
        content: str | bytes
        for path, content in spec.files.items():
            script = content.startswith("#!" if isinstance(content, str) else b"#!")
            files[path] = (content, 0o755 if script else 0o644)
        tar_file = self.folder / "identity.tar"
        with tarfile.open(tar_file, "w") as tar:
            for path, (content, mode) in files.items():
                add_file(tar, path, content.encode() if isinstance(content, str) else content, mode)
            if spec.user:
                line = f'u {spec.user} {USER_ID}:{USER_ID} "lab user" /home/{spec.user} /bin/bash\n'
                add_file(tar, "etc/sysusers.d/lab.conf", f"g {spec.user} {USER_ID}\n{line}".encode())
                _add_home(tar, spec.user, client_key)
            if spec.user and spec.sudo:
                add_file(tar, "etc/sudoers.d/lab", f"{spec.user} ALL=(ALL) NOPASSWD: ALL\n".encode(), 0o440)
        os.truncate(tar_file, (tar_file.stat().st_size + 4095) // 4096 * 4096)


class VmLab(Hosts[Vm]):
    """Virtual machines on one bridge."""

    def __init__(self, slot: slots.Slot, specs: Sequence[NodeSpec]) -> None:
        super().__init__(slot)
        public = self.client_key.public
        self._know([Vm(slot, i, spec, KeyPair.generate(), public) for i, spec in enumerate(specs, start=1)])

    def start(self) -> None:
        image = vm_image.build()
        run(["ip", "-batch", "-"], stdin="\n".join(line for vm in self.nodes for line in vm.plug()) + "\n")
        for vm in self.nodes:
            run(["cp", "--sparse=always", "--reflink=auto", str(image / "disk.img"), str(vm.folder / "disk.img")])
            vm.power_on()
        for vm in self.nodes:
            vm.wait()

    def stop(self) -> None:
        for vm in self.nodes:
            vm.down()


@contextmanager
def vms(
    machines: int | Sequence[NodeSpec] = 2, spec: NodeSpec | None = None, *, beside: slots.Slot | None = None
) -> Iterator[VmLab]:
    """Boot virtual machines, in parallel, and end them on the way out. Raises LabError.

    `machines` is a number, all like `spec`, or one NodeSpec per machine, without `proc`, `sys`, `sys_tree` and `dev`.
    `beside` puts them on the bridge of another lab.
    """
    require_root()
    require({**vm_image.COMMANDS, "ip": "iproute2", "ssh": "openssh-client"})
    specs = [spec or NodeSpec()] * machines if isinstance(machines, int) else list(machines)
    with slots.place(beside) as slot:
        built = VmLab(slot, specs)
        try:
            built.start()
            yield built
        finally:
            built.stop()


def _add_home(tar: tarfile.TarFile, user: str, client_key: str) -> None:
    """The ordinary user's home with its key, owned by it."""
    for path in (f"home/{user}", f"home/{user}/.ssh"):
        folder = tarfile.TarInfo(path)
        folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o700, USER_ID, USER_ID
        tar.addfile(folder)
    add_file(tar, f"home/{user}/.ssh/authorized_keys", client_key.encode(), 0o600, USER_ID)
