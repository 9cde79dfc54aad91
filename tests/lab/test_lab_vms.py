"""The lab's virtual machines have what no namespace can: their own kernel values, reboots, drivers and RDMA devices."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab import images, registry
from tests.lab.machine import run
from tests.lab.node_spec import NodeSpec
from tests.lab.vms import Vm, VmLab, vms

NUMA = "/proc/sys/kernel/numa_balancing"


@pytest.fixture(scope="module")
def lab() -> Iterator[VmLab]:
    """Two machines for all tests of this file, booted in parallel."""
    started = time.monotonic()
    with vms(2, NodeSpec(docker=True, user="ops", sudo=True)) as machines:
        print(f"two machines answer ssh after {time.monotonic() - started:.0f} s")
        yield machines


def over_ssh(lab: VmLab, vm: Vm, command: str, user: str = "root") -> str:
    return run(lab.ssh(vm, command, user=user), timeout=180).stdout.strip()


def boot_id(vm: Vm) -> str:
    return vm.read("/proc/sys/kernel/random/boot_id")


def test_machines_have_their_own_identity_and_kernel_values(lab: VmLab) -> None:
    for vm in lab:
        assert (
            over_ssh(lab, vm, f"hostname; cat {NUMA}; ls /sys/devices/system/node | grep -c '^node'")
            == f"{vm.name}\n1\n2"
        )
        assert str(vm.address) in over_ssh(lab, vm, f"ip -br addr show {vm.interface}")
        assert over_ssh(lab, vm, "id -un; sudo -n id -un", user="ops") == "ops\nroot"
    first, second = lab
    first.write(NUMA, "0\n")
    assert (first.read(NUMA), second.read(NUMA)) == ("0\n", "1\n")
    first.write(NUMA, "1\n")


def test_a_kernel_parameter_and_a_sysctl_hold_after_a_real_reboot(lab: VmLab) -> None:
    vm = lab["vm1"]
    before = boot_id(vm)
    vm.write("/etc/sysctl.d/90-lab.conf", "kernel.numa_balancing=0\n")
    vm.exec(
        "sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=.*/GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt\"/' /etc/default/grub"
    )
    vm.exec("update-grub")
    assert "iommu=pt" not in vm.read("/proc/cmdline")
    run(lab.ssh(vm, "systemctl reboot"), check=False)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        vm.wait()
        if boot_id(vm) != before:
            break
        time.sleep(1)
    assert boot_id(vm) != before
    assert "iommu=pt" in vm.read("/proc/cmdline") and vm.read(NUMA) == "0\n"
    assert over_ssh(lab, vm, "hostname") == "vm1"


def test_the_amdgpu_driver_without_a_gpu(lab: VmLab) -> None:
    vm = lab["vm2"]
    assert vm.exec("test -e /dev/kfd", check=False).returncode
    vm.exec("modprobe amdgpu")
    assert vm.exec("stat -c '%F %G' /dev/kfd").stdout == "character special file render\n"
    assert vm.exec("ls /sys/class/kfd/kfd/topology/nodes").stdout.split() == ["0", "1"]
    assert "Unable to detect any GPU devices" in "".join(vm.exec("amd-smi list 2>&1", check=False).stdout)
    assert vm.exec("rocm-smi", check=False).returncode == 0  # rocm-smi finds no GPU and says that all is well
    vm.exec("modprobe -r amdgpu")
    assert vm.exec("test -e /dev/kfd", check=False).returncode


def test_rdma_devices_are_real_and_named_like_broadcoms(lab: VmLab) -> None:
    for vm in lab:
        vm.exec(f"modprobe rdma_rxe; modprobe rdma_ucm; rdma link add bnxt_re0 type rxe netdev {vm.interface}")
        port = "/sys/class/infiniband/bnxt_re0/ports/1"
        assert vm.read(f"{port}/state") == "4: ACTIVE\n"
        assert (
            vm.exec(f"cat {port}/gid_attrs/types/0 {port}/gid_attrs/types/1").stdout.split("\n")[:2] == ["RoCE v2"] * 2
        )
        mapped = "".join(f"{byte:02x}" for byte in vm.address.packed)
        assert vm.read(f"{port}/gids/1").replace(":", "").strip().endswith(f"ffff{mapped}")
        assert vm.exec("ls /dev/infiniband").stdout.split() == ["rdma_cm", "uverbs0"]
    first, second = lab
    first.exec("ibv_rc_pingpong -d bnxt_re0 -g 1 -n 20 >/tmp/pingpong 2>&1 &")
    time.sleep(2)
    assert "20 iters" in second.exec(f"ibv_rc_pingpong -d bnxt_re0 -g 1 -n 20 {first.address}").stdout


def test_docker_pulls_by_digest_and_runs_with_every_flag(lab: VmLab) -> None:
    vm = lab["vm2"]
    with registry.serve(lab) as store:
        image = store.publish(images.tiny())
        vm.exec(f"docker pull -q {image}", timeout=300)
        flags = "--rm --privileged --ulimit memlock=-1 --network host --device /dev/infiniband"
        said = vm.exec(
            f"docker run {flags} {image} sh -c 'hostname; ulimit -l; ls /dev/infiniband'", timeout=300
        ).stdout
        assert said.split() == ["vm2", "unlimited", "rdma_cm", "uverbs0"]
        vm.exec(f"docker run -d --name left {image} sleep 300")
        assert "sleep 300" in vm.processes()
        vm.exec("docker rm -f left")
        assert vm.processes() == []


def test_cable_and_sshd_can_fail(lab: VmLab) -> None:
    vm = lab["vm1"]
    vm.cut()
    assert vm.read(f"/sys/class/net/{vm.interface}/carrier") == "0\n"
    vm.heal()
    vm.freeze()
    done = run(["timeout", "5", *lab.ssh(vm, "true")], check=False)
    assert done.returncode == 124
    vm.thaw()
    assert over_ssh(lab, vm, "hostname") == "vm1"
