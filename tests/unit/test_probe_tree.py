"""The probe reads whole nodes from file trees: healthy ones, and ones with a single fault."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shakedown.checks import evaluate
from shakedown.node import children
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable
from shakedown.transport import bundle
from tests.node_trees import FAULTS, GPUS, NICS, make_tree
from tests.states import desired


def read(root: Path, *options: str, **environment: str) -> NodeState:
    run = subprocess.run(
        [sys.executable, "-m", "shakedown.node", "--root", str(root), *options],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={"PATH": "/usr/bin:/bin", **environment},
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return NodeState.model_validate_json(run.stdout, strict=True)


@pytest.fixture(scope="module")
def thor2(tmp_path_factory: pytest.TempPathFactory) -> NodeState:
    return read(make_tree(tmp_path_factory.mktemp("thor2"), gid_entries=16))


def value(reading: Any) -> Any:
    assert not is_unreadable(reading), str(reading)
    return reading


@pytest.mark.parametrize(("gpu", "nic"), [("mi300x", "thor2"), ("mi325x", "cx7"), ("mi355x", "ainic")])
def test_a_healthy_rack_node(tmp_path: Path, gpu: str, nic: str) -> None:
    state = read(make_tree(tmp_path, gpu, nic, host=3, gid_entries=16))
    gpus, hcas = value(state.gpus), value(state.rdma)
    assert [part.pci_id for part in gpus] == [f"1002:{GPUS[gpu].device}"] * 8
    assert {part.vram_bytes for part in gpus} == {GPUS[gpu].vram}
    assert {(part.link.speed_gts, part.link.width) for part in gpus} == {(32.0, 16)}
    assert [part.serial for part in gpus] == [f"{0x1300 + index:016x}" for index in range(8)]
    assert state.system.board_serial == "TR8-0044"
    assert [part.numa_node for part in gpus] == [0] * 4 + [1] * 4
    assert [part.name for part in hcas] == [f"{NICS[nic].prefix}{index}" for index in range(8)]
    assert {(part.state, part.phys_state, part.rate_gbps) for part in hcas} == {("ACTIVE", "LinkUp", 400.0)}
    assert {part.max_read_request for part in hcas} == {4096}
    assert [part.guid for part in hcas] == [f"b83f:d203:0003:{index:04x}" for index in range(1, 9)]
    assert [part.netdev for part in hcas] == [f"ens{index}np0" for index in range(8)]
    # The index that the field notes name for the family is where the IPv4-mapped RoCE v2 entry is found.
    wanted = {"thor2": 3, "cx7": 3, "ainic": 1}[nic]
    for index, part in enumerate(hcas):
        found = [gid.index for gid in value(part.gids) if gid.type == "RoCE v2" and gid.ipv4 == f"10.{index + 1}.0.3"]
        assert found == [wanted]
    assert (state.kfd.gpu_nodes, state.kfd.cpu_nodes) == (8, 2)
    assert [(part.name, part.bdf, part.serial) for part in value(state.nvme)] == [("nvme0", "0000:e1:00.0", "TR8N0044")]
    assert state.verbs.abi == 34 and [part.abi for part in state.verbs.providers] == [34]
    assert value(state.acs.enabled) == []
    assert f"rdma/{hcas[0].name}/port_rcv_errors" in state.counters
    assert "ethtool/ens0np0/rx_total_discard_pkts" in state.counters
    assert verdicts(state, gpu, nic) == {"gpu_tool", "gpu_xgmi"}, (
        "the tree has no libamd_smi.so; tests/lab/test_trees.py has"
    )
    assert not any("pkts" in name and name.startswith("rdma/") for name in state.counters)


def test_settings_hold_after_a_boot(thor2: NodeState) -> None:
    """Running and persisted, each from its own place."""
    assert (thor2.numa.balancing.running, thor2.numa.balancing.persisted) == ("0", "0")
    assert (thor2.memory.thp.running, thor2.memory.thp.persisted) == ("always", "always")
    assert "iommu=pt" in value(thor2.cmdline.running) and "iommu=pt" in value(thor2.cmdline.persisted)
    assert (thor2.limits.memlock.persisted, thor2.limits.nofile.persisted) == ("unlimited", "1048576")
    assert {part.mtu.persisted for part in value(thor2.interfaces)} == {"9000"}
    assert set(thor2.modules.persisted) == {"amdgpu", "bnxt_re", "ib_uverbs", "ib_umad", "rdma_ucm"}
    assert thor2.cpu.governors == {"performance": 16} and thor2.cpu.c2_enabled == 0


def test_a_boot_unit_that_is_not_enabled_persists_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path, count=2, gid_entries=4)
    (tmp_path / "etc/systemd/system/multi-user.target.wants/shakedown-boot.service").unlink()
    state = read(tmp_path)
    assert state.boot_unit.enabled is False
    assert state.memory.thp.persisted is None
    assert {part.mtu.persisted for part in value(state.interfaces)} == {None}


def verdicts(state: NodeState, gpu: str = "mi300x", nic: str = "thor2") -> set[str]:
    """The findings that are not ok, against the profiles that the node is made of."""
    return {finding.name for finding in evaluate(desired(gpu, nic), state, "node") if finding.verdict != Verdict.OK}


SEEN: dict[str, Any] = {
    "gpu_missing": lambda state: (len(state.gpus), state.kfd.gpu_nodes) == (7, 7),
    "gpu_link_x8": lambda state: [gpu.link.width for gpu in state.gpus] == [16, 8] + [16] * 6,
    "nic_link_x8": lambda state: [hca.link.width for hca in state.rdma] == [16, 8] + [16] * 6,
    "port_down": lambda state: (state.rdma[3].state, state.rdma[3].phys_state) == ("DOWN", "Disabled"),
    "no_rocev2": lambda state: {gid.type for gid in state.rdma[2].gids} == {"IB/RoCE v1"},
    "wrong_abi": lambda state: [part.abi for part in state.verbs.providers] == [59] and state.verbs.abi == 34,
    "partition": lambda state: [gpu.compute_partition for gpu in state.gpus] == ["CPX"] + ["SPX"] * 7,
    "acs_on": lambda state: state.acs.enabled == ["0000:00:01.1"],
    "max_read_request": lambda state: state.rdma[4].max_read_request == 512,
    "numa_balancing": lambda state: state.numa.balancing.running == "1" and state.numa.balancing.persisted == "0",
    "driver_missing": lambda state: is_unreadable(state.devices.kfd) and "amdgpu" not in state.modules.loaded,
    "gpu_reset": lambda state: any("GPU reset begin" in each.message for each in state.kernel_log.records),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_is_seen(tmp_path: Path, thor2: NodeState, fault: str) -> None:
    assert not SEEN[fault](thor2), "a healthy node must not show it"
    state = read(make_tree(tmp_path, faults=[fault], gid_entries=16))
    assert SEEN[fault](state)
    assert verdicts(state) - {"gpu_tool"}, "and the profile objects to it"


def test_a_device_file_that_is_absent_is_missing(tmp_path: Path) -> None:
    kfd = read(make_tree(tmp_path, faults=("driver_missing",), count=2, gid_entries=4)).devices.kfd
    assert is_unreadable(kfd) and kfd.unreadable == "missing"


@pytest.mark.parametrize(
    ("path", "content", "reading", "why"),
    [
        ("sys/class/infiniband/bnxt_re0/ports/1/state", b"\xff\xfe", "rdma.0.state", "malformed"),
        ("sys/class/infiniband/bnxt_re0/ports/1/rate", b"", "rdma.0.rate_gbps", "malformed"),
        ("sys/devices/pci0000:00/0000:00:01.1/0000:05:00.0/current_link_speed", b"Unknown\n", "gpus.0.link.speed_gts",
         "malformed"),
        ("sys/kernel/mm/transparent_hugepage/enabled", b"always never", "memory.thp.running", "malformed"),
        ("usr/lib/x86_64-linux-gnu/libibverbs.so.1", b"\x7fELF", "verbs.abi", "malformed"),
        ("opt/rocm/.info/version", b"", "rocm_version", "malformed"),
        ("sys/devices/system/cpu/cpu7/cpufreq/scaling_governor", None, "cpu.governors", "missing"),
        ("proc/self/limits", None, "limits.memlock.running", "missing"),
        ("proc/modules", None, "modules.loaded", "missing"),
    ],
)  # fmt: skip
def test_a_broken_file_costs_one_reading(
    tmp_path: Path, path: str, content: bytes | None, reading: str, why: str
) -> None:
    file = make_tree(tmp_path, count=2, gid_entries=4) / path
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    part: Any = read(tmp_path)
    for name in reading.split("."):
        part = part[int(name)] if name.isdigit() else getattr(part, name)
    assert is_unreadable(part) and part.unreadable == why


def test_a_device_that_hangs_costs_one_subject(tmp_path: Path) -> None:
    """A file that never answers (a pipe nobody writes to) in the place of a port's state."""
    state = make_tree(tmp_path, count=2, gid_entries=4) / "sys/class/infiniband/bnxt_re1/ports/1/state"
    state.unlink()
    os.mkfifo(state)
    seen = read(tmp_path, "--seconds", "0.5")
    assert is_unreadable(seen.rdma) and seen.rdma.unreadable == "timed out"
    assert is_unreadable(seen.counters["rdma/*"])
    assert len(value(seen.gpus)) == 2 and len(value(seen.interfaces)) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_folders_closed_to_the_user_cost_their_readings_only(tmp_path: Path) -> None:
    """What decides over a persisted value and cannot be read makes it unknown, not absent."""
    make_tree(tmp_path, count=1, gid_entries=4)
    (tmp_path / "etc/NetworkManager/system-connections").mkdir(parents=True)
    closed = ("etc/NetworkManager/system-connections", "etc/modules-load.d", "etc/sysctl.d", "etc/security/limits.d",
              "etc/libibverbs.d", "boot", "etc/default", "opt/rocm", "etc/shakedown", "dev/dri")  # fmt: skip
    for folder in closed:
        (tmp_path / folder).chmod(0o700)
    for above in (tmp_path, *(folder for folder in tmp_path.parents if folder.name.startswith(("pytest-", "popen-")))):
        above.chmod(0o755)
    package = tmp_path / "package"
    for name, data in bundle.build().files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(data)
    run = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/env", "python3", "-m",
         "shakedown.node", "--root", str(tmp_path)],
        capture_output=True, text=True, cwd=package, env={"PATH": "/usr/bin:/bin"}, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    state = NodeState.model_validate_json(run.stdout, strict=True)
    unknown = [
        state.numa.balancing.persisted,
        state.limits.memlock.persisted,
        state.cmdline.persisted,
        state.boot_unit.settings,
        state.memory.thp.persisted,
        value(state.interfaces)[0].mtu.persisted,
        state.devices.dri,
        state.rocm_version,
    ]
    assert [part for part in unknown if not is_unreadable(part)] == []
    assert str(unknown[0]) == "unreadable (not permitted: /etc/sysctl.d: Permission denied)"


