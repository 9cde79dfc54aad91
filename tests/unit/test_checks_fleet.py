"""The odd one out: which nodes of a group differ from the others, and in what."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from pydantic import ValidationError

from shakedown.checks import fleet, fleet_facts, machines
from shakedown.checks.fleet import outliers
from shakedown.checks.fleet_facts import knowledge
from shakedown.report.causes import causes
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState
from tests.states import DELETED, GIB, desired, healthy, image, unreadable, with_

NAME = "rocm/megatron-lm:v25.5_py310"
ONE, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def compare(
    count: int,
    changes: Mapping[int, dict[Any, Any]],
    groups: Mapping[str, str] | None = None,
    offsets: Mapping[str, tuple[float, float]] | None = None,
) -> list[Finding]:
    """Findings other than ok over `count` nodes, of which some (by number, from 1) are changed."""
    states = {node(number): with_(healthy(number), changes.get(number, {})) for number in range(1, count + 1)}
    return differences(states, groups, offsets)


def node(number: int) -> str:
    return f"node{number:02d}"


def differences(
    states: Mapping[str, NodeState],
    groups: Mapping[str, str] | None = None,
    offsets: Mapping[str, tuple[float, float]] | None = None,
) -> list[Finding]:
    wanted = desired(images={"megatron": NAME})
    findings = outliers(states, groups or dict.fromkeys(states, "rack7"), dict.fromkeys(states, wanted), offsets)
    return [finding for finding in findings if finding.verdict is not Verdict.OK]


def test_equal_nodes_say_what_was_compared() -> None:
    names = ["node01", "node02"]
    found = outliers(
        {n: healthy(number) for number, n in enumerate(names)},
        dict.fromkeys(names, "rack7"),
        dict.fromkeys(names, desired()),
    )
    assert [(f.node, f.verdict) for f in found] == [("node01", "ok"), ("node02", "ok")]
    for subject in (
        "kernel",
        "rocm",
        "gpu_driver",
        "gpu_firmware.smc",
        "nic_firmware",
        "bios",
        "provider_library.bnxt_re",
    ):
        assert subject in found[0].evidence


def test_one_node_alone_is_compared_with_nobody() -> None:
    assert outliers({"node01": healthy()}, {"node01": "rack7"}, {}) == []


def test_a_minority_is_found_on_its_own_nodes_with_both_values() -> None:
    (finding,) = compare(4, {3: {"system.kernel": "6.8.0"}})
    assert (finding.node, finding.name, finding.verdict) == ("node03", "fleet.kernel", "fail")
    assert finding.wanted == "5.15.0-131-generic" and finding.actual == "6.8.0"
    assert "5.15.0-131-generic: node01, node02, node04" in finding.evidence and "6.8.0: node03" in finding.evidence


def test_two_against_two_makes_suspects_of_all() -> None:
    changed = {"rocm_version": "6.3.0"}
    found = compare(4, {1: changed, 2: changed})
    assert sorted(f.node for f in found) == ["node01", "node02", "node03", "node04"]
    assert all("6.3.0: node01, node02" in f.evidence and "6.4.1: node03, node04" in f.evidence for f in found)
    assert all("no majority" in str(f.wanted) for f in found)


def test_the_most_frequent_of_three_values_is_the_measure() -> None:
    found = compare(4, {1: {"system.bios_version": "2.0"}, 2: {"system.bios_version": "2.1"}})
    assert [(f.node, f.wanted) for f in found] == [("node01", "2.4.4"), ("node02", "2.4.4")]


def test_without_half_of_the_nodes_no_value_is_the_measure() -> None:
    """22 of 64 against 21 and 21: whoever is right, 42 would be called wrong."""
    values = {number: {"system.bios_version": f"2.{number % 3}"} for number in range(1, 65)}
    found = compare(64, values)
    assert len(found) == 64 and all("no majority" in str(f.wanted) for f in found)
    assert [len(cause.nodes) for cause in causes(found)] == [22, 21, 21]


def test_nodes_of_different_groups_are_not_compared() -> None:
    groups = {"node01": "a", "node02": "a", "node03": "b", "node04": "b"}
    changed = {"system.product": "another"}
    assert compare(4, {3: changed, 4: changed}, groups) == []


def test_one_gpu_with_other_firmware_makes_its_node_the_odd_one() -> None:
    (finding,) = compare(3, {2: {"gpus.5.firmware": {"smc": "85.99", "vbios": "113-M3000100-103"}}})
    assert finding.name == "fleet.gpu_firmware.smc" and finding.actual == "85.99 (0000:06:00.0), 85.121.0"
    half = {f"gpus.{index}.firmware": {"smc": "85.99", "vbios": "113-M3000100-103"} for index in range(4)}
    (finding,) = compare(3, {2: half})
    assert finding.actual == "85.121.0, 85.99", "neither half is the odd one"


def test_firmware_that_each_gpu_of_a_node_names_otherwise_is_compared_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that reports 14,000 GPUs with a name each held the controller for more than a quarter of an hour."""
    calls, of_gpus = [], fleet.of_gpus
    monkeypatch.setattr(fleet, "of_gpus", lambda gpus, held: calls.append(gpus) or of_gpus(gpus, held))
    gpu = healthy(2).model_dump()["gpus"][0]
    many = [gpu | {"bdf": f"{n:04x}:00:00.0", "serial": f"s{n}", "firmware": {f"b{n}": "1"}} for n in range(600)]
    compare(3, {2: {"gpus": many}})
    assert 200 < len(calls) < 600


