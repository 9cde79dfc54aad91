"""Containers as nodes: Debian with systemd as PID 1 and sshd, for units, limits and package differences.

    with containers(2) as lab:
        lab.inventory(tmp_path / "lab.py")
        lab["box1"].exec("systemctl is-active ssh")

One docker engine of the lab's own, in its own mount and PID namespaces, hangs them on the lab's bridge. It leaves the
machine's firewall and forwarding as they are.
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
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network

from tests.lab import engine, images, registry, slots
from tests.lab.hosts import Hosts
from tests.lab.images import add_file
from tests.lab.machine import SBIN_PATH, LabError, require, require_root
from tests.lab.rootfs import KeyPair

BOOT_WAIT_S = 180
CONTAINER_HOSTS = 512
"""Containers get the addresses from the third quarter of the rack's network."""

RUN_OPTIONS = [
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cgroupns", "private"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"),
    *("--tmpfs", "/run", "--tmpfs", "/tmp"),
]
"""What systemd needs as PID 1. Not `--privileged`: udev in each container would then handle the machine's devices."""


class Box:
    """One container node. It has the verbs of a namespace node that make sense for it."""

    def __init__(self, lab: ContainerLab, name: str, image: registry.Reference) -> None:
        self.name, self.host_key, self._lab = name, KeyPair.generate(), lab
        lab.docker("create", "--name", name, "--hostname", name, *RUN_OPTIONS, str(image))
        lab.docker("cp", "-", f"{name}:/", stdin=self._identity())
        lab.docker("start", name)
        shown = lab.docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", name)
        self.address = IPv4Address(shown.stdout.strip())

    def exec(self, command: str, *, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root by docker, not over ssh. Raises LabError when it fails and `check` holds."""
        return self._lab.docker("exec", self.name, "sh", "-c", command, check=check, timeout=timeout)

    def read(self, path: str) -> str:
        return self.exec(f"cat '{path}'").stdout

    def down(self) -> None:
        """Power off at once; what it wrote stays."""
        self._lab.docker("kill", self.name)

    def up(self) -> None:
        """Power on after `down` and wait for ssh."""
        self._lab.docker("start", self.name)
        self.wait()

    def wait(self) -> None:
        """Wait for sshd's banner. Raises LabError with the container's log."""
        deadline = time.monotonic() + BOOT_WAIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((str(self.address), 22), 1) as connection:
                connection.settimeout(10)
                if connection.recv(4) == b"SSH-":
                    return
            time.sleep(0.05)
        raise LabError(
            f"{self.name} did not come up: {self._lab.docker('logs', self.name, check=False).stdout[-2000:]}"
        )

    def _identity(self) -> bytes:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            add_file(tar, "etc/ssh/ssh_host_ed25519_key", self.host_key.private.encode(), 0o600)
            add_file(tar, "etc/ssh/ssh_host_ed25519_key.pub", self.host_key.public.encode())
            add_file(tar, "etc/machine-id", f"{uuid.uuid4().hex}\n".encode(), 0o444)
        return content.getvalue()


class ContainerLab(Hosts[Box]):
    """Container nodes on one bridge, and the engine that runs them."""

    def __init__(self, slot: slots.Slot) -> None:
        super().__init__(slot)
        self._control = slot.folder / "docker.sock"
        self._engine: subprocess.Popen[bytes] | None = None

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

    def start_engine(self) -> None:
        """Raises LabError with the engine's log when it does not answer."""
        slot = self.slot
        runtime = slot.folder / "oci-runtime"
        shutil.copy(engine.RUNTIME, runtime)
        runtime.chmod(0o755)
        pool = IPv4Network(f"{slot.network[CONTAINER_HOSTS]}/24")
        options = ["--bridge", slot.bridge, "--fixed-cidr", str(pool)]
        options += ["--iptables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver", "overlay2"]
        options += ["--data-root", str(slot.disk / "docker"), "--exec-root", str(slot.folder / "exec")]
        options += ["--pidfile", str(slot.folder / "docker.pid"), "--host", f"unix://{self._control}"]
        options += ["--add-runtime", f"sdlab={runtime}", "--default-runtime", "sdlab"]
        (slot.folder / "daemon.json").write_text("{}\n")  # in place of the machine's own, if it has one
        options += ["--config-file", str(slot.folder / "daemon.json")]
        options += ["--insecure-registry", f"{slot.gateway}:{registry.PLAIN_PORT}", "--cgroup-parent", slot.link(0)]
        spaces = ["unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        with (slot.folder / "dockerd.log").open("ab") as log:
            self._engine = process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *spaces, "--", "dockerd", *options],
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
                raise LabError(f"no docker: {(slot.folder / 'dockerd.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def start(self, count: int) -> None:
        self.start_engine()
        with registry.serve(self) as store:
            image = store.publish(images.systemd(self.client_key.public))
            self.docker("pull", "-q", str(image), timeout=600)
        self._know([Box(self, f"box{index}", image) for index in range(1, count + 1)])
        for box in self.nodes:
            box.wait()

    def stop(self) -> None:
        """End the engine, and with its PID namespace every container."""
        if self._engine is not None:
            self._engine.kill()
            self._engine.wait()


@contextmanager
def containers(count: int = 1, *, beside: slots.Slot | None = None) -> Iterator[ContainerLab]:
    """Start container nodes and end them, with their engine, on the way out. `beside` puts them on the bridge of
    another lab. Raises LabError."""
    require_root()
    require({**engine.COMMANDS, "ip": "iproute2", "ssh": "openssh-client"})
    with slots.place(beside) as slot:
        lab = ContainerLab(slot)
        try:
            lab.start(count)
            yield lab
        finally:
            lab.stop()
