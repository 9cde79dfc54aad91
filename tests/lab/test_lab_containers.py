"""The lab's engines and registries are real: pulls by digest, passwords, certificates, broken pulls, full disks."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab import images, oci_runtime, registry
from tests.lab.conftest import RackMaker
from tests.lab.cut_proxy import CutProxy
from tests.lab.namespaces import Node
from tests.lab.node_spec import NodeSpec
from tests.lab.rootfs import Device

ENGINE = NodeSpec(docker=True)


def docker(node: Node, arguments: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    return node.exec(f"docker {arguments}", check=check, timeout=120)


def local_digests(node: Node) -> list[str]:
    return docker(node, "images --digests --format '{{.Digest}}'").stdout.split()


def test_each_node_pulls_by_digest_and_runs_with_the_flags_of_training(rack: RackMaker) -> None:
    lab = rack(2, NodeSpec(docker=True, dev={"kfd": Device(group="video", mode=0o660)}))
    with registry.serve(lab) as store:
        image = store.publish(images.tiny())
        flags = "--rm --privileged --ulimit memlock=-1 --network host --ipc host --device /dev/kfd"
        for node in lab:
            docker(node, f"pull -q {image}")
            assert local_digests(node) == [image.digest]
            said = docker(node, f"run {flags} {image} sh -c 'hostname; ip addr; stat -c %F /dev/kfd'").stdout
            assert said.startswith(f"{node.name}\n") and str(node.address) in said and "character special" in said
        unknown = f"{image.tagged}@sha256:{'0' * 64}"
        assert "manifest unknown" in docker(lab["node1"], f"pull {unknown}", check=False).stderr


def test_containers_are_the_nodes_processes_and_end_with_its_power(rack: RackMaker) -> None:
    lab = rack(2, ENGINE)
    node, other = lab
    with registry.serve(lab) as store:
        image = store.publish(images.tiny())
        docker(node, f"run -d --name left {image} sleep 300")
        assert ("sleep", "300") in [process.args for process in node.processes()]
        assert other.processes() == []
        docker(node, "exec left true")
        node.down()
        node.up()
        assert node.processes() == []
        assert local_digests(node) == [image.digest] and local_digests(other) == []
        assert "Exited" in docker(node, "ps -a --format '{{.Names}} {{.Status}}'").stdout
        docker(node, "rm left")


def test_tls_and_password(rack: RackMaker) -> None:
    lab = rack(1, ENGINE)
    (node,) = lab
    with registry.serve(lab, password="five stars") as store:
        image = store.publish(images.tiny())
        login = f"login -u {registry.USER} --password-stdin {store.address}"
        assert "x509" in docker(node, f"pull {image}", check=False).stderr
        store.trust_on(node.root)
        assert "no basic auth" in docker(node, f"pull {image}", check=False).stderr
        assert node.exec(f"echo wrong | docker {login}", check=False).returncode
        node.exec(f"echo five stars | docker {login}")
        docker(node, f"pull -q {image}")
        assert local_digests(node) == [image.digest]


def test_a_pull_that_is_cut_in_the_middle(rack: RackMaker) -> None:
    """Docker resumes by itself unless it is told to try once only, as it is on the second node."""
    lab = rack([ENGINE, NodeSpec(docker=True, daemon={"max-download-attempts": 1})])
    resuming, giving_up = lab
    with registry.serve(lab) as store:
        image = store.publish(images.tiny(ballast_mb=16))
        with CutProxy(store, after=2**23, times=10_000) as proxy:
            assert "reset" in docker(giving_up, f"pull {image.through(proxy)}", check=False).stderr
            assert proxy.cuts > 1 and local_digests(giving_up) == []
        with CutProxy(store, after=2**20) as proxy:
            docker(resuming, f"pull -q {image.through(proxy)}")
            assert proxy.cuts == 1 and local_digests(resuming) == [image.digest]
        docker(giving_up, f"pull -q {image}")
        assert local_digests(giving_up) == [image.digest]


def test_a_disk_that_is_full(rack: RackMaker) -> None:
    lab = rack(1, NodeSpec(docker=True, docker_disk_mb=24))
    (node,) = lab
    with registry.serve(lab) as store:
        large, small = store.publish(images.tiny(ballast_mb=32), "large"), store.publish(images.tiny(), "small")
        assert "no space left on device" in docker(node, f"pull {large}", check=False).stderr
        assert local_digests(node) == []
        docker(node, f"pull -q {small}")


def test_the_same_tag_can_name_another_image(rack: RackMaker) -> None:
    lab = rack(2, ENGINE)
    with registry.serve(lab) as store:
        first = store.publish(images.tiny(note="first"))
        docker(lab["node1"], f"pull -q {first.tagged}")
        second = store.publish(images.tiny(note="second"))
        docker(lab["node2"], f"pull -q {second.tagged}")
        assert first.tagged == second.tagged and first.digest != second.digest
        assert [local_digests(node) for node in lab] == [[first.digest], [second.digest]]


@pytest.mark.parametrize("limit", [(8192, True), (2**63, False)])
def test_the_runtime_takes_out_only_what_root_may_not_have(
    limit: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (8192, 8192))
    value, stays = limit
    rlimits = [{"type": "RLIMIT_MEMLOCK", "soft": value, "hard": value}]
    process = {"capabilities": {"bounding": ["CAP_SYS_RESOURCE", "CAP_CHOWN"]}, "rlimits": rlimits}
    oci_runtime.reduce(process)
    assert process["capabilities"] == {"bounding": ["CAP_CHOWN"]}
    assert process["rlimits"] == (rlimits if stays else [])
