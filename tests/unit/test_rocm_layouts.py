"""ROCm in every layout that AMD has published (node/rocm.py says which), on trees of each: what is found, and where."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from shakedown.checks.support import _by_labels
from shakedown.facts.settings import RocmProgram
from shakedown.node import cmdline, gpu, rocm, smi, software
from shakedown.node.tree import Tree, Unreadable
from shakedown.state.node import Image
from shakedown.trials.workload import programs, tools

CONF = "share/rocm-validation-suite/conf"


def core(root: Path, folder: str, version: str | None) -> None:
    """One folder of ROCm with its parts."""
    for part in ("lib/libamd_smi.so", "lib/librccl.so.1", "bin/rocminfo", "bin/amd-smi", "bin/all_reduce_perf"):
        path = root / folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    (root / folder / "include/rccl").mkdir(parents=True)
    lines = ("#define NCCL_MAJOR 2", "#define NCCL_MINOR 30", "#define NCCL_PATCH 4", "")
    (root / folder / "include/rccl/rccl.h").write_text("\n".join(lines))
    if version:
        (root / folder / ".info").mkdir()
        (root / folder / ".info/version").write_text(f"{version}\n")


def extras(root: Path, folder: str) -> None:
    for part in ("bin/rvs", "bin/TransferBench", f"{CONF}/gst_single.conf"):
        path = root / folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)


def old(root: Path) -> None:
    core(root, "opt/rocm-7.2.0", "7.2.0-53")
    extras(root, "opt/rocm-7.2.0")
    (root / "opt/rocm").symlink_to("rocm-7.2.0")


def old_without_a_link(root: Path) -> None:
    core(root, "opt/rocm-6.4.3", "6.4.3-128")
    core(root, "opt/rocm-6.10.0", "6.10.0-1")
    extras(root, "opt/rocm-6.10.0")


def packages(root: Path) -> None:
    """Of 7.14 and 10.0 beside each other, with AMD's alternatives."""
    tarballs(root)
    (root / "opt/rocm/core").symlink_to("core-10.0")
    (root / "opt/rocm/core-10").symlink_to("core-10.0")
    (root / "opt/rocm/core-7").symlink_to("core-7.14")
    for name in ("bin", "lib", "include"):
        (root / "opt/rocm" / name).symlink_to(f"core/{name}")


def an_older_one_is_chosen(root: Path) -> None:
    tarballs(root)
    (root / "opt/rocm/core").symlink_to("core-7.14")


def by_alternatives(root: Path) -> None:
    """As update-alternatives links: with whole paths."""
    tarballs(root)
    (root / "etc/alternatives").mkdir(parents=True)
    (root / "etc/alternatives/rocm-core").symlink_to(root / "opt/rocm/core-7.14")
    (root / "opt/rocm/core").symlink_to(root / "etc/alternatives/rocm-core")


def old_with_a_whole_path(root: Path) -> None:
    core(root, "opt/rocm-7.2.1", "7.2.1-81")
    core(root, "opt/rocm-7.10.0", "7.10.0-3")
    extras(root, "opt/rocm-7.2.1")
    (root / "opt/rocm").symlink_to(root / "opt/rocm-7.2.1")


def tarballs(root: Path) -> None:
    core(root, "opt/rocm/core-7.14", "7.14.0")
    core(root, "opt/rocm/core-10.0", "10.0.0")
    for major in (7, 10):
        extras(root, f"opt/rocm/extras-{major}")


def wheels(root: Path) -> None:
    site = "opt/venv/lib/python3.12/site-packages"
    core(root, f"{site}/_rocm_sdk_core", None)
    (root / site / "rocm_sdk_core-10.0.0.dist-info").mkdir()
    library = root / site / "_rocm_sdk_libraries_gfx94X_dcgpu/lib/librccl.so.1"
    library.parent.mkdir(parents=True)
    (root / site / "_rocm_sdk_core/lib/librccl.so.1").rename(library)
    extras(root, "opt/rocm/extras-10")


LAYOUTS: dict[str, tuple[Any, str, str, str]] = {
    "up to 7.2": (old, "7.2.0-53", "/opt/rocm", "/opt/rocm"),
    "up to 7.2, without the link": (old_without_a_link, "6.10.0-1", "/opt/rocm-6.10.0", "/opt/rocm-6.10.0"),
    "packages": (packages, "10.0.0", "/opt/rocm/core", "/opt/rocm/extras-10"),
    "packages, an older one chosen": (an_older_one_is_chosen, "7.14.0", "/opt/rocm/core", "/opt/rocm/extras-7"),
    "packages, by alternatives": (by_alternatives, "7.14.0", "/opt/rocm/core", "/opt/rocm/extras-7"),
    "up to 7.2, a whole path": (old_with_a_whole_path, "7.2.1-81", "/opt/rocm", "/opt/rocm"),
    "tarballs": (tarballs, "10.0.0", "/opt/rocm/core-10.0", "/opt/rocm/extras-10"),
    "wheels": (wheels, "10.0.0", "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_core", "/opt/rocm/extras-10"),
}


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCM_PATH", "ROCM_INSTALL_PATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_part_is_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    make, version, home, more = LAYOUTS[layout]
    make(tmp_path)
    tree, root = Tree(str(tmp_path)), str(tmp_path)
    assert gpu.rocm_version(tree) == version
    assert smi.library_path(tree) == f"{home}/lib/libamd_smi.so"
    assert rocm.find(root, "bin/rocminfo") == f"{home}/bin/rocminfo"
    assert rocm.find(root, "bin/rvs") == f"{more}/bin/rvs"
    assert tools.configuration("gst", "mi300x", root) == Path(f"{root}{more}/{CONF}/gst_single.conf")
    found = software.rccl(tree)
    assert found.endswith("librccl.so.1)") and found.startswith("1 (" if layout == "wheels" else "2.30.4 (")


