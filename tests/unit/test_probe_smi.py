"""AMD's real Python package over a library of ours (tests/libamd_smi): its answers, its errors, its hangs."""

from __future__ import annotations

import shutil
import subprocess
import time
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from shakedown import checks
from shakedown.node.smi import package_abi
from shakedown.state.node import BadPages, Gpu, GpuProcess, NodeState, PowerCap, is_unreadable
from tests.libamd_smi.build import build, configure
from tests.node_trees import make_tree
from tests.states import desired
from tests.unit.test_probe_tree import read


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node of 8 MI300X whose ROCm has the library."""
    path = make_tree(tmp_path_factory.mktemp("smi"), gid_entries=4)
    build(path / "opt/rocm/lib")
    return path


def seen(root: Path, *lines: str, seconds: str = "10", **values: object) -> NodeState:
    configure(root / "opt/rocm/lib", *lines, **values)
    return read(root, "--seconds", seconds)


def gpus(state: NodeState) -> list[Gpu]:
    assert not is_unreadable(state.gpus)
    return state.gpus


def test_eight_healthy_gpus(root: Path) -> None:
    state = seen(root)
    assert state.gpu_tool == "26.0.2"
    assert len(gpus(state)) == 8
    for gpu in gpus(state):
        assert (gpu.model, gpu.vram_bytes, gpu.driver) == ("AMD Instinct MI300X", 192 * 2**30, "6.12.12")
        assert (gpu.compute_partition, gpu.memory_partition, gpu.xgmi_links) == ("SPX", "NPS1", 7)
        assert gpu.firmware == {"CP_MEC1": "173", "PM": "00.85.115.00"}
        assert (gpu.temperature_c, gpu.power_w) == (41.0, 132.0)
    assert [gpu.serial for gpu in gpus(state)] == [f"{0x1000 + index:016x}" for index in range(8)]


def test_faults_that_the_library_reports(root: Path) -> None:
    state = seen(root, compute_partition="CPX", bad=2, uncorrectable=3, correctable=4, replays=5, xgmi_down=1)
    bad = gpus(state)[2]
    assert {gpu.compute_partition for gpu in gpus(state)} == {"CPX"}, "the library's word wins over the driver's file"
    assert (bad.ecc_uncorrectable, bad.ecc_correctable, bad.pcie_replays, bad.xgmi_links) == (3, 4, 5, 6)
    assert {gpu.ecc_uncorrectable for gpu in gpus(state) if gpu is not bad} == {0}
    assert state.counters["ras/0000:45:00.0/uncorrectable"] == 3
    assert state.counters["pcie/0000:45:00.0/replay"] == 5


def test_the_health_of_the_gpus(root: Path) -> None:
    records = ("cper=1:30", "cper=2:24", *["cper=2:29"] * 25)  # more than one call gives
    faults = {"retired": 3, "pending": 1, "power_cap": 600000000, "active": "prochot,hbm", "holder": 77}
    state = seen(root, *records, bad=2, **faults, pcie_peer=1, correctable=4, xgmi_correctable=9, page_limit=64)
    bad, other = gpus(state)[2], gpus(state)[0]
    assert bad.bad_pages == BadPages(retired=3, pending=1, unreservable=0, limit=64)
    assert bad.power_cap == PowerCap(watts=600.0, default_watts=750.0, most_watts=750.0)
    assert bad.throttled == ["hbm_thermal", "prochot"]
    assert bad.processes == [GpuProcess(pid=77, name="python3", vram_bytes=1 << 30)]
    blocks: Any = bad.ecc_blocks
    assert {name: block.correctable for name, block in blocks.items()} == {"UMC": 4, "XGMI_WAFL": 9}
    entries: Any = bad.error_records
    assert len(entries) == 27 and [(entry.severity, entry.afids) for entry in entries[:2]] == [
        ("fatal", [30]),
        ("non_fatal_corrected", [24]),
    ]
    peers: Any = bad.peers
    assert len(peers) == 7 and {(peer.kind, peer.gts) for peer in peers.values()} == {("PCIe", 32)}
    assert (other.throttled, other.processes, other.error_records, other.ecc_blocks) == ([], [], [], {})
    verdicts = {finding.name: finding.verdict.value for finding in checks.evaluate(desired(), state, "node")}
    assert verdicts["gpu_power_cap"] == verdicts["gpu_error_records"] == verdicts["gpu_peers"] == "fail"
    assert verdicts["gpu_bad_pages"] == verdicts["gpu_throttled"] == "warn"


HEALTH = {
    "bad_pages": "amdsmi_get_gpu_bad_page_info",
    "power_cap": "amdsmi_get_power_cap_info",
    "ecc_blocks": "amdsmi_get_gpu_ecc_enabled",
    "error_records": "amdsmi_get_gpu_cper_entries",
    "throttled": "amdsmi_get_violation_status",
    "processes": "amdsmi_get_gpu_process_list",
    "peers": "amdsmi_topo_get_link_type",
}


def test_a_function_that_is_not_supported_costs_its_own_reading(root: Path) -> None:
    lines = [f"error={function}:2" for function in HEALTH.values()]
    state = seen(root, *lines, uncorrectable=1)
    for gpu in gpus(state):
        for name in HEALTH:
            assert getattr(gpu, name).unreadable == "missing", name
    assert gpus(state)[0].xgmi_links == 7


def test_a_call_that_hangs_or_crashes_costs_its_own_reading(root: Path) -> None:
    state = seen(root, "hang=amdsmi_get_gpu_cper_entries", "crash=amdsmi_get_violation_status", seconds="2")
    for gpu in gpus(state):
        records: Any = gpu.error_records
        throttled: Any = gpu.throttled
        assert (records.unreadable, throttled.unreadable) == ("timed out", "failed")
        assert gpu.bad_pages == BadPages(retired=0, pending=0, unreservable=0, limit=128) and gpu.xgmi_links == 7


def test_no_error_at_all_counts_only_where_blocks_count_errors(root: Path) -> None:
    """amdsmi_get_gpu_total_ecc_count adds up nothing where it cannot read which blocks do."""
    for path in (root / "sys/devices").rglob("*_err_count"):
        path.rename(path.with_name(f"{path.name}.gone"))
    try:
        for lines in (["error=amdsmi_get_gpu_ecc_enabled:7"], ["ecc_mask=0"]):
            first = gpus(seen(root, *lines))[0]
            assert is_unreadable(first.ecc_uncorrectable) and is_unreadable(first.ecc_correctable)
        assert gpus(seen(root, "error=amdsmi_get_gpu_ecc_enabled:7", uncorrectable=3))[0].ecc_uncorrectable == 3
    finally:
        for path in (root / "sys/devices").rglob("*_err_count.gone"):
            path.rename(path.with_name(path.name.removesuffix(".gone")))


def test_an_empty_ring_of_records_is_an_error_of_older_libraries_only(root: Path) -> None:
    lines = ["error=amdsmi_get_gpu_cper_entries:14"]
    first: Any = gpus(seen(root, *lines))[0].error_records
    assert first.unreadable == "failed", "debugfs is closed: nothing is known of the ring"
    (root / "sys/kernel/debug/dri").mkdir(parents=True)
    assert gpus(seen(root, *lines))[0].error_records == []
    newer: Any = gpus(seen(root, *lines, minor=5))[0].error_records
    assert newer.unreadable == "failed"
    crashes: Any = gpus(seen(root, minor=4))[0].error_records
    assert crashes.unreadable == "missing" and "26.4 crashes" in crashes.detail


@pytest.mark.parametrize(
    ("status", "why"),
    [(2, "missing"), (10, "not permitted"), (8, "timed out"), (34, "missing"), (7, "failed"), (9, "failed")],
)
def test_an_error_of_one_call_costs_one_value(root: Path, status: int, why: str) -> None:
    state = seen(root, f"error=amdsmi_get_fw_info:{status}")
    for gpu in gpus(state):
        assert is_unreadable(gpu.firmware) and gpu.firmware.unreadable == why
        assert gpu.xgmi_links == 7


def test_a_library_that_knows_nothing_of_xgmi(root: Path) -> None:
    state = seen(root, "error=amdsmi_get_gpu_xgmi_link_status:2")
    assert state.gpu_tool == "26.0.2"
    for gpu in gpus(state):
        assert is_unreadable(gpu.xgmi_links) and gpu.xgmi_links.unreadable == "missing"


def test_where_the_library_fails_the_driver_s_files_answer(root: Path) -> None:
    state = seen(root, "error=amdsmi_get_gpu_compute_partition:7", "error=amdsmi_get_gpu_total_ecc_count:10")
    assert {gpu.compute_partition for gpu in gpus(state)} == {"SPX"}
    assert {gpu.ecc_uncorrectable for gpu in gpus(state)} == {0}


@pytest.mark.parametrize(
    ("line", "why", "words"),
    [
        ("hang=amdsmi_init", "timed out", "no answer"),
        ("hang=amdsmi_get_fw_info", "timed out", "no answer"),
        ("crash=amdsmi_get_processor_handles", "failed", "signal 6"),
        ("error=amdsmi_init:34", "missing", "DRIVER_NOT_LOADED"),
        ("error=amdsmi_init:18", "failed", "INIT_ERROR"),
    ],
)
def test_a_library_that_does_not_answer_costs_its_readings_only(root: Path, line: str, why: str, words: str) -> None:
    began = time.monotonic()
    state = seen(root, line, seconds="2")
    assert time.monotonic() - began < 40
    assert is_unreadable(state.gpu_tool) and state.gpu_tool.unreadable == why
    assert words in state.gpu_tool.detail
    for gpu in gpus(state):
        # The files of the driver still tell most of it; what only the library knows carries its reason.
        assert (gpu.link.width, gpu.compute_partition, gpu.model) == (16, "SPX", "AMD Instinct MI300X")
        assert is_unreadable(gpu.firmware) and gpu.firmware.unreadable == why


def test_a_gpu_that_the_library_does_not_list(root: Path) -> None:
    state = seen(root, gpus=7)
    last: Any = gpus(state)[7].firmware
    assert is_unreadable(last) and "does not list" in last.detail
    assert not any(is_unreadable(gpu.firmware) for gpu in gpus(state)[:7])


def test_a_library_of_another_version(root: Path, tmp_path: Path) -> None:
    """One that lacks a function the package wants: its import fails, and that is said."""
    node = make_tree(tmp_path, count=1, gid_entries=4)
    (node / "opt/rocm/lib").mkdir(parents=True)
    library = str(node / "opt/rocm/lib/libamd_smi.so")
    subprocess.run(["gcc", "-shared", "-o", library, "-x", "c", "-"], input=b"int amdsmi_init;", check=True)
    state = read(node)
    assert is_unreadable(state.gpu_tool) and "import amdsmi: AttributeError" in state.gpu_tool.detail


def own_package(root: Path, version: str) -> None:
    """The node's own package beside its library, generated for the library's version."""
    folder = root / "opt/rocm/share/amd_smi/amdsmi"
    shutil.copytree(str(distribution("amdsmi").locate_file("amdsmi")), folder)
    (folder / "_version.py").write_text(f'__version__ = "{version}"')


def test_a_package_for_another_library_is_never_used(root: Path) -> None:
    """libamd_smi 27 has 64 bits where the carried package declares 32: it would write past the structure."""
    state = seen(root, abi=27)
    assert is_unreadable(state.gpu_tool) and state.gpu_tool.unreadable == "missing"
    assert "libamd_smi.so of version 27 needs" in state.gpu_tool.detail and "for 26" in state.gpu_tool.detail
    for gpu in gpus(state):
        assert is_unreadable(gpu.firmware) and gpu.compute_partition == "SPX", "the driver's files still answer"


def test_the_node_s_own_package_goes_with_its_library(tmp_path: Path) -> None:
    node = make_tree(tmp_path, count=1, gid_entries=4)
    build(node / "opt/rocm/lib")
    own_package(node, "27.0.0+abcdef")
    assert seen(node, abi=27).gpu_tool == "27.0.2"
    assert seen(node, abi=26).gpu_tool == "26.0.2", "by the carried one: the node's own is for another library"


PACKAGE = """import ctypes, os
ready = []
def amdsmi_init():
    ready.append(ctypes.CDLL({library}).amdsmi_init(2))
