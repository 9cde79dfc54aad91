"""The lab's virtual machines have what no namespace can: their own kernel values, reboots, drivers and RDMA devices."""

from __future__ import annotations

import pytest

from tests.lab import images, registry
from tests.lab.machine import run
from tests.lab.vms import Vm, VmLab

pytestmark = pytest.mark.xdist_group("virtual machines 2")

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


def test_the_amdgpu_driver_without_a_gpu(vm_pair: VmLab) -> None:
    vm = vm_pair["vm2"]
    assert vm.exec("test -e /dev/kfd", check=False).returncode
    vm.exec("modprobe amdgpu")
    assert vm.exec("stat -c '%F %G' /dev/kfd").stdout == "character special file render\n"
    assert vm.exec("ls /sys/class/kfd/kfd/topology/nodes").stdout.split() == ["0", "1"]
    assert "Unable to detect any GPU devices" in "".join(vm.exec("amd-smi list 2>&1", check=False).stdout)
    assert "Device Type:             CPU" in vm.exec("rocminfo").stdout
    vm.exec("modprobe -r amdgpu")
    assert vm.exec("test -e /dev/kfd", check=False).returncode


def add_rdma_device(vm: Vm) -> None:
    """A soft-RoCE device on the machine's interface, unless it is there."""
    add = f"modprobe rdma_rxe; modprobe rdma_ucm; rdma link add bnxt_re0 type rxe netdev {vm.interface}"
    vm.exec(f"test -e /sys/class/infiniband/bnxt_re0 || {{ {add}; }}")


def test_rdma_devices_are_real_and_named_like_broadcoms(vm_pair: VmLab) -> None:
    for vm in vm_pair:
        add_rdma_device(vm)
        port = "/sys/class/infiniband/bnxt_re0/ports/1"
        assert vm.read(f"{port}/state") == "4: ACTIVE\n"
        assert (
            vm.exec(f"cat {port}/gid_attrs/types/0 {port}/gid_attrs/types/1").stdout.split("\n")[:2] == ["RoCE v2"] * 2
        )
        mapped = "".join(f"{byte:02x}" for byte in vm.address.packed)
        assert vm.read(f"{port}/gids/1").replace(":", "").strip().endswith(f"ffff{mapped}")
        assert {"rdma_cm", "uverbs0"} <= set(vm.exec("ls /dev/infiniband").stdout.split())
    first, second = vm_pair
    first.exec("ibv_rc_pingpong -d bnxt_re0 -g 1 -n 20 >/tmp/pingpong 2>&1 &")
    first.exec("until ss -ltn | grep -q :18515; do sleep 0.2; done")
    assert "20 iters" in second.exec(f"ibv_rc_pingpong -d bnxt_re0 -g 1 -n 20 {first.address}").stdout


def test_docker_pulls_by_digest_and_runs_with_every_flag(vm_pair: VmLab) -> None:
    vm = vm_pair["vm2"]
    add_rdma_device(vm)
    with registry.serve(vm_pair) as store:
        image = store.publish(images.tiny())
        vm.exec(f"docker pull -q {image}", timeout=300)
        flags = "--rm --privileged --ulimit memlock=-1 --network host --device /dev/infiniband"
        said = vm.exec(
            f"docker run {flags} {image} sh -c 'hostname; ulimit -l; ls /dev/infiniband'", timeout=300
        ).stdout
        assert said.split()[:2] == ["vm2", "unlimited"] and {"rdma_cm", "uverbs0"} <= set(said.split())
        vm.exec(f"docker run -d --name left {image} sleep 300")
        assert "sleep 300" in vm.processes()
        vm.exec("docker rm -f left")
        assert vm.processes() == []


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
