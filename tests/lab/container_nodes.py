"""Containers as nodes: Debian with systemd as PID 1 and sshd, for units, limits, package differences and real boots.

    with containers(2, NodeSpec(docker=True)) as lab:
        lab.inventory(tmp_path / "lab.py")
        lab["box1"].exec("systemctl is-active docker")

One docker engine of the lab's own, in its own mount and PID namespaces, hangs them on the lab's bridge. It leaves the
machine's firewall and forwarding as they are. The engine that a node has inside is Debian's, a unit of its systemd.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import subprocess
import tarfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import ClassVar

from tests.lab import engine, images, registry, slots
from tests.lab.hosts import Hosts, mac, running
from tests.lab.images import add_file
from tests.lab.machine import DIES_WITH_US, SBIN_PATH, LabError, require, require_root, run
from tests.lab.node_spec import PROC, NodeSpec, Wanted, each
from tests.lab.processes import inside
from tests.lab.reach import Reachable
from tests.lab.rootfs import USER_ID, KeyPair

BOOT_WAIT_S = 180
ENGINE_HOSTS, FIRST_HOST = 512, 640
"""What the engine gives away is a /25 of the rack's network; a node's own address, which it sets at boot, follows."""

RUN_OPTIONS = [
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cgroupns", "private", "--restart", "unless-stopped"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"),
    *("--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec", "--device-cgroup-rule", "a *:* rwm"),
]
"""What systemd needs as PID 1, and a docker engine under it, which can allow a container no more than the node has.
Not `--privileged`: udev in each container would then handle the machine's devices. A node that reboots itself ends its
container, which starts again."""


class Box(Reachable):
    """One container node, with the verbs of a namespace node."""

    INFRASTRUCTURE: ClassVar[frozenset[str]] = Reachable.INFRASTRUCTURE | {
        *("systemd", "systemd-journal", "systemd-logind", "(sd-pam)", "dbus-daemon", "agetty"),
    }

    def __init__(self, lab: ContainerLab, index: int, spec: NodeSpec, image: registry.Reference) -> None:
        self.spec = replace(spec, name=spec.name or f"box{index}", interface=spec.interface or "eth0")
        self.name, self.interface = self.spec.name, self.spec.interface
        self.address: IPv4Address = lab.slot.network[FIRST_HOST + index]
        self.host_key, self._lab, self._cable = KeyPair.generate(), lab, ""
        storage = self._storage() if spec.docker else []
        lab.docker("create", "--name", self.name, "--hostname", self.name, *RUN_OPTIONS, *storage, str(image))
        self._id = lab.docker("inspect", "-f", "{{.Id}}", self.name).stdout.strip()
        lab.docker("cp", "-", f"{self.name}:/", stdin=self._identity())

    @property
    def init_pid(self) -> int:  # type: ignore[override]
        """Looked up each time: a node that reboots by itself has another."""
        for process in inside(self._lab.engine_pid):
            with contextlib.suppress(OSError):
                folder = Path("/proc", str(process.pid))
                if _is_init(folder) and self._id in (folder / "cgroup").read_text():
                    return process.pid
        return 0

    @property
    def boot_id(self) -> str:
        """New at each boot; empty while the node is down, which one that reboots itself is for a moment."""
        with contextlib.suppress(OSError, LabError):
            return self.read("/proc/sys/kernel/random/boot_id")
        return ""

    def cut(self) -> None:
        """Pull the node's cable: packets are lost, open connections hang, the node sees no carrier."""
        number = self.exec(f"cat /sys/class/net/{self.interface}/iflink").stdout.strip()
        ends = {path.read_text().strip(): path.parent.name for path in Path("/sys/class/net").glob("*/ifindex")}
        self._cable = ends[number]
        run(["ip", "link", "set", self._cable, "down"])

    def heal(self) -> None:
        run(["ip", "link", "set", self._cable, "up"])

    def down(self) -> None:
        """Power off at once; what it wrote stays."""
        self._lab.docker("kill", self.name)

    def up(self) -> None:
        """Power on after `down` and wait for ssh."""
        self._lab.docker("start", self.name)
        self.wait()

    def wait(self) -> None:
        """Wait for sshd's banner, and for docker's if the node has it. Raises LabError with what was logged."""
        deadline = time.monotonic() + BOOT_WAIT_S
        while time.monotonic() < deadline:
            if self._ssh_answers() and (not self.spec.docker or engine.answers(self.root / "run/docker.sock")):
                return
            time.sleep(0.05)
        logged = self._lab.docker("logs", "--tail", "20", self.name, check=False)
        failed = self._lab.docker("exec", self.name, "journalctl", "-b", "-p", "warning", "-n", "30", check=False)
        state = self._lab.docker("inspect", "-f", "{{json .State}}", self.name, check=False)
        said = "".join(done.stdout + done.stderr for done in (state, logged, failed))
        raise LabError(f"{self.name} did not come up: {said}{self._lab.engine_log[-4000:]}")

    def add_user(self) -> None:
        """The ordinary user of the specification, with the lab's key."""
        user = self.spec.user
        self.exec(f"useradd --create-home --shell /bin/bash --uid {USER_ID} {user}")
        self.exec(f"cp -r /root/.ssh /home/{user}/ && chown -R {user}: /home/{user}/.ssh")
        if self.spec.sudo:
            self.exec(f"echo '{user} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/sdlab && chmod 0440 /etc/sudoers.d/sdlab")

    def _ssh_answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((str(self.address), 22), 1) as connection:
            connection.settimeout(10)
            return connection.recv(4) == b"SSH-"
        return False

    def _storage(self) -> list[str]:
        """Options: the engine's storage in a folder that outlives a boot, or on a tmpfs that can be full."""
        if self.spec.docker_disk_mb:
            return ["--tmpfs", f"/var/lib/docker:exec,size={self.spec.docker_disk_mb}m"]
        return ["--volume", f"{self._lab.slot.storage(self.name)}:/var/lib/docker"]

    def _identity(self) -> bytes:
        """A tar of the files that are the node's own."""
        lab, name, device = self._lab, self.name, self.interface
        gateway, prefix = lab.slot.gateway, lab.slot.network.prefixlen
        network = [
            f"link set eth0 down\nlink set eth0 name {device}\naddr flush dev {device}",
            # The same at every boot, as hardware has: neighbours would go on sending to the old one for a while.
            f"link set {device} address {mac(self.address)} mtu {self.spec.mtu} up",
            f"addr add {self.address}/{prefix} dev {device}\nroute add default via {gateway}",
        ]
        texts = {
            "etc/hosts": f"127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n::1\tlocalhost ip6-localhost\n",
            "etc/hostname": f"{name}\n",
            "etc/resolv.conf": "",
            "etc/machine-id": f"{uuid.uuid4().hex}\n",
            "etc/ssh/ssh_host_ed25519_key": self.host_key.private,
            "etc/ssh/ssh_host_ed25519_key.pub": self.host_key.public,
            "root/.ssh/authorized_keys": lab.client_key.public,
            "usr/local/lib/sdlab/ip": "\n".join(network) + "\n",
            **{f"usr/local/lib/sdlab/proc/{path}": text for path, text in {**PROC, **self.spec.proc}.items()},
        }
        if self.spec.docker:
            texts |= engine.settings(str(gateway), registry.PLAIN_PORTS, self.spec.daemon)
        private = {"etc/ssh/ssh_host_ed25519_key", "root/.ssh/authorized_keys"}
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for path, text in {**texts, **self.spec.files}.items():
                mode = 0o600 if path in private else 0o755 if text.startswith("#!") else 0o644
                add_file(tar, path.lstrip("/"), text.encode(), mode)
        return content.getvalue()


