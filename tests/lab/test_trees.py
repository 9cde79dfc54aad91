"""Whole GPU nodes, as far as files can show them, over real SSH: healthy, with one fault each, tuned and taken back."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import trees
from tests.lab.conftest import RackMaker
from tests.lab.machine import require
from tests.lab.namespaces import Node, Rack
from tests.lab.namespaces import rack as new_rack
from tests.lab.product import Product
from tests.node_trees import FAULTS

OF_THE_MACHINE = {
    "clock": "one clock for all, which adjtimex(2) reports",
    "memlock": "root of the lab may lack the right to raise it, and every session has what it began with",
    "nofile": "the same",
}
"""What a namespace node cannot show: it is the machine's. Everything else of a healthy node has to be ok."""

KINDS = [("mi300x", "thor2"), ("mi325x", "cx7"), ("mi355x", "ainic")]
WITHOUT_ENGINE: dict[str, Any] = {"container_engine": None}
"""Nodes of these tests have no container engine unless they need it."""
DRIVERS_KNOWN = Path("/proc/modules").exists()
"""Where the machine's kernel has no modules, nobody can tell whether one that is missing would load."""


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def inventory(lab: Rack, folder: Path, gpu: str = "mi300x", nic: str = "thor2", **system: Any) -> Path:
    data = trees.site(gpu, nic)
    data["system"] = {**data["system"], **system}  # type: ignore[dict-item]
    return lab.inventory(folder / "lab.py", data)


def not_ok(findings: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(node, finding), but for what the machine decides."""
    bad = {(finding["node"], finding["name"]) for finding in findings if finding["verdict"] != "ok"}
    return {(node, name) for node, name in bad if name not in OF_THE_MACHINE}


@pytest.mark.parametrize(("gpu", "nic"), KINDS)
def test_of_healthy_nodes_only_what_is_the_machine_s_is_reported(
    rack: RackMaker, product: Product, gpu: str, nic: str
) -> None:
    lab = rack([trees.spec(product.folder, host, gpu, nic) for host in (1, 2)])
    trees.wait_until_settled(lab)
    findings = product.findings(inventory(lab, product.folder, gpu, nic, **WITHOUT_ENGINE))
    assert not_ok(findings) == set()
    by_name = {finding["name"]: finding for finding in findings if finding["node"] == "node2"}
    # Seen, and not merely not objected to: what the tree holds is what was read.
    assert by_name["gpu_count"]["actual"] == by_name["rdma_count"]["actual"] == 8
    assert by_name["gpu_tool"]["actual"] == "26.0.2"
    assert by_name["rdma_gid"]["actual"] == f"index {1 if nic == 'ainic' else 3}"
    assert "gpu_firmware.CP_MEC1" in by_name["fleet"]["evidence"]
    assert {f"mtu.ens{index}np0" for index in range(8)} < set(by_name)
    locked, opened = (resource.getrlimit(item)[0] for item in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE))
    assert (by_name["memlock"]["verdict"] == "ok") == (locked == resource.RLIM_INFINITY)
    assert (by_name["nofile"]["verdict"] == "ok") == (opened == 1048576)


@dataclass(frozen=True)
class Fault:
    """One fault of a node, and what has to be said of it: findings with their verdict, and the exit code."""

    findings: dict[str, str]
    code: int
    words: str
    library: tuple[str, ...] = ()


def seen(code: int, words: str, library: tuple[str, ...] = (), **findings: str) -> Fault:
    return Fault({name.replace("__", "."): verdict for name, verdict in findings.items()}, code, words, library)


EXPECTED = {
    "gpu_missing": seen(1, "7 render nodes", gpu_count="fail", gpu_xgmi="fail", kfd_topology="fail", dri="fail"),
    "gpu_link_x8": seen(1, "0000:25:00.0", gpu_link__width="fail"),
    "nic_link_x8": seen(1, "bnxt_re1", rdma_link__width="fail"),
    "port_down": seen(1, "bnxt_re3", rdma_state="fail", rdma_state__link="fail"),
    "no_rocev2": seen(1, "no RoCE v2 GID for 10.3.0.", rdma_gid="fail"),
    "wrong_abi": seen(1, "ABI 59, but libibverbs loads 34 only", provider_library="fail"),
    "partition": seen(3, "CPX", gpu_partition__compute="drift"),
    "acs_on": seen(3, "on at 0000:00:01.1", pcie_acs="drift"),
    "max_read_request": seen(3, "bnxt_re4 512", max_read_request="drift"),
    "numa_balancing": seen(3, "numa_balancing", numa_balancing="drift"),
    "driver_missing": seen(
        3 if DRIVERS_KNOWN else 4,
        "there is no /dev/kfd",
        kfd="drift",
        modules__amdgpu="drift" if DRIVERS_KNOWN else "unknown",
    ),
    "gpu_reset": seen(1, "GPU reset begin", kernel_log="fail"),
}
"""Of the trees' own faults (node_trees.FAULTS)."""
UNREAD = {"gpu_tool": "unknown", "gpu_xgmi": "unknown", "fleet__gpu_firmware": "unknown"}
OF_THE_LIBRARY = {
    "ecc_uncorrectable": seen(1, "0000:45:00.0", ("bad=2", "uncorrectable=3"), gpu_ecc="fail"),
    "library_hangs": seen(4, "timed out", ("hang=amdsmi_init",), **UNREAD),
    "library_fails": seen(4, "INIT_ERROR", ("error=amdsmi_init:18",), **UNREAD),
    "driver_not_loaded": seen(4, "DRIVER_NOT_LOADED", ("error=amdsmi_init:34",), **UNREAD),
    "one_call_fails": seen(4, "it was read on node1", ("error=amdsmi_get_fw_info:7",), fleet__gpu_firmware="unknown"),
}
"""Of libamd_smi.so, which AMD's Python package asks."""
CASES = list((EXPECTED | OF_THE_LIBRARY).items())


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rack, Path]]:
    """node1 is sound, and each other node has one of the faults."""
    folder = tmp_path_factory.mktemp("sick")
    specs = [trees.spec(folder, 1)]
    for host, (name, fault) in enumerate(CASES, start=2):
        specs.append(trees.spec(folder, host, faults=[name] if name in FAULTS else [], library=fault.library))
    with new_rack(specs) as lab:
        trees.wait_until_settled(lab)
        yield lab, inventory(lab, folder, **WITHOUT_ENGINE)