def test_what_one_node_alone_has_in_abundance_becomes_no_row_of_each_other_node() -> None:
    """A million kernel parameters in the answer of one node would be a million rows of each node."""
    found = compare(3, {2: {"cmdline.running": [f"p{number}=1" for number in range(20_000)]}})
    assert {each.node for each in found} == {"node02"} and 900 < len(found) < 1100


def test_library_and_image_digests_are_compared() -> None:
    changes = {number: {"containers.images": [image(NAME, OTHER if number == 2 else ONE)]} for number in (1, 2, 3)} | {
        3: {"containers.images": [image(NAME, ONE)], "verbs.providers.0.sha256": "ee" * 32}
    }
    found = {f.name: (f.node, f.actual) for f in compare(3, changes)}
    assert found == {
        "fleet.image.megatron": ("node02", OTHER),
        "fleet.provider_library.bnxt_re": ("node03", "ee" * 32),
    }


def test_a_node_that_has_not_pulled_yet_is_not_odd() -> None:
    assert compare(3, {1: {"containers.images": [image(NAME, ONE)]}}) == []


def test_what_is_unreadable_on_one_node_alone_is_unknown_there() -> None:
    (finding,) = compare(3, {2: {"system.bios_version": unreadable("not permitted")}})
    assert (finding.node, finding.verdict) == ("node02", "unknown") and "node01, node03" in finding.evidence


def test_nodes_without_a_nic_need_no_libibverbs() -> None:
    bare = {"rdma": [], "verbs.providers": []}
    states = {
        "node01": with_(healthy(1), bare),
        "node02": with_(healthy(2), {**bare, "verbs.abi": unreadable("missing")}),
    }
    wanted = desired("cpu", None)
    found = outliers(states, dict.fromkeys(states, "rack7"), dict.fromkeys(states, wanted))
    assert [finding.verdict for finding in found] == [Verdict.OK] * 2 and "libibverbs" not in found[0].evidence


def test_firmware_that_could_not_be_read_on_one_node_is_unknown_there() -> None:
    unread = {f"gpus.{index}.firmware": unreadable("timed out", "amdsmi") for index in range(8)}
    (finding,) = compare(3, {2: unread})
    assert (finding.node, finding.name, finding.verdict) == ("node02", "fleet.gpu_firmware", "unknown")


def test_what_is_unreadable_everywhere_says_nothing() -> None:
    unread = {"system.bios_version": unreadable("missing")}
    assert compare(3, {1: unread, 2: unread, 3: unread}) == []


def test_the_number_of_gpus_is_not_mistaken_for_their_firmware() -> None:
    assert [(f.node, f.name, f.actual) for f in compare(3, {2: {"gpus.7": DELETED}})] == [
        ("node02", "fleet.gpu_count", "7")
    ]


def test_clocks_are_judged_by_their_spread() -> None:
    def suspects(*offsets: float, error: float = 0.1) -> list[str]:
        clocks = {f"node{number:02d}": (offset, error) for number, offset in enumerate(offsets, start=1)}
        return [f.node for f in compare(len(offsets), {}, offsets=clocks) if f.verdict == verdict]

    verdict = "fail"

    assert suspects(0.0, 29.0, 1.0) == []
    assert suspects(0.1, 40.0, 0.2) == ["node02"]
    assert suspects(0.0, 40.0) == ["node01", "node02"]
    assert suspects(500.0, 500.1, 500.2) == []
    assert suspects(0.1, 40.0, 0.2, error=30.0) == [], "a slow exchange is no wrong clock"
    verdict = "unknown"
    assert suspects(0.1, 40.0, 0.2, error=30.0) == ["node02"], "and no right one"


