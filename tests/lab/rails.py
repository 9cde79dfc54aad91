"""RDMA for virtual machines: a rail each, which is an interface beside the one that ssh uses, with a soft-RoCE device
on it that is named like a Broadcom NIC's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.lab.vms import Vm, VmLab

DEVICES = {"vm1": "bnxt_re0", "vm2": "rocep1s0", "vm3": "bnxt_re1"}
"""Names differ from node to node, as they do in racks."""
ADDRESSES = {"vm1": "10.77.0.1", "vm2": "10.77.0.2", "vm3": "10.77.0.3"}
MTU = 1400

RDMA: dict[str, Any] = {
    "count": 1,
    "vendor": None,
    "rate_gbps": None,
    "mtu": MTU,
    "link_gts": None,
    "link_width": None,
    "max_read_request": None,
    "provider": None,
    "modules": ["rdma_rxe", "rdma_ucm", "ib_umad"],
}
"""Thor2's section with what a software device has not (PCIe, vendor, 400 Gb/s, Broadcom's library) switched off."""


def add_device(vm: Vm) -> None:
    vm.exec(f"rdma link add {DEVICES[vm.name]} type rxe netdev rail0; udevadm settle")


@contextmanager
def laid(lab: VmLab) -> Iterator[None]:
    """A rail for each machine, and no other RDMA device; taken up afterwards."""
    for vm in lab:
        vm.wait()  # a test that failed may have left it booting
    try:
        for vm in lab:
            vm.exec("modprobe rdma_rxe; modprobe rdma_ucm")
            vm.exec("for device in $(ls /sys/class/infiniband); do rdma link delete $device; done")
            # Both interfaces are on one network: each answers for its own addresses, or RoCE frames reach the other.
            vm.exec("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")
            vm.exec(f"ip link add rail0 link {vm.interface} type macvlan mode bridge")
            vm.exec(f"ip addr add {ADDRESSES[vm.name]}/24 dev rail0; ip link set rail0 up")
            add_device(vm)
        yield
    finally:
        for vm in lab:
            vm.exec(f"rdma link delete {DEVICES[vm.name]}; ip link delete rail0", check=False)
            vm.exec("sysctl -qw net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0", check=False)
