"""The readers, and the trees of our own, held against what real machines show (tests/data/machines, with sources)."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from shakedown.catalogue.kernel import matcher
from shakedown.catalogue.lines import read
from shakedown.desired import profiles
from shakedown.gates.nodes import counters as counters_gate
from shakedown.gates.observed import Counters
from shakedown.node import devices, gpu, rdma
from shakedown.node.interfaces import error_counters
from shakedown.node.kernel_verdict import judge
from shakedown.node.rdma import ERROR_NAME
from shakedown.node.tree import Tree, is_unreadable
from shakedown.state.findings import Verdict
from tests.node_trees import GPUS, PARTITIONS, make_tree

DATA = Path(__file__).parents[1] / "data" / "machines"
PROFILES = Path(profiles.__file__).parent / "profiles" / "nic"
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
    assert gpu.read_kfd(Tree(str(tmp_path))) == {
        "gpus": machine["gpus"],
        "gpu_nodes": nodes,
        "cpu_nodes": machine["cpu_nodes"],
    }
    assert {f"{row[3]:x}" for row in machine["kfd"] if row[0]} == {machine["pci_device"]}


REAL_GPUS: list[dict[str, Any]] = tomllib.loads((DATA / "gpus.toml").read_text())["gpu"]


@pytest.mark.parametrize("real", REAL_GPUS, ids=lambda real: str(real["machine"]))
def test_a_profile_knows_its_gpu_on_metal_and_in_a_virtual_machine(real: dict[str, Any]) -> None:
    loaded = [tomllib.loads(path.read_text())["gpu"] for path in (PROFILES.parent / "gpu").glob("*.toml")]
    (profile,) = [gpu for gpu in loaded if real["pci_id"] in gpu.get("pci_ids", [])]
    assert profile["name"] == real["name"].removesuffix(" VF")
    if real["link"]:
        assert real["link"] == [profile["link_width"], profile["link_gts"]]
    if "simds_per_cu" in real:
        assert GPUS[profile["profile"]].simds == real["compute_units"] * real["simds_per_cu"]
    if "vram_bytes" in real:
        assert GPUS[profile["profile"]].vram == real["vram_bytes"]


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
    assert gpu.read_kfd(Tree(str(tree))) == {"gpus": 8, "gpu_nodes": 8, "cpu_nodes": 2}
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


PORTS: dict[str, list[dict[str, Any]]] = tomllib.loads((DATA / "ports.toml").read_text())
PORT = "ports/1"


class Refusing(Tree):
    """A tree in which the kernel refuses the files that hold EINVAL."""

    def _raw(self, path: str, limit: int) -> bytes:
        content = super()._raw(path, limit)
        if content == b"EINVAL":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return content


def port_tree(root: Path, name: str, files: dict[str, str]) -> Tree:
    """Build the tree of a device that belongs to no PCI function; paths are below its folder of the class."""
    for path, content in files.items():
        file = root / "sys/class/infiniband" / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return Refusing(str(root))


def from_devinfo(text: str) -> tuple[str, dict[str, str]]:
    """Return the name of a device that ibv_devinfo has printed, and its files."""
    rows = [line.split(":", 1) for line in text.strip().splitlines()]
    values = {name.strip(): value.strip() for name, value in rows}
    word, number = values["state"].rstrip(")").split(" (")
    files = {"fw_ver": values["fw_ver"], "node_guid": values["node_guid"]}
    files[f"{PORT}/state"] = f"{number}: {word.removeprefix('PORT_')}"
    files[f"{PORT}/link_layer"] = values["link_layer"]
    return values["hca_id"], files


@pytest.mark.parametrize("port", PORTS["port"], ids=lambda port: str(port["machine"]))
def test_counters_that_a_driver_does_not_have_are_none_and_not_unknown(port: dict[str, Any], tmp_path: Path) -> None:
    files = {f"{PORT}/{path}": content for path, content in port["files"].items()}
    (part,), counters = rdma.read(port_tree(tmp_path, port["name"], files))
    prefix = f"rdma/{port['name']}/"
    assert counters == {prefix + name: value for name, value in port["counters"].items()}
    assert part["state"] == "ACTIVE" or "state" not in port["files"]
    if "family" in port:
        usual = tomllib.loads((PROFILES / f"{port['family']}.toml").read_text())["rdma"]["usual_devices"]
        assert any(fnmatchcase(port["name"], pattern) for pattern in usual)


def test_a_counter_that_fails_otherwise_is_unknown(tmp_path: Path) -> None:
    files = {f"{PORT}/counters/port_rcv_errors": "broken", f"{PORT}/hw_counters/rx_errors": ""}
    _, counters = rdma.read(port_tree(tmp_path, "mlx5_0", files))
    assert [is_unreadable(counters[f"rdma/mlx5_0/{name}"]) for name in ("port_rcv_errors", "rx_errors")] == [True, True]


def test_counters_that_this_user_may_not_list_are_no_counters_without_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = port_tree(tmp_path, "mlx5_0", {f"{PORT}/counters/port_rcv_errors": "0"})

    def closed(path: str, listed: Callable[[str], list[str]] = tree.names) -> list[str]:
        if path.endswith("/counters"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(tree, "names", closed)
    with pytest.raises(PermissionError):
        rdma.read(tree)


@pytest.mark.parametrize("output", PORTS["devinfo"], ids=lambda output: str(output["machine"]))
def test_a_port_that_ibv_devinfo_has_printed(output: dict[str, Any], tmp_path: Path) -> None:
    (part,), _ = rdma.read(port_tree(tmp_path, *from_devinfo(output["text"])))
    assert {name: part[name] for name in output["wanted"]} == output["wanted"]


def test_a_port_whose_driver_sits_on_the_auxiliary_bus_belongs_to_its_pci_function(tmp_path: Path) -> None:
    """AMD's own check lost all eight NICs of a host there: https://github.com/ROCm/mori/pull/590 (2026-08-21)."""
    function = tmp_path / "sys/devices/pci0000:e0/0000:e0:01.1/0000:e5:00.0"
    port = function / "ionic.rdma.0/infiniband/rdma0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (function / "net/enp229s0").mkdir(parents=True)
    (function / "vendor").write_text("0x1dd8\n")
    (function / "numa_node").write_text("1\n")
    driver = tmp_path / "sys/bus/pci/drivers/ionic"
    driver.mkdir(parents=True)
    (function / "driver").symlink_to(driver)
    (port.parents[1] / "device").symlink_to(function / "ionic.rdma.0")
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/rdma0").symlink_to(port.parents[1])
    (part,), _ = rdma.read(Tree(str(tmp_path)))
    wanted = {"bdf": "0000:e5:00.0", "vendor": "1dd8", "numa_node": 1, "driver": "ionic", "netdev": "enp229s0"}
    assert {name: part[name] for name in wanted} == wanted