def test_every_fault_of_the_trees_has_its_case() -> None:
    assert set(EXPECTED) == set(FAULTS)


@pytest.mark.parametrize(("number", "name"), [(number, name) for number, (name, _) in enumerate(CASES, start=2)])
def test_one_fault_is_found_on_its_node_and_nowhere_else(
    sick: tuple[Rack, Path], product: Product, number: int, name: str
) -> None:
    fault, node = dict(CASES)[name], f"node{number}"
    ran = product.drift(sick[1], "--limit", "node1", "--limit", node, "--format", "jsonl")
    findings = [json.loads(line) for line in ran.out.splitlines()]
    assert not_ok(findings) == {(node, finding) for finding in fault.findings}
    told = [finding for finding in findings if finding["node"] == node and finding["name"] in fault.findings]
    assert {finding["name"]: finding["verdict"] for finding in told} == fault.findings
    assert fault.words in json.dumps(told)
    assert ran.code == fault.code, ran.text


def test_the_plan_has_the_devices_addresses_and_gid_of_the_trees(rack: RackMaker, product: Product) -> None:
    """As on a rack: 8 HCAs in PCI order, the index of the RoCE v2 entry, each node's own way to the master."""
    lab = rack([trees.spec(product.folder, host, docker=True) for host in (1, 2)])
    trees.wait_until_settled(lab)
    smoke = {"recipe": "llama3.1-8b-fp8", "image": "megatron"}
    images = {"megatron": "rocm/megatron-lm:v25.5_py310"}
    data = trees.site("mi300x", "thor2", smoke=smoke, images=images)
    ran = product.run("shakedown", "plan", lab.inventory(product.folder / "lab.py", data), "--format", "json")
    assert ran.code == 0, ran.text
    plan = json.loads(ran.out)
    assert plan["world_size"] == 16
    for rank, (node, planned) in enumerate(zip(lab, plan["nodes"], strict=True)):
        environment = planned["environment"]
        assert (planned["name"], planned["node_rank"]) == (node.name, rank)
        assert environment["NCCL_IB_HCA"] == ",".join(f"bnxt_re{index}" for index in range(8))
        assert environment["NCCL_IB_GID_INDEX"] == "3"
        assert environment["NCCL_SOCKET_IFNAME"] == planned["interface"] == node.interface
    assert plan["nodes"][0]["interface"] != plan["nodes"][1]["interface"]
    assert plan["master_address"] == str(lab["node1"].address)