@pytest.mark.parametrize("far", [7200.0, -7200.0])
def test_one_wrong_clock_makes_no_other_one_wrong(far: float) -> None:
    """The others lie within the limit of each other, though not all within half of it from their median."""
    offsets = {node(n): (offset, 0.01) for n, offset in enumerate((0.0, 0.1, 0.2, 19.0, 20.0, far), 1)}
    found = compare(6, {}, offsets=offsets)
    assert [(each.node, each.name) for each in found] == [("node06", "fleet.clock_skew")]


def test_the_limit_of_the_clocks_itself_is_within_it() -> None:
    def suspects(*offsets: float, error: float) -> dict[str, str]:
        clocks = {f"node{number:02d}": (offset, error) for number, offset in enumerate(offsets, start=1)}
        found = compare(len(offsets), {}, offsets=clocks)
        return {f.node: str(f.verdict) for f in found if f.name == "fleet.clock_skew" and f.verdict != "ok"}

    assert suspects(0.0, 15.0, 40.0, error=0.125) == {"node03": "fail"}
    assert suspects(0.0, 20.0, 35.5, error=0.5) == {"node01": "fail", "node03": "unknown"}


def test_a_node_with_devices_that_nobody_asked_for_is_compared_in_its_libibverbs() -> None:
    wanted = desired(nic=None)
    states = {
        f"node{number:02d}": with_(healthy(number), {"verbs.abi": 34 if number < 3 else 59}) for number in (1, 2, 3)
    }
    found = outliers(states, dict.fromkeys(states, "rack7"), dict.fromkeys(states, wanted))
    assert [(f.node, f.name) for f in found if f.verdict != Verdict.OK] == [("node03", "fleet.libibverbs")]


NIC, GPU = "rdma.5", "gpus.3"


@pytest.fixture(scope="module")
def rack() -> dict[str, NodeState]:
    """64 equal nodes with what an optional comparison needs."""
    [root] = healthy().model_dump()["disks"]
    home = {**root, "mount": "/home", "device": "server:/home", "fstype": "nfs4", "network": True}
    disks = [root, {**root, "mount": "/scratch", "device": "/dev/nvme1n1"}, home]
    drive = {"name": "nvme0", "bdf": None, "model": "PM9A3", "firmware": "GDC7"}
    equal = {"disks": disks, "software.rccl": "2.22.3"}
    return {
        node(number): with_(healthy(number), equal | {"nvme": [drive | {"serial": f"S{number}"}]})
        for number in range(1, 65)
    }


