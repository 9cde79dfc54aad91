"""Namespace nodes: SSH hosts on this machine, each in network, mount, UTS, IPC and PID namespaces of its own.

    with rack(3) as lab:
        lab.inventory(tmp_path / "lab.py")      # for: pyinfra lab.py deploy/megatron.py
        lab["node2"].exec("cat /etc/hostname")  # out of band, not through sshd

A node's root file system is an overlay over the machine's own, so that python3 and the virtual environment are usable
on it, and whatever it writes stays in its upper layer in memory. All nodes hang on one bridge, on which the machine has
an address.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from tests.lab import engine, mounts, rootfs, slots
from tests.lab.hosts import Hosts, mac, running
from tests.lab.machine import DIES_WITH_US, SBIN_PATH, LabError, require, require_root, run
from tests.lab.node_spec import PROC, NodeSpec, Wanted, each
from tests.lab.processes import Process, inside
from tests.lab.registry import PLAIN_PORTS
from tests.lab.rootfs import KeyPair

COMMANDS = ("ip", "sshd", "ssh", "sysctl")
INTERFACES = ("eth-a", "ens3", "eno1", "enp65s0f0np0", "p1p1", "lan0", "eth7", "bond-rack")
INIT = Path(__file__).with_name("node_init.sh")
INIT_WAITS = ("sleep", "2147483647")
SSH_WAIT_S = 180
FIRST_HOST = 10
INFRASTRUCTURE = frozenset({"sshd", "sshd-session"}) | engine.PROCESSES
"""Names of the processes that a node has when nobody uses it."""


class Node:
    """One namespace node. Its processes, files and cable are within reach from outside, whatever its sshd does."""

    def __init__(self, slot: slots.Slot, index: int, spec: NodeSpec, host_key: KeyPair, client_key: str) -> None:
        self.spec = replace(
            spec,
            name=spec.name or f"node{index}",
            interface=spec.interface or _interface(index),
            proc={**PROC, **spec.proc},
        )
        self.name, self.interface = self.spec.name, self.spec.interface
        self.address: IPv4Address = slot.network[FIRST_HOST + index]
        self.host_key = host_key
        self.folder = slot.folder / f"n{index}"
        self.init_pid = 0  # of the node's PID 1, on the machine; 0 while the node is down
        self._slot, self._link = slot, slot.link(index)
        self._cgroup = self._link
        self._launcher: subprocess.Popen[bytes] | None = None
        prefix = IPv4Interface(f"{self.address}/{slot.network.prefixlen}")
        for layer in ("upper", "work", "root"):
            (self.folder / layer).mkdir(parents=True)
        rootfs.make_identity(self.upper, self.name, prefix, host_key, client_key, spec.user, spec.sudo)
        told = (str(slot.gateway), PLAIN_PORTS, self._cgroup, spec.daemon)
        brought = engine.started_at_boot(*told) if spec.docker else {}
        for path, text in {**brought, **spec.files}.items():
            rootfs.write(self.upper / path, text, 0o755 if text.startswith("#!") else 0o644)
        lines = ["link set lo up", f"addr add {prefix} dev {self.interface}"]
        lines += [f"link set {self.interface} mtu {spec.mtu} up", f"route add default via {slot.gateway}"]
        (self.folder / "ip").write_text("\n".join(lines) + "\n")

    @property
    def upper(self) -> Path:
        """What the node has written: the upper layer of its root file system, also while it is down."""
        return self.folder / "upper"

    @property
    def sshd_log(self) -> str:
        """sshd's log at level DEBUG, over all boots."""
        log = self.upper / "var/log/sshd.log"
        return log.read_text(errors="replace") if log.exists() else ""

    @property
    def root(self) -> Path:
        """The node's whole file system, seen from outside, while it is up."""
        return Path(f"/proc/{self._up_pid()}/root")

    def exec(self, command: str, *, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the node as root, out of band. Raises LabError when it fails and `check` holds."""
        enter = ["nsenter", "-t", str(self._up_pid()), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        env = ["env", "-i", f"PATH={SBIN_PATH}", "HOME=/root", "LC_ALL=C.UTF-8"]
        return run([*enter, *env, "sh", "-c", command], check=check, timeout=timeout)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def write(self, path: str, text: str) -> None:
        (self.root / path.lstrip("/")).write_text(text)

    def processes(self) -> list[Process]:
        """What runs on the node, containers included, besides its init, services and open ssh sessions."""
        found = [process for process in inside(self._up_pid()) if process.name not in INFRASTRUCTURE]
        return [process for process in found if process.args != INIT_WAITS]

    def freeze(self) -> None:
        """SIGSTOP to every sshd of the node: the kernel still accepts connections, nobody answers."""
        self._signal_sshd(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_sshd(signal.SIGCONT)

    def exec_channels(self) -> int:
        """How many commands were run over ssh so far: one per exec channel, none for a bare connection."""
        return len(re.findall(r"^Starting session: (?:command|forced-command)", self.sshd_log, re.MULTILINE))

    def cut(self) -> None:
        """Pull the node's cable: packets are lost, open connections hang, the node sees no carrier."""
        run(["ip", "link", "set", self._link, "down"])

    def heal(self) -> None:
        run(["ip", "link", "set", self._link, "up"])

    def down(self) -> None:
        """Power off: every process is gone at once.

        Its files stay, as on a disk; /run, /tmp, /dev and kernel values do not.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._up_pid(), signal.SIGKILL)
        if self._launcher is not None:
            self._launcher.wait()
        self.init_pid = 0
        run(["ip", "link", "delete", self._link], check=False)

    def up(self) -> None:
        """Power on after `down`, with a new boot id, and wait for ssh."""
        self.spawn(dies_with_us=not (self._slot.folder / "standing").exists())
        plug_in([self])
        self.wait()

    def spawn(self, *, dies_with_us: bool) -> None:
        """Start the node's init; it waits for `plug_in`."""
        self._prepare_boot()
        lifeline = DIES_WITH_US if dies_with_us else ()
        spaces = ["unshare", "-m", "-u", "-i", "-n", "-p", "--fork", "--kill-child", "--propagation", "private"]
        with (self.folder / "console.log").open("ab") as console:
            self._launcher = subprocess.Popen(
                [*lifeline, *spaces, "--", "/bin/sh", str(INIT), str(self.folder), self.name],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                env={"PATH": SBIN_PATH, "LC_ALL": "C.UTF-8"},
                start_new_session=True,  # Ctrl-C is for the tests, which then end the node in order
            )
        self._slot.record(self._launcher.pid)

    def cable(self) -> list[str]:
        """The lines for `ip -batch` that join the node, once its init is there, to the bridge."""
        self.init_pid = self._wait_for_init()
        self._slot.record(self.init_pid)
        # The same MAC at every boot, as hardware has: neighbours would go on sending to the old one for half a minute.
        peer = f"peer name {self.interface} address {mac(self.address)} netns {self.init_pid}"
        size = f"mtu {max(self.spec.mtu, 1500)}"
        return [
            f"link add {self._link} {size} type veth {peer}",
            f"link set {self._link} master {self._slot.bridge} up",
        ]

    def go(self) -> None:
        launcher = self._launcher
        assert launcher is not None and launcher.stdin is not None
        with contextlib.suppress(BrokenPipeError), launcher.stdin as pipe:
            pipe.write(b"go\n")

    def wait(self) -> None:
        self.wait_for_ssh()
        if self.spec.docker:
            self.wait_for_docker()

    def wait_for_ssh(self, timeout: float = SSH_WAIT_S) -> None:
        """Wait for sshd's banner. Raises LabError with the node's console when its init ended or the time is up."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._launcher is not None and self._launcher.poll() is None:
            time.sleep(0.01)
            if not (self.folder / "run/sshd.pid").exists():
                continue  # knocking before the cable is in would cost a second: the kernel waits that long to ask again
            with contextlib.suppress(OSError), socket.create_connection((str(self.address), 22), 1) as connection:
                connection.settimeout(10)
                if connection.recv(4) == b"SSH-":
                    return
        console = (self.folder / "console.log").read_text(errors="replace")
        raise LabError(f"{self.name} did not come up: {console[-2000:]} {self.sshd_log[-1000:]}")

    def wait_for_docker(self) -> None:
        """Wait until the node's docker engine answers. Raises LabError with the end of its log."""
        deadline = time.monotonic() + SSH_WAIT_S
        while time.monotonic() < deadline:
            if engine.answers(self.folder / "run/docker.sock"):
                return
            time.sleep(0.05)
        log = self.upper / "var/log/dockerd.log"
        raise LabError(f"{self.name}: no docker: {log.read_text()[-2000:] if log.exists() else 'not started'}")

    def _up_pid(self) -> int:
        if not (pid := self.init_pid):
            raise LabError(f"{self.name} is down")
        return pid

    def _signal_sshd(self, number: signal.Signals) -> None:
        for process in inside(self._up_pid()):
            if process.name.startswith("sshd"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _wait_for_init(self) -> int:
        assert self._launcher is not None
        children = Path(f"/proc/{self._launcher.pid}/task/{self._launcher.pid}/children")
        deadline = time.monotonic() + SSH_WAIT_S
        while time.monotonic() < deadline and self._launcher.poll() is None:
            if pids := children.read_text().split():
                return int(pids[0])
            time.sleep(0.002)
        console = (self.folder / "console.log").read_text(errors="replace")
        raise LabError(f"{self.name}: no init process: {console[-2000:]}")

    def _prepare_boot(self) -> None:
        """Everything that a power cycle forgets: /dev, /run, /tmp, the values under /proc and /sys, the boot id."""
        folder = self.folder
        rootfs.make_devices(folder / "dev", self.spec.dev, rootfs.group_ids(self.upper / "etc/group"))
        for name in ("run", "tmp", "proc", "sys"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name, mode in (("run", 0o755), ("run/sshd", 0o755), ("run/lock", 0o1777), ("tmp", 0o1777)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        for path, text in {**self.spec.proc, "sys/kernel/random/boot_id": f"{uuid.uuid4()}\n"}.items():
            if Path("/proc", path).exists():
                rootfs.write(folder / "proc" / path, text)
        if self.spec.sys_tree or self.spec.sys:
            (folder / "sys/work").mkdir(parents=True)
            shutil.copytree(self.spec.sys_tree or folder / "sys/work", folder / "sys/upper", symlinks=True)
            for path, text in self.spec.sys.items():
                rootfs.write(folder / "sys/upper" / path, text)
        storage = []
        if self.spec.docker:
            storage = engine.mounts(folder / "root", self._slot.storage(self.name), self.spec.docker_disk_mb)
        (folder / "fstab").write_text("\n".join(mounts.table(folder, storage)) + "\n")


class Rack(Hosts[Node]):
    """Namespace nodes on one bridge, in order; by name with `rack["node2"]`."""

    def __init__(self, slot: slots.Slot, specs: Sequence[NodeSpec]) -> None:
        super().__init__(slot)
        public = self.client_key.public
        self._know([Node(slot, i, spec, KeyPair.generate(), public) for i, spec in enumerate(specs, start=1)])

    def start(self, *, dies_with_us: bool) -> None:
        for node in self.nodes:
            node.spawn(dies_with_us=dies_with_us)
        plug_in(self.nodes)
        for node in self.nodes:
            node.wait()

    def stop(self) -> None:
        for node in self.nodes:
            if node.init_pid:
                node.down()


def plug_in(nodes: Sequence[Node]) -> None:
    """Give each spawned node its cable, then let it boot."""
    cables = [line for node in nodes for line in node.cable()]
    run(["ip", "-batch", "-"], stdin="\n".join(cables) + "\n")
    for node in nodes:
        node.go()


def rack(
    nodes: Wanted = 3, spec: NodeSpec | None = None, *, stay: bool = False, beside: slots.Slot | None = None
) -> AbstractContextManager[Rack]:
    """Namespace nodes: a number, all like `spec`, or one NodeSpec each. Raises LabError."""
    require_root()
    specs = each(nodes, spec)
    sudo = ("sudo",) if any(s.sudo for s in specs) else ()
    docker = engine.COMMANDS if any(s.docker for s in specs) else ()
    require(*COMMANDS, *sudo, *docker)
    return running(lambda slot: Rack(slot, specs), stay=stay, beside=beside)


def _interface(index: int) -> str:
    turn, place = divmod(index - 1, len(INTERFACES))
    return INTERFACES[place] + (f"v{turn}" if turn else "")
