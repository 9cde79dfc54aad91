"""Rungs that only a kernel of its own can show: a reboot that mends, a driver loaded anew, power that is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.product import Product, finish, smoke, until
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


def equip(lab: VmLab) -> None:
    for vm in lab:
        vm.exec(f"mkdir -p {VENV}/bin && printf '#!/bin/sh\\n' > {VENV}/bin/python && modprobe amdgpu", timeout=600)
        vm.write(f"{VENV}/bin/torchrun", PROGRAM.read_text())
        vm.exec(f"chmod 755 {VENV}/bin/python {VENV}/bin/torchrun")


def site(lab: VmLab, product: Product, *rungs: str) -> Path:
    data: dict[str, Any] = smoke(venv=VENV, unreachable_s=300, start_timeout_s=900, stall_timeout_s=600)
    data["gpu"] = {"profile": "cpu", "modules": ["amdgpu"]}
    data["tuning"] = {"numa_balancing": None, "modules": [], "cmdline": [PARAMETER]}
    return lab.inventory(product.folder / "lab.py", data | {"service": {"rungs": ["mend", *rungs]}})


def boot_id(vm: Vm) -> str:
    return vm.exec("cat /proc/sys/kernel/random/boot_id").stdout.strip()


def test_a_node_that_needs_a_boot_gets_it_and_is_loaded_afterwards(vm_pair: VmLab, product: Product) -> None:
    equip(vm_pair)
    before = {vm.name: boot_id(vm) for vm in vm_pair}
    inventory = site(vm_pair, product, "reboot")
    ran = product.run("shakedown", "service", inventory, "--repair", "--format", "json", timeout=2 * SLOW)
    nodes = {node["node"]: node for node in json.loads(ran.out)["nodes"]}
    assert ran.code == 0, ran.text
    for vm in vm_pair:
        assert boot_id(vm) != before[vm.name], ran.text
        assert PARAMETER in vm.exec("cat /proc/cmdline").stdout, ran.text
        node = nodes[vm.name]
        steps = [(step["done"], step["rung"], step["outcome"]) for step in node["steps"]]
        each = [[("begun", rung, ""), ("ended", rung, "done")] for rung in ("mend", "reboot", "load")]
        assert steps == [step for both in each for step in both], ran.text
        assert (node["standing"], node["passed"]["load"], node["passed"]["others"]) == ("in service", "smoke", 1)
    first, second = ([step["at"] for step in nodes[vm.name]["steps"]] for vm in vm_pair)
    assert first[-1] < second[0], "one after the other: service.at_once is 1"


def test_a_machine_that_hangs_has_its_power_cycled_and_is_loaded_afterwards(vm_pair: VmLab, product: Product) -> None:
    """The command asks, and the test does what a BMC would."""
    equip(vm_pair)
    asked, bmc = product.folder / "asked", product.folder / "bmc"
    bmc.write_text(f'#!/bin/sh\necho "$1 $2" > {asked}.part && mv {asked}.part {asked}\n')
    bmc.chmod(0o700)
    data: dict[str, Any] = smoke(venv=VENV, unreachable_s=300, start_timeout_s=900, stall_timeout_s=600)
    data["tuning"] = {"numa_balancing": None}
    allowed = {"rungs": ["power cycle"], "bmc": {"command": [str(bmc), "{node}", "cycle"], "unasked": True}}
    inventory = vm_pair.inventory(product.folder / "lab.py", data | {"service": allowed})
    vm = vm_pair["vm1"]
    before = boot_id(vm)
    vm.freeze()  # connections are taken, and nobody answers
    process = product.start("shakedown", "service", inventory, "--repair")
    until(asked.exists, 900)
    assert asked.read_text() == "vm1 cycle\n"
    vm.down()
    vm.up()
    code, text = finish(process, SLOW)
    assert code == 0, text
    assert boot_id(vm) != before
    nodes = json.loads(product.run("shakedown", "service", inventory, "--format", "json", timeout=SLOW).out)["nodes"]
    vm1, vm2 = nodes
    steps = [(step["done"], step["rung"], step["outcome"]) for step in vm1["steps"]]
    each = [[("begun", rung, ""), ("ended", rung, "done")] for rung in ("power cycle", "load")]
    assert (vm1["standing"], steps) == ("in service", [step for both in each for step in both]), text
    assert (vm2["standing"], vm2["steps"]) == ("in service", []), text


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
