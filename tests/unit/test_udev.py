"""The devices that pyudev enumerates: those of a whole rack's node, which umockdev shows to libudev."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.node import gpu, udev
from shakedown.node.tree import Tree
from tests.node_trees import make_tree

ASKED: dict[str, dict[str, str]] = {
    "pci": {"vendor": "0x1002"},
    "infiniband": {},
    "net": {},
    "drm": {"name": "renderD*"},
}
READ = """
import json, sys
from shakedown.node import gpu, udev
from shakedown.node.tree import Tree
tree = Tree(sys.argv[1])
found = {subsystem: [[*device, device.parent] for device in udev.devices(tree, subsystem, **more)]
         for subsystem, more in json.loads(sys.argv[2]).items()}
print(json.dumps(dict(found, gpus=gpu.read(tree) if tree.live else [], by_udev=udev._context() is not None)))
"""
ATTRIBUTES = {"vendor", "device", "class", "numa_node", "current_link_speed", "current_link_width", "product_name"}
DATABASE = {"ID_MODEL_FROM_DATABASE": "Aqua Vanjaram [Instinct MI300X]", "ID_PATH": "pci-0000:05:00.0"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node of two GPUs and NICs, with a management controller of AMD's; the first GPU's driver names no model."""
    made = make_tree(tmp_path_factory.mktemp("tree"), count=2, gid_entries=2)
    (made / "sys/bus/pci/devices/0000:05:00.0/product_name").unlink()
    display = made / "sys/devices/pci0000:f0/0000:f0:00.0"
    display.mkdir(parents=True)
    (display / "vendor").write_text("0x1002\n")
    (display / "uevent").write_text("PCI_CLASS=30000\nPCI_ID=1002:515E\nPCI_SLOT_NAME=0000:f0:00.0\n")
    (display / "subsystem").symlink_to(made / "sys/bus/pci")
    (made / "sys/bus/pci/devices/0000:f0:00.0").symlink_to(display)
    return made


def described(root: Path) -> Iterator[str]:
    """The tree's devices as umockdev's description, with what udev's database adds for one of them."""
    for event in sorted((root / "sys/devices").rglob("uevent")):
        folder = event.parent
        subsystem = (folder / "subsystem").readlink().name
        yield f"P: {str(folder)[len(str(root / 'sys')) :]}"
        properties = dict(line.split("=", 1) for line in event.read_text().splitlines() if "=" in line)
        properties |= {"SUBSYSTEM": subsystem} | (DATABASE if folder.name == "0000:05:00.0" else {})
        yield from (f"E: {name}={value}" for name, value in properties.items())
        for name in sorted(ATTRIBUTES):
            if (folder / name).is_file():
                yield f"A: {name}={(folder / name).read_text().strip()}"
        yield ""


def read(*before: str, root: str) -> dict[str, Any]:
    words = [*before, sys.executable, "-c", READ, root, json.dumps(ASKED)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(Path.cwd())}
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not shutil.which("umockdev-run"), reason="make system installs umockdev")
def test_a_node_has_by_udev_what_its_files_have(root: Path, tmp_path: Path) -> None:
    (tmp_path / "node.umockdev").write_text("\n".join(described(root)))
    by_udev = read("umockdev-run", "--device", str(tmp_path / "node.umockdev"), "--", root="/")
    by_files = read(root=str(root))
    assert by_udev["by_udev"], "this machine has libudev"
    for subsystem in ASKED:
        names = [[name, path, parent] for name, path, _, parent in by_udev[subsystem]]
        assert names == [[name, path, parent] for name, path, _, parent in by_files[subsystem]] != [], subsystem
        for (_, _, ours, _), (_, _, files, _) in zip(by_udev[subsystem], by_files[subsystem], strict=True):
            assert files.items() <= ours.items(), "the kernel's properties, and those of the database"
    first, second = by_udev["gpus"]
    assert (first["bdf"], first["pci_id"], first["model"]) == (
        "0000:05:00.0",
        "1002:74a1",
        DATABASE["ID_MODEL_FROM_DATABASE"],
    )
    assert second["model"] == "AMD Instinct MI300X", "which the driver knows better"


def test_a_node_without_libudev_has_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        return None

    udev._context.cache_clear()
    monkeypatch.setattr("pyudev._ctypeslib.utils.find_library", missing)
    try:
        assert udev._context() is None
        found = udev.devices(Tree(), "net")
    finally:
        udev._context.cache_clear()
    assert {"lo"} <= {each.name for each in found} and all(each.path.startswith("/sys/devices/") for each in found)
    assert found == udev.devices(Tree(), "net"), "as udev has them, where no rule of udev's adds to a device"


def test_a_display_of_a_management_controller_is_no_gpu(root: Path) -> None:
    tree = Tree(str(root))
    assert len(udev.devices(tree, "pci", vendor="0x1002")) == 3
    assert [each.name for each in gpu.functions(tree)] == ["0000:05:00.0", "0000:85:00.0"]


def test_a_display_under_the_driver_of_the_gpus_is_one(root: Path) -> None:
    event = root / "sys/devices/pci0000:f0/0000:f0:00.0/uevent"
    before = event.read_text()
    event.write_text(before + "DRIVER=amdgpu\n")
    try:
        assert [each.name for each in gpu.functions(Tree(str(root)))][2:] == ["0000:f0:00.0"]
    finally:
        event.write_text(before)
