"""The lab's virtual machines have what no namespace can: their own kernel values, reboots, drivers and RDMA devices."""

from __future__ import annotations

import pytest

from tests.lab.machine import run
from tests.lab.vms import Vm, VmLab

pytestmark = [pytest.mark.xdist_group("virtual machines 2"), pytest.mark.long]

NUMA = "/proc/sys/kernel/numa_balancing"


def over_ssh(lab: VmLab, vm: Vm, command: str, user: str = "root") -> str:
    return run(lab.ssh(vm, command, user=user), timeout=180).stdout.strip()


def test_machines_have_their_own_identity_and_kernel_values(vm_pair: VmLab) -> None:
    for vm in vm_pair:
        assert (
            over_ssh(vm_pair, vm, f"hostname; cat {NUMA}; ls /sys/devices/system/node | grep -c '^node'")
            == f"{vm.name}\n1\n2"
        )
        assert str(vm.address) in over_ssh(vm_pair, vm, f"ip -br addr show {vm.interface}")
        assert over_ssh(vm_pair, vm, "id -un; sudo -n id -un", user="ops") == "ops\nroot"
    first, second = vm_pair
    first.write(NUMA, "0\n")
    assert (first.read(NUMA), second.read(NUMA)) == ("0\n", "1\n")
    first.write(NUMA, "1\n")


def test_cable_and_sshd_can_fail(vm_pair: VmLab) -> None:
    vm = vm_pair["vm1"]
    vm.cut()
    assert vm.read(f"/sys/class/net/{vm.interface}/carrier") == "0\n"
    vm.heal()
    vm.freeze()
    done = run(["timeout", "5", *vm_pair.ssh(vm, "true")], check=False)
    assert done.returncode == 124
    vm.thaw()
    assert over_ssh(vm_pair, vm, "hostname") == "vm1"