class ContainerLab(Hosts[Box]):
    """Container nodes on one bridge, and the engine that runs them."""

    def __init__(self, slot: slots.Slot, specs: Sequence[NodeSpec]) -> None:
        super().__init__(slot)
        self._specs = specs
        self._control = slot.folder / "docker.sock"
        self._engine: subprocess.Popen[bytes] | None = None

    @property
    def engine_pid(self) -> int:
        """Of the engine itself, PID 1 of its namespace; 0 when it does not run."""
        if self._engine is None or self._engine.poll() is not None:
            return 0
        children = Path(f"/proc/{self._engine.pid}/task/{self._engine.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    @property
    def engine_log(self) -> str:
        return (self.slot.folder / "dockerd.log").read_text(errors="replace")

    def docker(
        self, *arguments: str, check: bool = True, timeout: float = 180, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The docker client on the lab's engine."""
        argv = ["docker", "-H", f"unix://{self._control}", *arguments]
        env = {**os.environ, "PATH": SBIN_PATH}
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout, env=env, check=False)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if check and done.returncode:
            raise LabError(f"docker {' '.join(arguments)}: exit {done.returncode}: {err[-2000:]}")
        return subprocess.CompletedProcess(argv, done.returncode, out, err)

    def start_engine(self, storage: Path | None = None, *, dies_with_us: bool = True) -> None:
        """Images go to `storage`, or the slot's disk. Raises LabError with the engine's log when it does not answer."""
        slot = self.slot
        runtime = slot.folder / "oci-runtime"
        shutil.copy(engine.RUNTIME, runtime)
        runtime.chmod(0o755)
        pool = IPv4Network(f"{slot.network[ENGINE_HOSTS]}/25")
        options = ["--bridge", slot.bridge, "--fixed-cidr", str(pool)]
        options += ["--iptables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver", "overlay2"]
        options += ["--data-root", str(storage or slot.disk / "docker"), "--exec-root", str(slot.folder / "exec")]
        options += ["--pidfile", str(slot.folder / "docker.pid"), "--host", f"unix://{self._control}"]
        options += ["--add-runtime", f"sdlab={runtime}", "--default-runtime", "sdlab"]
        (slot.folder / "daemon.json").write_text("{}\n")  # in place of the machine's own, if it has one
        options += ["--config-file", str(slot.folder / "daemon.json")]
        for port in (registry.PLAIN_PORT, registry.BOXES_PORT):
            options += ["--insecure-registry", f"{slot.gateway}:{port}"]
        options += ["--cgroup-parent", slot.link(0)]
        spaces = ["unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        with (slot.folder / "dockerd.log").open("ab") as log:
            self._engine = process = subprocess.Popen(
                [*(DIES_WITH_US if dies_with_us else ()), *spaces, "--", "dockerd", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": SBIN_PATH},
                start_new_session=True,
            )
        slot.record(process.pid)
        deadline = time.monotonic() + 60
        while not engine.answers(self._control):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"no docker: {self.engine_log[-2000:]}")
            time.sleep(0.05)

    def start(self, *, dies_with_us: bool) -> None:
        specs = self._specs
        self.start_engine(self.slot.storage("engine"), dies_with_us=dies_with_us)
        kinds = {docker: images.systemd(docker=docker) for docker in {spec.docker for spec in specs}}
        with registry.serve(self, port=registry.BOXES_PORT) as store:
            pulled = {docker: store.publish(image) for docker, image in kinds.items()}
            for image in pulled.values():
                self.docker("pull", "-q", str(image), timeout=600)
        self._know([Box(self, index, spec, pulled[spec.docker]) for index, spec in enumerate(specs, start=1)])
        self.docker("start", *(box.name for box in self.nodes))
        for box in self.nodes:
            box.wait()
            if box.spec.user:
                box.add_user()

    def stop(self) -> None:
        """End the engine, and with its PID namespace every container."""
        if self._engine is not None:
            self._engine.kill()
            self._engine.wait()


def containers(
    nodes: Wanted = 1, spec: NodeSpec | None = None, *, stay: bool = False, beside: slots.Slot | None = None
) -> AbstractContextManager[ContainerLab]:
    """Container nodes, and their engine: a number, all like `spec`, or one NodeSpec each. Raises LabError."""
    require_root()
    require(*engine.COMMANDS, "ip", "ssh")
    specs = each(nodes, spec)
    if any(one.sys or one.sys_tree or one.dev for one in specs):
        raise LabError("a container node has no /sys and no devices of its own: take a namespace node for that")
    return running(lambda slot: ContainerLab(slot, specs), stay=stay, beside=beside)


def _is_init(folder: Path) -> bool:
    """Whether a process, by its folder in /proc, is PID 1 of a container of the engine (not of a container in one)."""
    numbers = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("NSpid:"))
    _, *nested = numbers.split()  # on the machine, in the engine's namespace, in the container's
    return len(nested) == 3 and nested[-1] == "1"
