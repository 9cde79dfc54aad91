"""Rungs that only a kernel of its own can show: a reboot that mends, a driver that is loaded anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.product import Product, smoke
from tests.lab.vms import Vm, VmLab

pytestmark = [pytest.mark.xdist_group("virtual machines 1"), pytest.mark.long]

PROGRAM = Path(__file__).parent / "isolation" / "torchrun"
VENV = "/opt/small"
PARAMETER = "shakedown.rung=2"  # for nobody: the kernel keeps what it does not know
SLOW = 1500
"""Seconds for what boots an emulated machine and reads it several times, on a busy machine."""


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def site(lab: VmLab, product: Product, *rungs: str) -> Path:
    data: dict[str, Any] = smoke(venv=VENV, unreachable_s=300, start_timeout_s=900, stall_timeout_s=600)
    data["gpu"] = {"profile": "cpu", "modules": ["amdgpu"]}
    data["tuning"] = {"numa_balancing": None, "modules": [], "cmdline": [PARAMETER]}
    return lab.inventory(product.folder / "lab.py", data | {"service": {"rungs": ["mend", *rungs]}})


def boot_id(vm: Vm) -> str:
    return vm.exec("cat /proc/sys/kernel/random/boot_id").stdout.strip()


def test_a_node_that_needs_a_boot_gets_it_and_is_loaded_afterwards(vm_pair: VmLab, product: Product) -> None:
    for vm in vm_pair:
        vm.exec(f"mkdir -p {VENV}/bin && printf '#!/bin/sh\\n' > {VENV}/bin/python && modprobe amdgpu", timeout=600)
        vm.write(f"{VENV}/bin/torchrun", PROGRAM.read_text())
        vm.exec(f"chmod 755 {VENV}/bin/python {VENV}/bin/torchrun")
    before = {vm.name: boot_id(vm) for vm in vm_pair}
    inventory = site(vm_pair, product, "reboot")
    ran = product.run("shakedown", "service", inventory, "--mend", "--format", "json", timeout=2 * SLOW)
    nodes = {node["node"]: node for node in json.loads(ran.out)["nodes"]}
    for vm in vm_pair:
        assert boot_id(vm) != before[vm.name], ran.text
        assert PARAMETER in vm.exec("cat /proc/cmdline").stdout, ran.text
        rungs = [(step["rung"], step["outcome"]) for step in nodes[vm.name]["steps"] if step["done"] == "ended"]
        assert ("reboot", "done") in rungs, ran.text
    told = [
        step["at"]
        for node in nodes.values()
        for step in node["steps"]
        if (step["rung"], step["done"]) == ("reboot", "begun")
    ]
    assert len(set(told)) == len(told), "one after the other: service.at_once is 1"


def test_a_driver_is_loaded_anew_where_that_is_allowed(vm_pair: VmLab, product: Product) -> None:
    vm = vm_pair["vm1"]
    vm.exec("modprobe amdgpu", timeout=600)
    made = "stat -c %Z /sys/module/amdgpu/refcnt"  # sysfs makes its files when they are first asked for
    first = vm.exec(made).stdout.strip()
    ran = product.deploy(site(vm_pair, product), "reload_driver", "-y", "--limit", "vm1", timeout=SLOW)
    assert ran.code == 1 and 'service.rungs of the desired state has no "reload driver"' in ran.text, ran.text
    ran = product.deploy(site(vm_pair, product, "reload driver"), "reload_driver", "-y", "--limit", "vm1", timeout=SLOW)
    assert ran.code == 0, ran.text
    assert vm.exec("cat /sys/module/amdgpu/initstate").stdout.strip() == "live"
    assert vm.exec(made).stdout.strip() != first, "another module than before"