@pytest.mark.parametrize(
    ("change", "name", "verdict"),
    [
        ({"memory.total_bytes": 1024 * GIB}, "memory", "fail"),
        ({"memory.total_bytes": 1984 * GIB}, "memory", "fail"),
        ({"cpu.count": 96}, "cpu_count", "fail"),
        ({"cpu.model": "AMD EPYC 9554 64-Core Processor"}, "cpu_model", "fail"),
        ({"numa.nodes": 8}, "numa_nodes", "fail"),
        ({"system.kernel": "6.8.0-45-generic"}, "kernel", "fail"),
        ({"system.bios_version": "2.4.5"}, "bios", "fail"),
        ({"system.product": "PowerEdge XE9685"}, "product", "fail"),
        ({"system.arch": "aarch64"}, "arch", "fail"),
        ({"system.os_name": "Ubuntu 24.04.1 LTS"}, "os", "fail"),
        ({"rocm_version": "6.4.0"}, "rocm", "fail"),
        ({f"{GPU}.numa_node": 1}, "gpu_numa", "fail"),
        ({f"{GPU}.bdf": "0000:0f:00.0"}, "gpu_slots", "warn"),
        ({f"{GPU}.pci_id": "1002:74a5"}, "gpu_model", "fail"),
        ({f"{GPU}.model": "AMD Instinct MI325X"}, "gpu_name", "fail"),
        ({f"{GPU}.vram_bytes": 168 * GIB}, "gpu_memory", "fail"),
        ({f"{GPU}.vram_bytes": 256 * GIB}, "gpu_memory", "fail"),
        ({f"{GPU}.driver": "6.14.0"}, "gpu_driver", "fail"),
        ({f"{GPU}.compute_partition": "CPX"}, "gpu_compute_partition", "fail"),
        ({f"{GPU}.memory_partition": "NPS4"}, "gpu_memory_partition", "fail"),
        ({f"{GPU}.xgmi_links": 6}, "gpu_xgmi", "fail"),
        ({f"{GPU}.link.width": 8}, "gpu_link", "warn"),
        ({f"{GPU}.link.max_width": 8}, "gpu_link_max", "fail"),
        ({"gpu_tool": "25.1.0"}, "gpu_tool", "warn"),
        ({f"{NIC}.numa_node": 0}, "nic_numa", "fail"),
        ({f"{NIC}.firmware": "230.0.0.0"}, "nic_firmware", "fail"),
        ({f"{NIC}.driver": "bnxt_re_old"}, "nic_driver", "fail"),
        ({f"{NIC}.rate_gbps": 200.0}, "nic_rate", "fail"),
        ({f"{NIC}.link.width": 8}, "nic_link", "fail"),
        ({f"{NIC}.link.speed_gts": 16.0}, "nic_link", "fail"),
        ({f"{NIC}.link_layer": "InfiniBand"}, "nic_link_layer", "fail"),
        ({f"{NIC}.max_read_request": 512}, "nic_max_read_request", "fail"),
        ({"interfaces.6.mtu.running": "1500"}, "nic_mtu", "fail"),
        ({"interfaces.6.ipv4": ["10.6.0.2/16"]}, "nic_netmask", "fail"),
        ({"interfaces.0.ipv4": ["10.0.0.2/16"]}, "netmask", "fail"),
        ({"interfaces.0.mtu.running": "9000"}, "mtu.eth0", "warn"),
        ({"interfaces.0.speed_mbps": 1000}, "speed.eth0", "warn"),
        ({"software.rccl": "2.21.5 (/opt/rocm/lib/librccl.so.1)"}, "rccl", "warn"),
        ({"verbs.abi": 59}, "libibverbs", "fail"),
        ({"verbs.providers.0.sha256": "ee" * 32}, "provider_library.bnxt_re", "fail"),
        ({"containers.version": "24.0.0"}, "container_version", "warn"),
        ({"disks.0.total_bytes": 400 * GIB}, "disk_size", "warn"),
        ({"disks.0.fstype": "xfs"}, "disk_fstype", "warn"),
        ({"nvme": []}, "nvme_count", "warn"),
        ({"memory.hugepages_total": 64}, "hugepages", "warn"),
        ({"cmdline.running": ["root=/dev/sdb1", "mitigations=off"]}, "cmdline.mitigations", "warn"),
        ({("sysctl", "vm.swappiness"): {"running": "1", "persisted": "1"}}, "sysctl.vm.swappiness", "warn"),
        ({"clock.service": "ntpd"}, "clock_service", "warn"),
        (
            {("settings", "nmi_watchdog"): {"running": unreadable("missing"), "persisted": None}},
            "setting.nmi_watchdog",
            "warn",
        ),
        ({f"{NIC}.state": "DOWN"}, "nic_state", "warn"),
        ({f"{NIC}.gids": []}, "nic_gids", "warn"),
        ({f"{NIC}.lossless.trust": ["pcp"]}, "nic_trust", "warn"),
        ({"interfaces.6.up": False}, "nic_interfaces", "warn"),
        ({"interfaces.6": DELETED}, "nic_interfaces", "warn"),
        ({"interfaces.6.ipv4": ["10.77.0.2/24"]}, "nic_network", "warn"),
        ({"interfaces.0.ipv4": ["10.88.0.2/24"]}, "network", "warn"),
        ({"routes": []}, "default_route", "warn"),
        ({"routes.0.gateway": "10.0.0.253"}, "gateway", "warn"),
        ({"containers.root": "/scratch/docker"}, "container_root", "warn"),
        ({"modules.loaded": ["amdgpu", "bnxt_re", "ib_uverbs", "rdma_ucm"]}, "module.ib_umad", "warn"),
        ({"verbs.drivers": {}, "verbs.providers.0.provider": "mlx5"}, "provider.mlx5", "warn"),
        ({"disks.1": DELETED}, "mount./scratch", "warn"),
        ({"disks.2.device": "old:/home"}, "source./home", "warn"),
    ],
)
def test_one_node_of_many_that_differs_is_named_alone(
    rack: dict[str, NodeState], change: dict[Any, Any], name: str, verdict: str
) -> None:
    several = {node: rack[node] for node in sorted(rack)[:8]}
    found = differences(several | {"node02": with_(rack["node02"], change)})
    assert [(f.node, f.name, str(f.verdict)) for f in found] == [("node02", f"fleet.{name}", verdict)]
    assert found[0].wanted != found[0].actual and found[0].remedy is not None