def test_a_virtual_function_and_a_second_port_are_told(tmp_path: Path) -> None:
    made = make_tree(tmp_path, "mi300x", "thor2", host=1, gid_entries=4)
    devices = made / "sys/class/infiniband"
    physical = (devices / "bnxt_re0/device").readlink().name
    (devices / "bnxt_re1/device/physfn").symlink_to(f"../{physical}")
    (devices / "bnxt_re1/ports/2").mkdir()
    first, second, *_ = value(read(made).rdma)
    assert (first.physical_function, first.ports) == (None, 1)
    assert (second.physical_function, second.ports) == (physical, 2)


def test_readings_that_share_a_child_have_one_each_when_it_hangs_or_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST", 1)

    def says(word: str) -> str:
        return word

    def hangs() -> None:
        time.sleep(600)

    def refuses() -> None:
        raise PermissionError(13, "Permission denied", "/dev/kfd")

    def dies() -> None:
        os._exit(3)

    for broken, why in ((hangs, "timed out"), (dies, "failed"), (refuses, "not permitted")):
        readings: children.Readings = {"one": ("one", 60, says, ("fine",)), "two": ("two", 1, broken, ())}
        found = children.answers(children.start([readings, {}]))
        assert found["one"] == "fine" and found["two"]["unreadable"] == why


def test_a_reading_that_computes_is_slow_and_one_that_sleeps_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    def computes() -> str:
        while time.process_time() < 1.1:  # of the child
            pass
        return "fine"

    def loops() -> None:
        while True:
            pass

    slow: children.Readings = {"slow": ("slow", 1, computes, ())}
    # Its third part of a core within three seconds, which a busy machine does not always give.
    assert any(children.answers(children.start([slow])) == {"slow": "fine"} for _ in range(20))
    stuck: children.Readings = {"stuck": ("stuck", 0.4, time.sleep, (9,))}
    endless: children.Readings = {"endless": ("endless", 0.4, loops, ())}
    found = children.answers(children.start([stuck, endless]))
    assert found["stuck"]["detail"] == "stuck: no answer in 0.4 s"
    assert found["endless"]["detail"] == "endless: no answer in 1.2 s"
    monkeypatch.setattr(children, "MOST", 0.3)
    assert "no answer in 0.3 s" in children.answers(children.start([endless]))["endless"]["detail"]