def amdsmi_get_lib_version():
    if {late} and not ready:
        raise RuntimeError("AMDSMI_STATUS_NOT_INIT")
    numbers = (ctypes.c_uint32 * 8)()
    ctypes.CDLL({library}).amdsmi_get_lib_version(numbers)
    return dict(zip(("major", "minor", "release"), numbers))
def amdsmi_get_processor_handles():
    return []
"""


@pytest.mark.parametrize("late", [False, True])
def test_a_package_that_loads_another_library_than_the_one_that_was_found_is_refused(
    tmp_path: Path, late: bool
) -> None:
    """Since 7.14 AMD's package loads what AMDSMI_LIB_OVERRIDE names; another may load what it carries."""
    node = make_tree(tmp_path / "node", count=1, gid_entries=4)
    build(node / "opt/rocm/lib")
    other = build(tmp_path / "other")
    configure(other.parent, abi=27)
    folder = node / "opt/rocm/share/amd_smi/amdsmi"
    folder.mkdir(parents=True)
    (folder / "_version.py").write_text('__version__ = "26.0.2"')
    (folder / "__init__.py").write_text(PACKAGE.format(library='os.environ["AMDSMI_LIB_OVERRIDE"]', late=late))
    assert seen(node).gpu_tool == "26.0.2"
    (folder / "__init__.py").write_text(PACKAGE.format(library=repr(str(other)), late=late))
    refused = seen(node).gpu_tool
    assert is_unreadable(refused) and refused.unreadable == "failed"
    assert "amdsmi loads another libamd_smi.so" in refused.detail


