"""Images from a mirror and from nodes that have them, with real engines and a registry of limited bandwidth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import images, registry
from tests.lab.conftest import RackMaker
from tests.lab.images import Image, digest
from tests.lab.machine import run
from tests.lab.namespaces import Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import Product, Ran, until


def fetched(store: registry.Registry, image: Image) -> int:
    """How often the image's last layer, the large one, was fetched from a registry."""
    log = (store.storage.parent / "log").read_text()
    return sum(f'"GET /v2/{image.name}/blobs/{digest(image.layers[-1])}' in line for line in log.splitlines())


def bring_up(lab: Rack, product: Product, **wanted: object) -> Ran:
    site = {"gpu": "cpu", "tuning": {"numa_balancing": None}, **wanted}
    return product.run("shakedown", "run", lab.inventory(product.folder / "lab.py", site), "--no-smoke", timeout=300)


def test_one_node_pulls_the_others_take_it_from_nodes_and_a_mirror_is_held_to_the_digest(
    rack: RackMaker, tmp_path: Path
) -> None:
    lab, product = rack(4, NodeSpec(docker=True)), Product(tmp_path)
    with registry.serve(lab) as store:
        large = images.tiny(note="shared", ballast_mb=8)
        shared = store.publish(large)
        wanted = {"tiny": {"reference": str(shared), "insecure": True}}
        before = {node.name: node.exec("ls /tmp").stdout for node in lab}  # the checkout may lie there
        ran = bring_up(lab, product, images=wanted, pulls={"from_nodes": True})
        assert ran.code == 0, ran.text
        assert fetched(store, large) == 1, ran.text
        assert ran.text.count(" from node") >= 3 and "took " in ran.text, ran.text
        for node in lab:
            found = node.exec(
                f"docker image inspect --format '{{{{.Id}}}} {{{{.RepoDigests}}}}' {shared.tagged}"
            ).stdout
            assert found.split()[0] == images.sha256(large.config()) and shared.digest in found
            assert node.exec("docker run --rm " + shared.tagged + " cat /etc/note").stdout == "shared"
            until(lambda node=node: "python" not in str(node.processes()), 60)
            assert node.exec("ls /tmp").stdout == before[node.name]

        # A registry that is not there, and the site's mirror of it, which then lies about one image.
        away = "registry.invalid:5000"
        mirror = {"mirrors": {away: {"address": store.address, "insecure": True}}}
        first = store.publish(images.tiny(note="first"), tag="first")
        ran = bring_up(lab, product, images={"tiny": f"{away}/{first.name}:first@{first.digest}"}, pulls=mirror)
        assert ran.code == 0, ran.text
        assert lab["node1"].exec(f"docker run --rm {away}/{first.name}:first cat /etc/note").stdout == "first"
        other, lied = images.tiny(note="other"), store.publish(images.tiny(note="lied"), tag="lied")
        store.publish(other, tag="other")
        hexes = lied.digest.removeprefix("sha256:")
        blob = store.storage / f"docker/registry/v2/blobs/sha256/{hexes[:2]}/{hexes}/data"
        blob.write_bytes(other.manifest())
        ran = bring_up(lab, product, images={"tiny": f"{away}/{lied.name}:lied@{lied.digest}"}, pulls=mirror)
        assert ran.code == 1 and "what came is not what its digest says" in ran.text, ran.text
        assert "lied" not in lab["node1"].exec("docker images --format '{{.Tag}}'").stdout


@contextmanager
def limited(lab: Rack, mbit: int) -> Iterator[None]:
    """What leaves the registry, which is on the bridge itself; what goes from node to node is not held up."""
    run(["tc", "qdisc", "add", "dev", lab.slot.bridge, "root", "tbf", "rate", f"{mbit}mbit", *BUCKET])
    try:
        yield
    finally:
        run(["tc", "qdisc", "del", "dev", lab.slot.bridge, "root"])


BUCKET = ("burst", "256kb", "latency", "500ms")


@pytest.mark.long
@pytest.mark.parametrize("number", [8])
def test_what_taking_images_from_nodes_saves(
    rack: RackMaker, tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, product = rack(number, NodeSpec(docker=True)), Product(tmp_path)
    took: dict[str, float] = {}
    with registry.serve(lab) as store:
        for name, pulls in (("plain", {"at_once": number}), ("from nodes", {"from_nodes": True})):
            large = images.tiny(note=f"{name} {number}", ballast_mb=96)
            wanted = {"tiny": {"reference": str(store.publish(large, tag=name.split()[-1])), "insecure": True}}
            with limited(lab, 80):
                began = time.monotonic()
                ran = bring_up(lab, product, images=wanted, pulls=pulls)
                took[name] = time.monotonic() - began
            assert ran.code == 0, ran.text
            assert fetched(store, large) == (number if name == "plain" else 1)
    told = {name: round(seconds, 1) for name, seconds in took.items()}
    with capsys.disabled():
        print(f"\n{number} nodes, 96 MiB, registry of 80 Mbit/s: {json.dumps(told)} s")
