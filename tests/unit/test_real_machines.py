"""The readers, and the trees of our own, held against what real machines show (tests/data/machines, with sources)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from shakedown.catalogue.kernel import matcher
from shakedown.catalogue.lines import read
from shakedown.node import devices, gpu, kfd
from shakedown.node.kernel_verdict import judge
from shakedown.node.rdma import ERROR_NAME
from shakedown.node.tree import Tree
from tests.node_trees import GPUS, PARTITIONS, make_tree

DATA = Path(__file__).parents[1] / "data" / "machines"
MACHINES: list[dict[str, Any]] = tomllib.loads((DATA / "kfd.toml").read_text())["machine"]
COUNTERS: dict[str, dict[str, list[str]]] = tomllib.loads((DATA / "counters.toml").read_text())
NODES = "sys/class/kfd/kfd/topology/nodes"

# What AMD's checker counts and we do not, and why.
NO_FAULT = {
    "out_of_sequence": "adaptive routing delivers packets out of order",
    "resp_rx_outouf_seq": "the same",
    "resp_rx_ccl_cts_outouf_seq": "the same",
    "rp_cnp_ignored": "congestion, not a fault",
    **dict.fromkeys(
        ("req_cqe_flush_error", "resp_cqe_flush_error", "req_rx_cqe_flush", "resp_rx_cqe_flush"),
        "what a queue pair had posted when it ended",
    ),
}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine["name"]))
def test_gpus_are_counted_whole_whatever_they_are_partitioned_into(machine: dict[str, Any], tmp_path: Path) -> None:
    for number, (simds, domain, place, device) in enumerate(machine["kfd"]):
        folder = tmp_path / NODES / str(number)
        folder.mkdir(parents=True)
        lines = {"simd_count": simds, "domain": domain, "location_id": place, "device_id": device}
        (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    nodes = sum(row[0] > 0 for row in machine["kfd"])
    assert kfd.read(Tree(str(tmp_path))) == {
        "gpus": machine["gpus"],
        "gpu_nodes": nodes,
        "cpu_nodes": machine["cpu_nodes"],
    }
    assert {f"{row[3]:x}" for row in machine["kfd"] if row[0]} == {machine["pci_device"]}


@pytest.mark.parametrize("family", COUNTERS)
def test_every_counter_of_a_fault_is_watched_and_no_other(family: str) -> None:
    counters = COUNTERS[family]
    watched = [name for name in counters["errors"] + counters["others"] if ERROR_NAME.search(name)]
    assert watched == [name for name in counters["errors"] if name not in NO_FAULT]


def test_a_kernel_s_own_driver_has_no_version_and_is_known_all_the_same(tmp_path: Path) -> None:
    """Ubuntu 24.04's 6.8.0-79 with ROCm 6.4.0: https://github.com/ROCm/k8s-device-plugin/issues/157."""
    tree = make_tree(tmp_path, count=1, gid_entries=4, cpus=1)
    (tree / "sys/module/amdgpu/version").unlink()
    (tree / "sys/module/amdgpu/srcversion").write_text("6CCB5408246071AC9F63359\n")
    (part,) = gpu.read(Tree(str(tree)))
    assert part["driver"] == "the kernel's own, source 6CCB5408246071AC9F63359"


def test_the_trees_of_our_own_have_what_a_kernel_prints(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, count=8, gid_entries=4, cpus=1)
    assert kfd.read(Tree(str(tree))) == {"gpus": 8, "gpu_nodes": 8, "cpu_nodes": 2}
    # rocm-smi and KFD of several sites' machines agree in this figure to the byte.
    assert GPUS["mi300x"].vram == 206141652992


def test_device_files_of_partitions_that_are_not_configured_are_left_alone(tmp_path: Path) -> None:
    """A GPU in SPX has eight render nodes of which seven cannot be opened, and each try is an error in the kernel's
    log (ROCm/ROCm issue 5720; "renderD128 renderD136 ..." is how containers of such machines get whole GPUs)."""
    tree = make_tree(tmp_path, count=2, gid_entries=4, cpus=1)
    there = {path.name for path in (tree / "dev/dri").iterdir()}
    assert len([name for name in there if name.startswith("renderD")]) == 2 * PARTITIONS
    parts = devices.read(Tree(str(tree)))["dri"]
    assert [part["path"] for part in parts] == [
        f"/dev/dri/{name}" for name in ("card1", "card9", "renderD128", "renderD136")
    ]
    assert {part["openable"] for part in parts} == {True}


def test_of_a_divided_gpu_the_configured_partitions_are_looked_at(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, count=1, gid_entries=4, cpus=1)
    (properties,) = [path for path in (tree / NODES).glob("*/properties") if "drm_render_minor 128" in path.read_text()]
    for partition in (1, 2):
        other = tree / NODES / str(10 + partition) / "properties"
        other.parent.mkdir()
        other.write_text(properties.read_text().replace("drm_render_minor 128", f"drm_render_minor {128 + partition}"))
        for name in (f"renderD{128 + partition}", f"card{1 + partition}"):
            (tree / "dev/dri" / name).unlink()
            (tree / "dev/dri" / name).write_text("")
    names = [part["path"].removeprefix("/dev/dri/") for part in devices.read(Tree(str(tree)))["dri"]]
    assert names == ["card1", "card2", "card3", "renderD128", "renderD129", "renderD130"]


def test_what_a_driver_says_of_such_a_file_is_no_fault_of_the_hardware() -> None:
    said = "amdgpu 0000:15:00.0: amdgpu: renderD153 partition 1 not valid!"
    assert judge(matcher(), [read(f"<4>[    9.000000] {said}")]) == []