UPDATE_GRUB = trees.stand_in(
    ". /etc/default/grub",
    "for file in /etc/default/grub.d/*.cfg; do [ ! -e $file ] || . $file; done",
    'line="linux /vmlinuz root=/dev/nvme0n1p2 ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"',
    r"""printf "menuentry 'Linux' {\n\t%s\n}\n" "$line" > /boot/grub/grub.cfg""",
)
SYSTEMCTL = trees.stand_in(
    "wants=/etc/systemd/system/multi-user.target.wants; unit=; for last; do unit=$last; done",
    "case $1 in",
    'enable) mkdir -p $wants; ln -sf "/etc/systemd/system/$unit" "$wants/$unit" ;;',
    'disable) rm -f "$wants/$unit" ;;',
    "esac",
)
UNTUNED = {"usr/sbin/update-grub": UPDATE_GRUB, "usr/bin/systemctl": SYSTEMCTL}
THP = "sys/upper/kernel/mm/transparent_hugepage/enabled"
SHADOW = {f"upper/etc/{name}" for name in (".pwd.lock", "group-", "gshadow", "gshadow-")}
"""usermod's lock and backups, and the machine's own file that it wrote anew."""
READ = (
    "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor /sys/class/net/ens*np0/mtu | sort | uniq -c",
    "cat /sys/devices/system/cpu/cpu*/cpuidle/state2/disable | sort | uniq -c",
    "cat /proc/sys/kernel/numa_balancing",
    "sysctl -n net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce net.ipv4.conf.all.rp_filter",
    "setpci -s 0000:00:01.1 ECAP_ACS+6.w",
    "setpci -s 0000:86:00.0 CAP_EXP+8.w",
    "grep -o iommu=pt /boot/grub/grub.cfg",
    "grep -E '^(render|video):.*root' /etc/group | wc -l",
    "grep -v '#' /etc/libibverbs.d/bnxt_re.driver",
)
"""What was set, read from the node by other programs than our facts."""


def files_of(node: Node) -> dict[str, tuple[int, bytes]]:
    """Mode and content of every file of the node's own, on its disk and under its /sys and /proc; but for the probe's
    cached bundle, sshd's log, and what belongs to usermod."""
    found: dict[str, tuple[int, bytes]] = {}
    for layer in ("upper", "sys/upper", "proc"):
        folder = node.folder / layer
        for path in folder.rglob("*"):
            name = f"{layer}/{path.relative_to(folder)}"
            if path.is_symlink():
                found[name] = (0, str(path.readlink()).encode())
            elif path.is_file() and not (name in SHADOW or ".cache/shakedown" in name or "sshd.log" in name):
                found[name] = (path.stat().st_mode, path.read_bytes())
    return found


def test_an_untuned_rack_is_tuned_once_and_taken_back_byte_for_byte(rack: RackMaker, product: Product) -> None:
    """Every setting that files can take, PCI registers by the real setpci; verified without our own facts."""
    require("setpci")
    faults = ["acs_on", "max_read_request"]
    specs = [trees.spec(product.folder, host, tuned=False, faults=faults, files=UNTUNED) for host in (1, 2)]
    lab = rack(specs)
    trees.wait_until_settled(lab)
    rack_py = inventory(lab, product.folder, **WITHOUT_ENGINE, clock_synchronised=None)
    for node in lab:
        node.exec("update-grub")  # so that the file is as the stand-in writes it, and differs by our change alone
    before = {node.name: files_of(node) for node in lab}

    assert product.drift(rack_py).code == 3
    ran = product.deploy(rack_py, "megatron", "-y")
    assert ran.code == 3, "only a boot brings the kernel's parameters: the exit code follows the verdict"
    for node in lab:
        read = " ".join(node.exec("; ".join(READ)).stdout.split())
        assert read == "8 9000 16 performance 16 1 0 2 1 2 0000 5000 iommu=pt 2 driver bnxt_re"

    left = {finding["name"]: finding for finding in product.findings(rack_py) if finding["verdict"] != "ok"}
    assert set(left) - set(OF_THE_MACHINE) == {"cmdline"}
    assert left["cmdline"]["reboot_pending"], "only a boot brings it into the kernel"
    once = {node.name: files_of(node) for node in lab}
    again = product.deploy(rack_py, "megatron", "-y")
    assert again.code == 3 and "nothing to change" in again.err, again.text
    assert {node.name: files_of(node) for node in lab} == once

    back = product.deploy(rack_py, "rollback", "-y")
    assert back.code == 0, back.text
    for node in lab:
        after, wanted = files_of(node), before[node.name]
        assert after.pop(THP)[1] == b"always\n", "a plain file: the kernel would have moved the brackets"
        assert wanted.pop(THP)[1] == b"[always] madvise never\n"
        assert set(after) == set(wanted)
        assert after == wanted
