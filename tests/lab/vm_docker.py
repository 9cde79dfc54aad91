"""The disk for a virtual machine's /var/lib/docker, with the layers of the training image on it.

A pull of 0.8 GB takes minutes under emulation, so that it is done once, at full speed, by an engine outside. The image
has no name on the disk: a machine has to pull it, which fetches the manifest and finds every layer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab import images, registry
from tests.lab.cache import cached
from tests.lab.machine import run
from tests.lab.namespaces import rack
from tests.lab.node_spec import NodeSpec

DISK_SIZE = "6G"
KEPT = ("image", "overlay2")
"""Of the engine's storage; networks and the like belong to the machine that made them."""
NO_NAMES = ("image/overlay2/repositories.json", '{"Repositories": {}}')


def build() -> Path:
    """A cached ext4 image, raw and sparse. From nothing it takes 40 s, most of it the training image's own layers."""
    training = images.training()

    def make(target: Path) -> None:
        with rack(1, NodeSpec(docker=True)) as lab:
            (node,) = lab
            with registry.serve(lab) as store:
                node.exec(f"docker pull -q {store.publish(training)}", timeout=600)
            node.down()
            storage = lab.slot.storage(node.name)
            for path in storage.iterdir():
                if path.name not in KEPT:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            name, text = NO_NAMES
            (storage / name).write_text(text)
            target.unlink(missing_ok=True)
            options = ["-q", "-t", "ext4", "-L", "docker", "-O", "^has_journal", "-m", "0", "-d", str(storage)]
            run(["mke2fs", *options, str(target), DISK_SIZE], timeout=600)

    return cached("vm-docker", f"{images.sha256(training.manifest())} {DISK_SIZE} {KEPT} {NO_NAMES}", make)