@pytest.mark.parametrize("place", ["opt/rocm", "opt/rocm-5.7.0"])
def test_a_package_that_names_no_version_goes_with_the_library_beside_it_only(tmp_path: Path, place: str) -> None:
    node = make_tree(tmp_path, count=1, gid_entries=4)
    build(node / "opt/rocm/lib")
    folder = node / place / "share/amd_smi/amdsmi"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('this one')")
    tool = str(seen(node).gpu_tool)
    assert "this one" in tool if place == "opt/rocm" else tool == "26.0.2"


@pytest.mark.parametrize(
    ("version", "abi"),
    [
        ("7.0.2", 26),
        ("26.0.2+39589fda", 26),
        ("6.4.1", 25),
        ("6.10.0", 25),
        ("10.0.0", 27),
        ("27.1.0", 27),
        ("6.0.0", 23),
        ("6.1", 24),
        ("6.4", 25),
        ("5.7.1", None),
        ("23.4.0", 23),
        ("24.0.0", 24),
        ("", None),
    ],
)
def test_what_a_package_was_generated_for(tmp_path: Path, version: str, abi: int | None) -> None:
    (tmp_path / "amdsmi").mkdir()
    (tmp_path / "amdsmi/_version.py").write_text(f'__version__ = "{version}"\n')
    assert package_abi(str(tmp_path)) == abi
    assert package_abi(str(tmp_path / "nothing")) is None


def test_a_library_that_wants_to_be_initialised_before_it_says_its_version_is_asked_then(root: Path) -> None:
    assert seen(root, init_first=1).gpu_tool == "26.0.2"