@pytest.mark.parametrize("output", PORTS["ethtool"], ids=lambda output: str(output["machine"]))
def test_errors_among_a_driver_s_statistics(output: dict[str, Any]) -> None:
    rows = [line.strip().rsplit(": ", 1) for line in output["text"].strip().splitlines()]
    assert error_counters([name for name, _ in rows], [int(value) for _, value in rows]) == output["wanted"]


def test_what_healthy_ports_raise_is_judged_beside_other_ports() -> None:
    """34 duplicate responses of AMD's healthy port are no fault; 5,000 are where other ports have some, too."""
    grown = lambda *counts: Counters(  # noqa: E731
        {"n1": {f"rdma/ionic_{at}/req_rx_dup_response": 7 for at in range(len(counts))}},
        {"n1": {f"rdma/ionic_{at}/req_rx_dup_response": 7 + count for at, count in enumerate(counts)}},
    )
    assert counters_gate(grown(34, 0, 0)).verdict is Verdict.OK
    assert "risen as on other ports" in counters_gate(grown(34, 0, 0)).evidence
    assert counters_gate(grown(5000, 20, 30)).verdict is Verdict.FAIL
    assert counters_gate(grown(5000, 4000, 3000)).verdict is Verdict.OK
    assert counters_gate(grown(5000)).verdict is Verdict.FAIL, "without another port nothing excuses it"
    one = {"n1": {"rdma/ionic_0/req_rx_rnr_retry_err": 0}}, {"n1": {"rdma/ionic_0/req_rx_rnr_retry_err": 1}}
    assert counters_gate(Counters(*one)).verdict is Verdict.FAIL, "any growth of another counter is one"
