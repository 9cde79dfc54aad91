"""Images pulled from real registries, and files put in place and taken back, on real nodes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.lab import images, registry
from tests.lab.conftest import RackMaker
from tests.lab.cut_proxy import CutProxy
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import PROJECT
from tests.lab.rootfs import Device

ROOT = Path(__file__).parents[2]
LIBRARY = "/usr/local/lib/libbnxt_re-rdmav34.so"
DRIVER = "/etc/libibverbs.d/bnxt_re.driver"


class Deploys:
    """Runs one operation on a rack through plain pyinfra."""

    def __init__(self, lab: Rack, folder: Path) -> None:
        self.lab, self.folder = lab, folder

    def __call__(self, call: str, **environment: str) -> tuple[int, str]:
        deploy = self.folder / "deploy.py"
        deploy.write_text(f"from shakedown.operations import devices, images, provider, rollback\n{call}\n")
        inventory = self.lab.inventory(self.folder / "lab.py")
        done = forks.called("pyinfra", "-y", "-v", inventory, deploy, cwd=ROOT, timeout=180, **environment)
        return done.returncode, done.stdout + done.stderr

    def pull(self, reference: object, environment: dict[str, str] | None = None, **arguments: Any) -> tuple[int, str]:
        given = "".join(f", {key}={value!r}" for key, value in arguments.items())
        return self(f"images.pull(name='image', reference={str(reference)!r}{given})", **environment or {})


@pytest.fixture
def two(rack: RackMaker, tmp_path: Path) -> Deploys:
    lab = rack(2, NodeSpec(docker=True))
    for node in lab:
        node.wait_for_docker()
    return Deploys(lab, tmp_path)


def digests(node: Node) -> list[str]:
    return node.exec("docker images --digests --format '{{.Tag}} {{.Digest}}'").stdout.split("\n")[:-1]


def test_a_tag_becomes_one_digest_everywhere_and_a_second_run_asks_nobody(two: Deploys) -> None:
    with registry.serve(two.lab) as plain:
        image = plain.publish(images.tiny())
        status, said = two.pull(image.tagged)
        assert status == 1 and "the registry speaks http: set insecure=True" in said
        assert two.pull(image.tagged, insecure=True)[0] == 0
        assert {tuple(digests(node)) for node in two.lab} == {(f"latest {image.digest}",)}
        # The tag moves at the registry; who has the image keeps it, and no request is made.
        plain.publish(images.tiny(note="moved"))
        asked = (plain.storage.parent / "log").read_text()
        status, said = two.pull(image.tagged, insecure=True)
        assert status == 0 and "No changes" in said and (plain.storage.parent / "log").read_text() == asked


def test_a_connection_that_is_cut_is_taken_up_again_and_a_silent_one_is_noticed(two: Deploys) -> None:
    with registry.serve(two.lab) as plain:
        first = plain.publish(images.tiny(note="cut", ballast_mb=20), tag="cut")
        with CutProxy(plain, after=5_000_000, times=2) as cut:
            assert two.pull(first.through(cut), insecure=True)[0] == 0
            assert cut.cuts == 2
        for node in two.lab:
            assert f"cut {first.digest}" in digests(node)
        status, said = two.pull(plain.publish(images.tiny(note="large"), tag="large"), insecure=True, size_bytes=2**50)
        assert status == 1 and "GiB free" in said and "make room" in said
        assert not [line for node in two.lab for line in digests(node) if line.startswith("large")]


def test_a_registry_with_its_own_certificate_and_a_password(two: Deploys) -> None:
    with registry.serve(two.lab, password="sesame-7301") as tls:
        image = tls.publish(images.tiny(note="private"))
        login = {"username": registry.USER, "password_env": "LAB_PASSWORD"}
        right, wrong = {"LAB_PASSWORD": "sesame-7301"}, {"LAB_PASSWORD": "guessed"}
        status, said = two.pull(image, right, **login)
        assert status == 1 and "certificate is not trusted" in said
        status, said = two.pull(image, wrong, ca_file=str(tls.authority), **login)
        assert status == 1 and "check username and password" in said
        status, said = two.pull(image.tagged, right, ca_file=str(tls.authority), **login)
        assert status == 0 and "sesame-7301" not in said
        for node in two.lab:
            assert digests(node) == [f"latest {image.digest}"]
            left = node.exec("ls -d /tmp/shakedown-pull-* /root/.docker", check=False).stdout
            assert left == ""
            found = node.exec("grep -rls sesame-7301 /etc/docker /tmp /run /var/lib/shakedown", check=False).stdout
            assert [path for path in found.splitlines() if not path.startswith(f"{PROJECT}/")] == []


def test_a_library_is_put_in_place_and_taken_back(rack: RackMaker, tmp_path: Path) -> None:
    lab = rack(1, NodeSpec(files={LIBRARY.lstrip("/"): "foreign\n", "etc/libibverbs.d/mlx5.driver": "driver mlx5\n"}))
    (node,) = lab
    deploys = Deploys(lab, tmp_path)
    source = tmp_path / "libbnxt_re.so"
    source.write_bytes(b"\x7fELF\x02\x01" + b"\0" * 12 + b"\x3e\x00" + b"a provider" * 100)
    both = f"provider.library(source={str(source)!r}, path={LIBRARY!r})\nprovider.driver(provider='bnxt_re')"
    status, said = deploys(both)
    assert status == 0, said
    assert node.exec(f"sha256sum < {LIBRARY}").stdout.split()[0] in subprocess.getoutput(f"sha256sum {source}")
    assert "driver bnxt_re" in node.read(DRIVER)
    status, said = deploys(both)
    assert status == 0 and said.count("No changes") == 2
    status, said = deploys("rollback.rollback()")
    assert status == 0, said
    assert node.read(LIBRARY) == "foreign\n"
    assert node.exec(f"ls {DRIVER} /var/lib/shakedown", check=False).stdout == ""
    assert node.read("/etc/libibverbs.d/mlx5.driver") == "driver mlx5\n"


def test_device_files_get_group_and_mode_now_and_at_boot(rack: RackMaker, tmp_path: Path) -> None:
    amdgpu = {"module/amdgpu/initstate": "live\n"}
    kfd, render = Device(group="root", mode=0o600), Device(group="video", mode=0o666)
    lab = rack(1, NodeSpec(sys=amdgpu, dev={"kfd": kfd, "dri/renderD128": render}))
    (node,) = lab
    deploys = Deploys(lab, tmp_path)
    status, said = deploys("devices.kfd()\ndevices.dri()")
    assert status == 0, said
    assert node.exec("stat -c '%a %G' /dev/kfd /dev/dri/renderD128").stdout == "660 render\n660 render\n"
    assert 'KERNEL=="kfd", GROUP="render", MODE="0660"' in node.read("/etc/udev/rules.d/70-shakedown.rules")
    status, said = deploys("devices.kfd()\ndevices.dri()")
    assert status == 0 and said.count("No changes") == 2
    status, said = deploys("rollback.rollback()")
    assert status == 0, said
    assert node.exec("stat -c '%a %G' /dev/kfd /dev/dri/renderD128").stdout == "600 root\n666 video\n"
    assert "render" not in node.read("/etc/group")
    assert node.exec("ls /etc/udev/rules.d/70-shakedown.rules", check=False).stdout == ""
