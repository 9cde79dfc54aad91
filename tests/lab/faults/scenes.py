"""How the faults of table.toml are made. A scene is a generator: it makes its fault, waits (`yield`) while the command
runs, and takes away what would keep the nodes from being looked at afterwards."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab import images, registry
from tests.lab.namespaces import Rack
from tests.lab.product import Product, finish, one_rank, until_it_trains
from tests.lab.rootfs import KeyPair


@dataclass
class Stage:
    """A rack, what its inventory will say, and the command once it runs. `instead` and `added` are what has to be
    judged in place of the command, or with it."""

    lab: Rack
    product: Product
    data: dict[str, Any]
    things: ExitStack
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    path: Path = Path()
    process: subprocess.Popen[str] | None = None
    instead: tuple[int, str] | None = None
    added: str = ""

    def write_inventory(self) -> None:
        if not self.path.name:
            self.path = self.lab.inventory(self.product.folder / "lab.py", self.data, hosts=self.hosts)

    @property
    def running(self) -> subprocess.Popen[str]:
        assert self.process is not None
        return self.process


Scene = Callable[[Stage], Iterator[None]]


def nothing(stage: Stage) -> Iterator[None]:
    yield


def down(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].down()
    yield


def frozen(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].freeze()
    yield
    stage.lab["node2"].thaw()


def wrong_key(stage: Stage) -> Iterator[None]:
    key = stage.product.folder / "another_key"
    key.write_text(KeyPair.generate().private)
    key.chmod(0o600)
    stage.hosts["node2"] = {"ssh_key": str(key)}
    yield


def unknown_name(stage: Stage) -> Iterator[None]:
    stage.hosts["node2"] = {"ssh_hostname": "node2.invalid"}
    yield


def no_python(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].exec("rm -f /usr/bin/python3* /usr/local/bin/python3* /usr/libexec/platform-python")
    yield


def tampered(stage: Stage) -> Iterator[None]:
    stage.write_inventory()
    assert stage.product.drift(stage.path).code == 0
    (module,) = stage.lab["node2"].exec("ls /root/.cache/shakedown/*/shakedown/node/gpu.py").stdout.split()
    stage.lab["node2"].exec(f'echo \'open("/root/tampered", "w")\' >> {module}')
    yield


def read_only_home(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].exec("mkdir -p /root/.cache && mount -t tmpfs -o ro none /root/.cache")
    yield
    stage.lab["node2"].exec("umount /root/.cache")


def wrong_venv(stage: Stage) -> Iterator[None]:
    stage.data["smoke"]["venv"] = "/opt/x"
    for node in stage.lab:
        node.exec("mkdir -p /opt/x/bin && printf '#!/opt/gone/python\\n' > /opt/x/bin/python")
        node.exec("chmod +x /opt/x/bin/python")
    yield


def disk_full(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].exec("mkdir -p /root/.cache && mount -t tmpfs -o size=16k none /root/.cache")
    yield
    stage.added += stage.lab["node2"].exec("find /root/.cache -type f").stdout
    stage.lab["node2"].exec("umount /root/.cache")


def cut(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].cut()
    yield
    stage.lab["node2"].heal()


def rebooted(stage: Stage) -> Iterator[None]:
    stage.lab["node2"].down()
    stage.lab["node2"].up()
    yield


def rank_killed(stage: Stage) -> Iterator[None]:
    node = stage.lab["node1"]
    node.exec(f"kill -9 {one_rank(node)}")
    yield


def controller_killed(stage: Stage) -> Iterator[None]:
    stage.running.kill()
    yield
    stage.added += stage.product.run("shakedown", "report", "runs/latest").text


def interrupted(stage: Stage) -> Iterator[None]:
    stage.running.send_signal(signal.SIGINT)
    yield


def second_deploy(stage: Stage) -> Iterator[None]:
    folder = stage.product.folder / "second"
    folder.mkdir()
    second = Product(folder).deploy(stage.path, "megatron", "-y", timeout=120)
    stage.instead = second.code, second.text
    assert stage.running.poll() is None, "the first one goes on"
    stage.running.send_signal(signal.SIGINT)
    yield


def unknown_digest(stage: Stage) -> Iterator[None]:
    plain = stage.things.enter_context(registry.serve(stage.lab))
    image = plain.publish(images.tiny())
    stage.data["images"] = {"small": {"reference": f"{image.tagged}@sha256:{'0' * 64}", "insecure": True}}
    yield


def registry_down(stage: Stage) -> Iterator[None]:
    with registry.serve(stage.lab) as plain:
        image = plain.publish(images.tiny())
    stage.data["images"] = {"small": {"reference": str(image), "insecure": True}}
    yield


def wrong_password(stage: Stage) -> Iterator[None]:
    tls = stage.things.enter_context(registry.serve(stage.lab, password="sesame-7301"))
    image = tls.publish(images.tiny())
    login = {"username": registry.USER, "password_file": str(stage.product.folder / "password")}
    (stage.product.folder / "password").write_text("guessed\n")
    (stage.product.folder / "password").chmod(0o600)
    stage.data["images"] = {"small": {"reference": str(image), "ca_file": str(tls.authority), **login}}
    yield


def mistyped_inventory(stage: Stage) -> Iterator[None]:
    stage.path = stage.product.folder / "lbb.py"
    yield


def placeholder(stage: Stage) -> Iterator[None]:
    stage.data["images"] = {"small": "<changeme>"}
    yield


def in_the_middle(stage: Stage) -> None:
    """Wait until the last node prints iterations."""
    until_it_trains(stage.lab.nodes)


def end_of(stage: Stage) -> tuple[int, str]:
    """How the command ended, or what is judged instead of it."""
    ended = finish(stage.running, 120)
    code, text = stage.instead or ended
    return code, text