def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages(tmp_path)
    tree = Tree(str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm/core-7.14/")
    assert gpu.rocm_version(tree) == "7.14.0"
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm")
    assert gpu.rocm_version(tree) == "10.0.0", "which has links, and no version of its own"
    monkeypatch.setenv("ROCM_PATH", "/opt/gone")
    assert gpu.rocm_version(tree) == "10.0.0"


def test_a_link_that_leads_nowhere_is_passed_by(tmp_path: Path) -> None:
    tarballs(tmp_path)
    (tmp_path / "opt/rocm/core").symlink_to("core-9.9")
    assert gpu.rocm_version(Tree(str(tmp_path))) == "10.0.0"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_folder_s_version_is_not_that_of_the_library_in_use(tmp_path: Path, layout: str) -> None:
    make, _, home, _ = LAYOUTS[layout]
    make(tmp_path)
    core(tmp_path, "usr/lib/python3.9/site-packages/_rocm_sdk_core", "5.7.0-1")
    wheels = list((tmp_path / home[1:]).parent.glob("rocm_sdk_core-*"))
    for path in wheels or [tmp_path / home[1:] / ".info/version"]:
        path.rename(path.with_name("gone"))
    tree = Tree(str(tmp_path))
    with pytest.raises(Unreadable) as error:
        gpu.rocm_version(tree)
    library = smi.library_path(tree)
    assert (library, error.value.reason) == (f"{home}/lib/libamd_smi.so", "failed"), "ROCm is there: not `missing`"
    assert error.value.detail == f"{library} is there without {home}/.info/version"


@pytest.mark.parametrize("folder", ["opt/rocm-7.2.0", "opt/rocm/core-10.10"])
def test_a_copy_that_an_administrator_has_kept_comes_last(tmp_path: Path, folder: str) -> None:
    for name in (f"{folder}.bak", folder, f"{folder}.old", "opt/rocm-6.4.3"):
        core(tmp_path, name, name.rpartition("-")[2])
    assert gpu.rocm_version(Tree(str(tmp_path))) == folder.rpartition("-")[2]


def test_without_rocm_the_reason_is_that_it_is_missing(tmp_path: Path) -> None:
    for reading in (gpu.rocm_version, smi.library_path, software.rccl):
        with pytest.raises(Unreadable, match="missing"):
            reading(Tree(str(tmp_path)))


def test_the_newest_of_several_libraries_is_taken_by_its_number(tmp_path: Path) -> None:
    for name in ("libamd_smi.so.9", "libamd_smi.so.26"):
        (tmp_path / "usr/lib64").mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/lib64" / name).touch()
    assert smi.library_path(Tree(str(tmp_path))) == "/usr/lib64/libamd_smi.so.26"


def test_programs_are_found_on_a_node_as_in_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core(tmp_path, "core-10.0", "10.0.0")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    expected = f"{tmp_path}/core-10.0/bin/all_reduce_perf"
    assert programs.find("all_reduce_perf") == expected
    command = RocmProgram().command(tool="all_reduce_perf")
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip() == expected
    (tmp_path / "core-10.0/bin").chmod(0o777)
    refused = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"{expected} is not run: others may write there: {tmp_path}/core-10.0/bin: give it to root" in refused.stderr
    command = RocmProgram().command(tool="no-such-program")
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout.strip() == "no-such-program"


def test_versions_are_compared_as_numbers() -> None:
    assert rocm.numbers("10.0.0") > rocm.numbers("7.14.0-83") > rocm.numbers("7.2.0")
    assert rocm.numbers("nothing") == ()


def test_the_newest_kernel_of_the_boot_loader_is_taken_by_its_number(tmp_path: Path) -> None:
    entries = tmp_path / "boot/loader/entries"
    entries.mkdir(parents=True)
    for kernel in ("5.14.0-9.el9", "5.14.0-427.el9", "0-rescue"):
        (entries / f"1a2b-{kernel}.conf").write_text(f"options root=/dev/sda1 kernel={kernel}\n")
    assert cmdline._loader_entries(Tree(str(tmp_path)), "6.1.0")[-1] == "kernel=5.14.0-427.el9"


@pytest.mark.parametrize(("label", "right"), [("v2.4.0", True), ("2.4.0a0", True), ("2.40", False), ("2.4.10", False)])
def test_labels_of_images_are_compared_as_numbers(label: str, right: bool) -> None:
    image = Image(id="sha256:0", tags=[], digests=[], size_bytes=1, labels={"pytorch.version": label})
    assert (_by_labels(image, {"pytorch": "2.4.0"})[0].value == "ok") == right