def test_amounts_of_equal_machines_agree_within_their_share() -> None:
    total = 2048 * GIB
    scatter = {number: {"memory.total_bytes": total - number * GIB // 8} for number in range(1, 33)}
    assert compare(32, scatter) == []


def test_an_amount_of_one_node_alone_parts_no_others() -> None:
    """Equal machines scatter; one that has, or claims, a little less must not make the smallest of them the odd one."""
    percent = 2048 * GIB // 100
    scatter = (98.9, 100, 101, 101.3, 101.5, 101.7)
    found = compare(6, {n: {"memory.total_bytes": int(amount * percent)} for n, amount in enumerate(scatter, 1)})
    assert [(each.name, each.node, each.verdict) for each in found] == [("fleet.memory", "node01", Verdict.FAIL)]


def test_what_belongs_to_one_node_alone_is_not_compared() -> None:
    own = {
        number: {
            "cmdline.running": [f"root=UUID={number}", f"ip=10.0.0.{number}", "BOOT_IMAGE=/vmlinuz"],
            ("sysctl", "net.ipv4.conf.all.rp_filter", "running"): str(number),
        }
        for number in (1, 2, 3)
    }
    assert [f for f in compare(3, own) if f.name != "fleet.sysctl.net.ipv4.conf.all.rp_filter"] == []


def test_a_sysctl_that_the_desired_state_asks_for_is_compared_with_that_alone() -> None:
    setting = ("sysctl", "vm.swappiness")
    asked = desired(images={"megatron": NAME}, tuning={"sysctl": {"vm.swappiness": "60"}})
    states = {
        node(number): with_(healthy(number), {setting: {"running": value, "persisted": value}})
        for number, value in enumerate(("60", "1", "60"), 1)
    }
    for wanted, named in ((desired(images={"megatron": NAME}), True), (asked, False)):
        found = outliers(states, dict.fromkeys(states, "rack7"), dict.fromkeys(states, wanted))
        assert any(each.name == "fleet.sysctl.vm.swappiness" for each in found) is named


def test_a_node_that_claims_the_addresses_of_others_fails_alone() -> None:
    claims = {4: {"interfaces.3.ipv4": [f"10.3.0.{number}/24" for number in (1, 2, 3)]}}
    found = {each.node: each.verdict for each in compare(8, claims) if each.name.startswith("fleet.address.")}
    assert found == {"node01": "warn", "node02": "warn", "node03": "warn", "node04": "fail"}


def test_two_nodes_with_one_address_are_both_named() -> None:
    found = compare(64, {7: {"interfaces.3.ipv4": ["10.3.0.9/24"]}}, {f"node{n:02d}": str(n % 2) for n in range(1, 65)})
    assert [(f.node, f.name, f.verdict) for f in found] == [
        ("node07", "fleet.address.10.3.0.9", "fail"),
        ("node09", "fleet.address.10.3.0.9", "fail"),
    ]
    assert "node09 (ens2np0)" in found[0].evidence and "node07 (ens2np0)" in found[1].evidence


@pytest.mark.parametrize(
    ("change", "name", "verdict"),
    [
        (
            {"interfaces.3.bdf": "0000:43:00.0", "interfaces.3.mac": "b8:3f:d2:00:00:09"},
            "mac.b8:3f:d2:00:00:09",
            "fail",
        ),
        ({"rdma.5.guid": "b83f:d203:0009:0005"}, "guid.b83f:d203:0009:0005", "fail"),
        ({"gpus.3.serial": f"{0xA903:016x}"}, "serial.000000000000a903", "warn"),
        ({"system.hostname": "gpu-9"}, "hostname.gpu-9", "warn"),
    ],
)
def test_what_no_two_nodes_may_have_is_shown_on_both(change: dict[Any, Any], name: str, verdict: str) -> None:
    found = compare(12, {7: change, 9: change})
    assert [(f.node, f.name, str(f.verdict)) for f in found] == [
        ("node07", f"fleet.{name}", verdict),
        ("node09", f"fleet.{name}", verdict),
    ]


def test_placeholders_and_addresses_of_software_are_no_part_of_another_node() -> None:
    same = {
        "gpus.3.serial": "0000000000000000",
        "rdma.5.guid": "0000:0000:0000:0000",
        "interfaces.3.mac": "02:42:00:00:00:09",
    }
    assert compare(3, {1: same, 2: same}) == []


def test_interfaces_of_nics_that_are_gone_are_told_as_nics_alone() -> None:
    names = {finding.name for finding in compare(4, {2: {"rdma": []}})}
    assert "fleet.nic_count" in names and not any("link" in name for name in names)


def test_addresses_of_a_vlan_are_those_of_its_nic() -> None:
    interfaces = healthy(2).model_dump()["interfaces"]
    vlan = {**interfaces[1], "name": f"{interfaces[1]['name']}.7"}
    moved = [{**interface, "ipv4": []} if interface is interfaces[1] else interface for interface in interfaces]
    assert compare(4, {2: {"interfaces": [*moved, vlan]}}) == []
    assert {f.name for f in compare(4, {2: {"interfaces": moved}})} == {"fleet.nic_netmask"}


def test_of_interfaces_with_names_of_their_own_nothing_is_compared() -> None:
    names = {
        number: {"interfaces.0.name": f"eno{number}", "routes.0.interface": f"eno{number}"} for number in (1, 2, 3)
    }
    assert compare(3, names) == []


def test_networks_and_gateways_of_their_own_are_no_difference() -> None:
    routed = {
        number: {"interfaces.4.ipv4": [f"10.200.{number}.1/31"], "routes.0.gateway": f"10.0.{number}.254"}
        for number in (1, 2, 3, 4)
    }
    assert [f.name for f in compare(4, routed) if "network" in f.name or "gateway" in f.name] == []


@pytest.mark.parametrize(
    ("name", "address"),
    [("docker0", "172.17.0.1/16"), ("lo", "127.0.0.1/8"), ("br-12ab", "172.18.0.1/16"), ("ens9", "169.254.3.1/16")],
)
def test_addresses_that_every_node_may_have_are_no_finding(name: str, address: str) -> None:
    more = {number: {"interfaces.0.name": name, "interfaces.0.ipv4": [address]} for number in (1, 2, 3)}
    assert compare(3, more) == []


def test_where_two_differ_and_the_desired_state_says_which_is_wrong_neither_is_blamed_by_the_comparison() -> None:
    assert compare(2, {2: {"gpus.7": DELETED}}) == []
    assert compare(2, {2: {f"rdma.{index}.rate_gbps": 200.0 for index in range(8)}}) == []
    assert {f.node for f in compare(2, {2: {"cpu.count": 96}})} == {"node01", "node02"}


ADDRESSES = (
    "10.0.0.1/24", "10.0.0.1/0", "10.0.0.1/32", "10.0.0.1/255.255.252.0", "10.0.0.1", "255.255.255.255/8", "0.0.0.0/0",
    "127.3.4.5/8", "169.254.7.8/16", "172.31.0.1/12", "::1/128", "fe80::1/64", "fe80::1%eth0/64", "febf::1/64",
    "2001:DB8:0:0::1/64", "::ffff:10.0.0.1/96", "fec0::1/64",
)  # fmt: skip


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses_are_what_ipaddress_makes_of_them(text: str) -> None:
    interface = ipaddress.ip_interface(text.replace("%eth0", ""))
    everywhere = [ipaddress.ip_network(network) for network in knowledge()["interfaces"]["addresses"]]
    local = any(interface.version == network.version and interface.ip in network for network in everywhere)
    assert machines._own_address(text) == (None if local else str(interface.ip))
    if interface.version == 4:
        assert fleet_facts._network_of(text) == str(interface.network)


@pytest.mark.parametrize(
    "text", [*ADDRESSES, "010.0.0.1/24", "10.0.0.256/24", "10.0.0.1/33", "10.0.0.1/24\n", "10.0.0/8", ""]
)
def test_an_interface_has_the_addresses_that_ipaddress_accepts(text: str) -> None:
    try:
        ipaddress.IPv4Interface(text)
        accepted = True
    except ValueError:
        accepted = False
    with nullcontext() if accepted else pytest.raises(ValidationError):
        with_(healthy(), {"interfaces.0.ipv4": [text]})
