"""Images through a mirror: a real pull-through cache, and a mirror that sends another image."""

from __future__ import annotations

from pathlib import Path

from tests.lab import images, registry
from tests.lab.conftest import RackMaker
from tests.lab.images import Image, digest
from tests.lab.namespaces import Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import Product, Ran, until


def fetched(store: registry.Registry, image: Image) -> int:
    """Return how often the image's last layer, the large one, was fetched from a registry."""
    log = (store.storage.parent / "log").read_text()
    return sum(f'"GET /v2/{image.name}/blobs/{digest(image.layers[-1])}' in line for line in log.splitlines())


def stored(store: registry.Registry, image: Image) -> bool:
    """Return whether a registry holds the image's last layer."""
    hexes = digest(image.layers[-1]).removeprefix("sha256:")
    return (store.storage / f"docker/registry/v2/blobs/sha256/{hexes[:2]}/{hexes}/data").exists()


def bring_up(lab: Rack, product: Product, *options: str, **wanted: object) -> Ran:
    """Bring the rack up without a smoke run."""
    site = {"gpu": "cpu", "tuning": {"numa_balancing": None}, **wanted}
    inventory = lab.inventory(product.folder / "lab.py", site)
    return product.run("shakedown", "run", inventory, "--no-smoke", *options, timeout=300)


def mirrored(store: registry.Registry, mirror: registry.Registry) -> dict[str, object]:
    """Return the `pulls` that name a mirror of a registry."""
    return {"mirrors": {store.address: {"address": mirror.address, "insecure": True}}}


def test_what_a_cache_holds_the_registry_does_not_send_again(rack: RackMaker, tmp_path: Path) -> None:
    lab, product = rack(4, NodeSpec(docker=True)), Product(tmp_path)
    with registry.serve(lab) as store:
        large = images.tiny(note="cached", ballast_mb=8)
        published = store.publish(large)
        with registry.serve(lab, port=registry.CACHE_PORT, cache_of=store) as cache:
            wanted = {"tiny": {"reference": published.tagged, "insecure": True}}
            pulls = mirrored(store, cache)
            ran = bring_up(lab, product, "--limit", "node1", images=wanted, pulls=pulls)
            assert ran.code == 0, ran.text
            until(lambda: stored(cache, large), 60)
            before = fetched(store, large)
            ran = bring_up(lab, product, images=wanted, pulls=pulls)
            assert ran.code == 0, ran.text
            assert fetched(store, large) == before and fetched(cache, large) == 4
    for node in lab:
        assert node.exec("docker run --rm " + published.tagged + " cat /etc/note").stdout == "cached"


def test_the_mirror_of_a_registry_that_is_not_there_is_held_to_the_digest(rack: RackMaker, tmp_path: Path) -> None:
    lab, product = rack(1, NodeSpec(docker=True)), Product(tmp_path)
    away = registry.Registry("registry.invalid:5000", tmp_path)
    with registry.serve(lab) as store:
        pulls = mirrored(away, store)
        first = store.publish(images.tiny(note="first"), tag="first")
        wanted = f"{away.address}/{first.name}:first@{first.digest}"
        ran = bring_up(lab, product, images={"tiny": wanted}, pulls=pulls)
        assert ran.code == 0, ran.text
        note = lab["node1"].exec(f"docker run --rm {away.address}/{first.name}:first cat /etc/note")
        assert note.stdout == "first"
        other, lied = images.tiny(note="other"), store.publish(images.tiny(note="lied"), tag="lied")
        store.publish(other, tag="other")
        hexes = lied.digest.removeprefix("sha256:")
        blob = store.storage / f"docker/registry/v2/blobs/sha256/{hexes[:2]}/{hexes}/data"
        blob.write_bytes(other.manifest())
        wanted = f"{away.address}/{lied.name}:lied@{lied.digest}"
        ran = bring_up(lab, product, images={"tiny": wanted}, pulls=pulls)
        assert ran.code == 1 and "what came is not what its digest says" in ran.text, ran.text
        assert "lied" not in lab["node1"].exec("docker images --format '{{.Tag}}'").stdout


def test_the_registry_decides_what_a_tag_is_and_no_node(rack: RackMaker, tmp_path: Path) -> None:
    lab, product = rack(2, NodeSpec(docker=True)), Product(tmp_path)
    with registry.serve(lab) as store:
        old = store.publish(images.tiny(note="old"), tag="v1")
        wanted = {"tiny": {"reference": old.tagged, "insecure": True}}
        assert bring_up(lab, product, "--limit", "node1", images=wanted).code == 0
        new = store.publish(images.tiny(note="new"), tag="v1")
        ran = bring_up(lab, product, images=wanted)
        assert new.digest in lab["node2"].exec(f"docker image inspect {new.tagged}").stdout, ran.text
        assert old.digest in lab["node1"].exec(f"docker image inspect {old.tagged}").stdout
        assert ran.code == 1 and "fleet.image.tiny" in ran.text, ran.text
