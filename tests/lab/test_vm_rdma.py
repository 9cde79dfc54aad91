"""RDMA on kernels of their own: real devices, GID tables and ports (soft-RoCE), named like a Broadcom NIC's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from tests.lab.product import Product, patiently
from tests.lab.rails import ADDRESSES, DEVICES, MTU, RDMA, laid
from tests.lab.vms import Vm, VmLab

pytestmark = [pytest.mark.xdist_group("virtual machines 1"), pytest.mark.long]

SLOW = 600
SITE: dict[str, Any] = {"gpu": "cpu", "nic": "thor2", "rdma": RDMA, "system": {"disk_free": {"/": "100M"}}}
# The plan is made from what the nodes are: nothing is pulled or started here.
JOB: dict[str, Any] = {
    "images": {"training": "registry.example/megatron-lm:latest"},
    "smoke": {
        "recipe": "llama3.1-8b-bf16",
        "steady": False,
        "image": "training",
        "ranks_per_node": 1,
        "options": {"TP": 1, "MBS": 2, "BS": 8},
        "devices": ["/dev/infiniband"],
    },
}


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture
def lab(vm_pair: VmLab) -> Iterator[VmLab]:
    """The pair with a rail each."""
    with laid(vm_pair):
        yield vm_pair


def gid(vm: Vm, index: int) -> IPv4Address | None:
    """The IPv4 address in one entry of the kernel's own table, where it is one of RoCE v2."""
    port = f"/sys/class/infiniband/{DEVICES[vm.name]}/ports/1"
    text, kind = vm.exec(f"cat {port}/gids/{index} {port}/gid_attrs/types/{index}").stdout.splitlines()
    number = int(text.replace(":", ""), 16)
    mapped = kind == "RoCE v2" and number >> 32 == 0xFFFF
    return IPv4Address(number & 0xFFFFFFFF) if mapped else None


def deploy(product: Product, inventory: Path) -> None:
    """Until the record says that every node is in its desired state."""
    for _ in range(3):
        ran = product.deploy(inventory, "megatron", "-y", timeout=SLOW)
        assert ran.code == 0, ran.text
        if "no answer in" not in ran.text:
            return
    raise AssertionError(ran.text)


def findings(product: Product, inventory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What differs."""
    ran = patiently(lambda: product.drift(inventory, "--format", "jsonl"))
    found = [json.loads(line) for line in ran.out.splitlines()]
    # The machines were resumed from one snapshot, and their devices have names of their own.
    mine = [each for each in found if each["name"] not in ("fleet.boot_id", "fleet.nic_names")]
    return {(each["node"], each["name"]): each for each in mine if each["verdict"] != "ok"}


def planned(product: Product, lab: VmLab) -> dict[str, dict[str, Any]]:
    """Each node's part of `shakedown plan`."""
    inventory = lab.inventory(product.folder / "job.py", SITE | JOB)
    ran = patiently(lambda: product.run("shakedown", "plan", inventory, "--format", "json"))
    assert ran.code == 0, ran.text
    return {node["name"]: node for node in json.loads(ran.out)["nodes"]}


def write_bandwidth(lab: VmLab, plan: dict[str, dict[str, Any]]) -> str:
    """`ib_write_bw` from the second node to the first, over exactly the devices and GIDs of the plan."""

    def command(vm: Vm, peer: str = "") -> str:
        node = plan[vm.name]
        return f"ib_write_bw -d {node['hca'][0]} -x {node['gid_index']} -s 4096 -n 20 -t 16 -Q 1 -F {peer}"

    server, client = lab
    server.exec(f"{command(server)} >/tmp/served 2>&1 </dev/null &")
    try:
        server.exec("until ss -ltn | grep -q :18515; do sleep 0.2; done", timeout=60)
        return client.exec(command(client, ADDRESSES[server.name]), timeout=120).stdout
    finally:
        server.exec("pkill ib_write_bw", check=False)


def test_what_becomes_of_a_rail_is_found_and_the_plan_follows(lab: VmLab, product: Product) -> None:
    first, second = lab
    inventory = lab.inventory(product.folder / "lab.py", SITE)
    deploy(product, inventory)
    assert [vm.read("/sys/class/net/rail0/mtu").strip() for vm in lab] == [str(MTU)] * 2

    plan = planned(product, lab)
    for vm in lab:
        node = plan[vm.name]
        assert node["hca"] == [DEVICES[vm.name]]
        assert str(gid(vm, node["gid_index"])) == ADDRESSES[vm.name]
        assert node["address"] in vm.exec(f"ip -brief addr show {node['interface']}").stdout
        assert node["environment"]["NCCL_IB_HCA"] == DEVICES[vm.name]
        assert node["environment"]["NCCL_IB_GID_INDEX"] == str(node["gid_index"])
        assert node["environment"]["NCCL_SOCKET_IFNAME"] == node["interface"]
    assert "BW average" in write_bandwidth(lab, plan)
    usual = plan["vm1"]["gid_index"]

    # A second address takes the place of the first; the other node's address moves to a VLAN.
    address = f"{ADDRESSES['vm1']}/24 dev rail0"
    first.exec(f"ip addr del {address}; ip addr add 10.78.0.1/24 dev rail0; ip addr add {address}")
    first.exec("ip addr del 10.78.0.1/24 dev rail0; chmod 600 /dev/infiniband/uverbs0")
    second.exec("ip addr flush dev rail0; ip link set rail0 mtu 1300; ip addr add 10.78.0.2/24 dev rail0")
    second.exec("ip link add link rail0 name rail0.7 type vlan id 7; ip link set rail0.7 up")
    second.exec(f"ip addr flush dev rail0; ip addr add {ADDRESSES['vm2']}/24 dev rail0.7")
    found = findings(product, inventory)
    assert set(found) == {("vm1", "infiniband"), ("vm2", "mtu.rail0")}, found
    assert found["vm2", "mtu.rail0"]["actual"] == "1300" and "600" in str(found["vm1", "infiniband"]["actual"])
    plan = planned(product, lab)
    assert plan["vm1"]["gid_index"] != usual
    for vm in lab:
        assert str(gid(vm, plan[vm.name]["gid_index"])) == ADDRESSES[vm.name]
    port = f"/sys/class/infiniband/{DEVICES['vm2']}/ports/1"
    assert second.read(f"{port}/gid_attrs/ndevs/{plan['vm2']['gid_index']}") == "rail0.7\n"

    deploy(product, inventory)
    assert second.read("/sys/class/net/rail0/mtu").strip() == str(MTU)
    assert first.exec("stat -c %a /dev/infiniband/uverbs0").stdout == "666\n"

    first.exec(f"rdma link delete {DEVICES['vm1']}")
    second.exec("ip link set rail0 down")
    found = findings(product, inventory)
    assert found["vm1", "rdma_count"]["verdict"] == "fail" and found["vm1", "rdma_count"]["actual"] == 0
    assert found["vm2", "rdma_state"]["verdict"] == "fail" and "DOWN" in str(found["vm2", "rdma_state"]["actual"])
    ran = patiently(lambda: product.run("shakedown", "plan", product.folder / "job.py"))
    assert ran.code == 1 and "vm1" in ran.err and "vm2" in ran.err, ran.text
