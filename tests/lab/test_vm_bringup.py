"""The main job's settings on kernels of their own: what is found, set, kept over a reboot and taken back is read from
the kernel there, never from our own fact."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.lab.product import Product, Ran, patiently
from tests.lab.vms import Vm, VmLab

pytestmark = pytest.mark.xdist_group("virtual machines 1")

SLOW = 900
"""Seconds for a command that boots two emulated machines, on a busy machine."""
PARAMETERS = ["iommu=pt", "pci=bfsort"]
NUMA = "/proc/sys/kernel/numa_balancing"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
FORWARD = "/proc/sys/net/ipv4/conf/all/arp_ignore"

# MI300X with what an emulated machine has not switched off, layer by layer as a site would.
SITE: dict[str, Any] = {
    "gpu": {"profile": "mi300x", "count": 0, "compute_partition": None, "memory_partition": None, "rocm_min": None},
    "tuning": {
        "cmdline": PARAMETERS,
        "cpu_governor": None,
        "c2": None,
        "pcie_acs": None,
        "thp": "madvise",
        "groups": ["render"],
        "sysctl": {"net.ipv4.conf.all.arp_ignore": 2},
    },
    "system": {
        "container_engine": None,
        "clock_synchronised": None,
        "clock_skew_s": None,
        "kernel_log_clean": None,
        "disk_free": {"/": "100M"},
    },
}


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def kernel(vm: Vm) -> dict[str, str]:
    """What the node's kernel and file system say, read by `cat` and `stat` outside of the product."""
    script = f"""
        cat {NUMA}; cat {FORWARD}; grep -o '\\[.*\\]' {THP}
        stat -c '%a %G %F' /dev/kfd 2>/dev/null || echo none
        grep -c '^amdgpu ' /proc/modules
        id -nG root
        su -c 'ulimit -l; ulimit -n' root | xargs
    """
    names = ("numa", "arp_ignore", "thp", "kfd", "amdgpu", "groups", "limits")
    return dict(zip(names, vm.exec(script, timeout=300).stdout.splitlines(), strict=True))


FRESH = {"numa": "1", "arp_ignore": "0", "thp": "[always]", "kfd": "none", "amdgpu": "0", "groups": "root"}
KFD = "660 render character special file"
TUNED = {"numa": "0", "arp_ignore": "2", "thp": "[madvise]", "kfd": KFD, "amdgpu": "1", "groups": "root render"}


def next_boot(vm: Vm) -> set[str]:
    """Those of PARAMETERS that the boot loader's own file has for the next boot."""
    lines = vm.exec("grep -E '^[[:space:]]*linux[[:space:]]' /boot/grub/grub.cfg", check=False).stdout.split("\n")
    return {word for line in lines for word in line.split()} & set(PARAMETERS)


def booted(vm: Vm) -> tuple[int, int]:
    """When the machine booted and when its sshd was up, in seconds since the epoch."""
    said = vm.exec("grep btime /proc/stat; systemctl show ssh --property ActiveEnterTimestampMonotonic").stdout
    at, after_us = (int("".join(filter(str.isdigit, line))) for line in said.splitlines())
    return at, at + after_us // 10**6


def drift(product: Product, inventory: Path, *options: str) -> Ran:
    """The drift check's findings, all of which were read in time."""
    return patiently(lambda: product.drift(inventory, "--format", "jsonl", *options))


def verdicts(product: Product, inventory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (found["node"], found["name"]): found for found in map(json.loads, drift(product, inventory).out.splitlines())
    }


def verdicts_of(lines: str) -> dict[str, dict[str, Any]]:
    """Findings of `--format jsonl` for one node, by name."""
    return {finding["name"]: finding for finding in map(json.loads, lines.splitlines())}


def site(lab: VmLab, product: Product, reboot: str) -> Path:
    data = SITE | {"system": SITE["system"] | {"reboot": reboot}}
    return lab.inventory(product.folder / "lab.py", data)


def told_as_it_is(lab: VmLab, product: Product) -> None:
    """The full profile on vm1. AMD's own library and tools are there, the driver is loaded, and no GPU is."""
    vm = lab["vm1"]
    assert "Unable to detect any GPU" in vm.exec("amd-smi list 2>&1", check=False).stdout
    inventory = lab.inventory(product.folder / "mi300x.py", {"gpu": "mi300x"})
    ran = drift(product, inventory, "--limit", vm.name)
    assert ran.code == 1, ran.text
    found = verdicts_of(ran.out)
    assert (found["gpu_count"]["verdict"], found["gpu_count"]["actual"]) == ("fail", 0)
    assert "the driver is up" in found["gpu_count"]["evidence"]
    assert found["gpu_tool"]["verdict"] == "ok", f"the library answers, and lists nothing: {found['gpu_tool']}"
    assert found["kfd"]["verdict"] == "ok"
    assert (found["kfd_topology"]["verdict"], found["kfd_topology"]["actual"]) == ("fail", 0)
    assert found["dri"]["verdict"] == "fail" and "hardware" in found["dri"]["remedy"]["text"]


# Each machine costs four minutes of CPU, half a minute whenever amdgpu is loaded. That the second goes down when the
# first is back is seen in `make lab`.
@pytest.mark.parametrize("vm_pair", [1, pytest.param(2, marks=pytest.mark.long)], indirect=True)
def test_settings_are_found_applied_kept_over_a_real_reboot_and_taken_back(vm_pair: VmLab, product: Product) -> None:
    *_, last = vm_pair
    before = {vm.name: kernel(vm) for vm in vm_pair}
    assert all(FRESH.items() <= found.items() for found in before.values()), before
    boot_entries = {vm.name: next_boot(vm) for vm in vm_pair}
    inventory = site(vm_pair, product, "never")

    found = verdicts(product, inventory)
    for vm in vm_pair:
        names = {name for (node, name), finding in found.items() if node == vm.name and finding["verdict"] == "drift"}
        assert {"numa_balancing", "cmdline", "thp", "memlock", "nofile", "modules.amdgpu", "kfd"} <= names
        assert found[vm.name, "numa_balancing"]["actual"] in ("1", 1)
        assert "amdgpu" in found[vm.name, "kfd"]["remedy"]["text"]
        assert kernel(vm) == before[vm.name], "looking changes nothing"

    ran = product.deploy(inventory, "megatron", "-y", timeout=SLOW)
    assert ran.code == 3, "a boot is pending: the exit code follows the verdict"
    assert "(reboot pending)" in ran.text
    for vm in vm_pair:
        assert TUNED.items() <= kernel(vm).items()
        assert kernel(vm)["limits"] == "unlimited 1048576"
        assert not set(PARAMETERS) <= set(vm.read("/proc/cmdline").split())
        assert next_boot(vm) == set(PARAMETERS)

    last.exec("chown root:root /dev/kfd; chmod 600 /dev/kfd")
    found = verdicts(product, inventory)
    different = {key: finding for key, finding in found.items() if finding["verdict"] not in ("ok", "warn")}
    assert set(different) == {*((vm.name, "cmdline") for vm in vm_pair), (last.name, "kfd")}, different
    assert all(different[vm.name, "cmdline"]["reboot_pending"] for vm in vm_pair)
    assert "600 root" in str(different[last.name, "kfd"]["actual"])

    boots = {vm.name: booted(vm)[0] for vm in vm_pair}
    inventory = site(vm_pair, product, "when needed")
    ran = patiently(lambda: product.deploy(inventory, "megatron", "-y", timeout=SLOW))
    assert ran.code == 0, ran.text
    assert all(booted(vm)[0] > boots[vm.name] for vm in vm_pair)
    for (_, back), (down, _) in pairwise(sorted(booted(vm) for vm in vm_pair)):
        assert back <= down, "the second went down when the first was back"
    for vm in vm_pair:
        assert set(PARAMETERS) <= set(vm.read("/proc/cmdline").split())
        assert TUNED.items() <= kernel(vm).items()

    after = drift(product, inventory)
    assert after.code == 0, after.text
    told_as_it_is(vm_pair, product)

    ran = product.deploy(inventory, "rollback", "-y", timeout=SLOW)
    assert ran.code == 0, ran.text
    for vm in vm_pair:
        assert kernel(vm) == before[vm.name]
        assert next_boot(vm) == boot_entries[vm.name]
        left = "ls -d /var/lib/shakedown /etc/shakedown /etc/*/*shakedown* /etc/systemd/system/*shakedown* 2>/dev/null"
        assert vm.exec(left, check=False).stdout == ""
