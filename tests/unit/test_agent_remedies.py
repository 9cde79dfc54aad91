"""What the agent puts back by itself: what is safe and runs, as often as it may, with a record for rollback."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from shakedown.node import safe_files
from shakedown.node.agent import remedies, run
from shakedown.node.devices import ACCESS
from shakedown.node.setting import SETTINGS, Failed
from shakedown.node.tree import Tree
from shakedown.operations import devices
from shakedown.operations.atomic import FOLDER, Step
from shakedown.operations.rollback import _settings
from tests.node_trees import make_tree
from tests.sent_scripts import NOBODY
from tests.states import desired
from tests.unit.test_agent import Node, needs_root, program

__all__ = ["program"]

NUMA = "proc/sys/kernel/numa_balancing"
ARP = "net.ipv4.conf.all.arp_ignore"


class Tuned(Node):
    """A node of eight GPUs, in files, with an agent."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.tree = folder / "tree"
        make_tree(self.tree, gpu="mi300x", nic="thor2", gid_entries=16)
        super().__init__(program, folder)

    def compile(self, **agent: Any) -> None:
        super().compile(**{"remedy": "safe", "remedies_per_day": 2, **agent})

    def wanted(self, **more: Any) -> Any:
        return desired("mi300x", "thor2", **more)

    def put_back(self) -> list[tuple[str, str, str]]:
        done = self.check("--root", str(self.tree))
        assert done.returncode == 0, done.stdout + done.stderr
        return [(each["finding"], each["did"], each["left"]) for each in self.told()["remedied"]]

    def finding(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.told()["findings"] if each["name"] == name)
        return found


@pytest.fixture
def node(program: Path, tmp_path: Path) -> Tuned:
    return Tuned(program, tmp_path)


def test_what_runs_wrong_is_put_back_recorded_and_told(node: Tuned) -> None:
    assert node.put_back() == [] and node.finding("numa_balancing")["verdict"] == "ok"
    (node.tree / NUMA).write_text("1\n")
    (node.tree / "proc/sys" / ARP.replace(".", "/")).write_text("0\n")
    did = {name: words for name, words, _ in node.put_back()}
    assert did == {"numa_balancing": "numa_balancing 1 -> 0", f"sysctl.{ARP}": f"sysctl.{ARP} 0 -> 2"}
    assert (node.tree / NUMA).read_text().strip() == "0"
    assert node.finding("numa_balancing")["verdict"] == "ok", "told as it is now"
    records = {path.name: path.read_text() for path in (node.state / "before").iterdir()}
    settings, broken = _settings(records)
    assert not broken and settings == {
        "numa_balancing": [Step("file", "/proc/sys/kernel/numa_balancing", "1")],
        f"sysctl.{ARP}": [Step("file", "/proc/sys/" + ARP.replace(".", "/"), "0")],
    }, "rollback understands them"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (node.state / "before").iterdir())
    assert node.put_back() == []


def test_what_somebody_keeps_changing_is_left_to_a_person(node: Tuned) -> None:
    for value in ("1", "2"):
        (node.tree / NUMA).write_text(f"{value}\n")
        assert [words for _, words, _ in node.put_back()] == [f"numa_balancing {value} -> 0"]
    (node.tree / NUMA).write_text("1\n")
    assert [(did, "2 times within a day" in left) for _, did, left in node.put_back()] == [("", True)]
    assert (node.tree / NUMA).read_text().strip() == "1" and node.finding("numa_balancing")["verdict"] == "drift"
    assert json.loads((node.state / "before/numa_balancing.json").read_text())["restore"][0]["value"] == "1", (
        "the first"
    )
    times = json.loads((node.state / remedies.REMEDIED).read_text())
    for shift in (-90000, 90000):  # tomorrow is another day, and what is yet to come was not today
        moved = {name: [at + shift for at in found] for name, found in times.items()}
        (node.state / remedies.REMEDIED).write_text(json.dumps(moved))
        (node.tree / NUMA).write_text("1\n")
        assert node.put_back()[0][1] == "numa_balancing 1 -> 0"


@pytest.mark.parametrize("content", ["{", "[]", '{"numa_balancing": 3}', '{"numa_balancing": ["now"]}'])
def test_where_nobody_knows_how_often_nothing_is_put_back_and_the_check_counts(node: Tuned, content: str) -> None:
    assert node.put_back() == []
    (node.state / remedies.REMEDIED).write_text(content)
    (node.tree / NUMA).write_text("1\n")
    ((name, did, left),) = node.put_back()
    assert (name, did) == ("numa_balancing", "") and left.endswith("remedied.json is damaged: remove it")
    assert node.finding("numa_balancing")["verdict"] == "drift" and (node.tree / NUMA).read_text().strip() == "1"


@needs_root
def test_a_record_that_another_user_could_have_written_is_none(node: Tuned) -> None:
    (node.tree / NUMA).write_text("1\n")
    node.put_back()
    os.chown(node.state / "before/numa_balancing.json", NOBODY, NOBODY)
    (node.tree / NUMA).write_text("2\n")
    assert [(did, "nobody" in left) for _, did, left in node.put_back()] == [("", True)]
    assert (node.tree / NUMA).read_text().strip() == "2"


def test_nothing_is_put_back_unasked_nor_what_jobs_would_notice(node: Tuned) -> None:
    (node.tree / NUMA).write_text("1\n")
    node.compile(remedy="none")
    assert node.put_back() == [] and (node.tree / NUMA).read_text().strip() == "1"
    node.compile()
    partition = next(iter(node.tree.glob("sys/bus/pci/devices/*/current_compute_partition")))
    partition.write_text("CPX\n")
    (node.tree / "etc/sysctl.d/90-shakedown.conf").write_text("")
    assert [name for name, _, _ in node.put_back()] == ["numa_balancing"]
    assert partition.read_text() == "CPX\n" and node.finding("gpu_partition.compute")["verdict"] == "drift"
    assert node.finding("numa_balancing")["verdict"] == "drift", "the next boot is the controller's"


def test_only_what_the_operations_call_safe_is(node: Tuned) -> None:
    class Finding:
        verdict = "drift"

        def __init__(self, operation: str, risk: str = "safe") -> None:
            self.remedy = type("Remedy", (), {"operation": operation, "risk": risk})()

    safe = ["boot.settings", "tuning.modules", "tuning.sysctl", "tuning.thp", "devices.kfd", "devices.infiniband"]
    assert [each for each in safe if remedies.is_safe(Finding(each))] == safe
    others = [
        "reboot.when_needed",
        "cmdline.kernel_parameters",
        "devices.gpu_partition",
        "images.pull",
        "tuning.groups",
    ]
    others += ["services.running", "provider.library", "tuning.limits", ""]
    assert [each for each in others if remedies.is_safe(Finding(each))] == []
    assert not remedies.is_safe(Finding("boot.settings", "disruptive"))
    for verdict in ("ok", "warn", "fail", "unknown"):
        not_drift = Finding("boot.settings")
        not_drift.verdict = verdict
        assert not remedies.is_safe(not_drift)
    nobody = Finding("boot.settings")
    nobody.remedy = None
    assert not remedies.is_safe(nobody)


def test_a_value_that_none_may_have_or_that_jobs_notice_is_never_written(node: Tuned) -> None:
    for key, value in (("numa_balancing", "7"), ("mtu.ens1", "9000")):
        with pytest.raises(Failed, match="the agent does not put"):
            remedies.differing(Tree(str(node.tree)), key, value)


def test_a_module_that_the_kernel_has_built_in_is_not_loaded() -> None:
    remedy = type("Remedy", (), {"operation": "tuning.modules", "arguments": {"modules": ["ib-core", "amdgpu"]}})()
    assert remedies.pairs(remedy, ["amdgpu"]) == [("module.ib_core", "loaded")]


def test_records_are_where_the_operations_keep_theirs() -> None:
    assert f"{safe_files.ROOTS_STATE}/{remedies.BEFORE}" == FOLDER == f"{run.FOLDER}/{remedies.BEFORE}"
    named = {name: remedies.recorded_as(SETTINGS[name], "") for name in ("numa_balancing", "thp", "pcie_acs")}
    assert named == {"numa_balancing": "numa_balancing", "thp": "boot.thp", "pcie_acs": "boot.acs"}
    assert devices.ACCESS is ACCESS, "both give device files the same mode and group"


@needs_root
def test_device_files_get_their_mode_and_keep_a_record(tmp_path: Path) -> None:
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    for name, mode in (("uverbs0", 0o600), ("uverbs1", 0o666), ("rdma_cm", 0o600)):
        os.mknod(tmp_path / "dev/infiniband" / name, stat.S_IFCHR | mode, os.makedev(1, 3))
        (tmp_path / "dev/infiniband" / name).chmod(mode)
    (tmp_path / "dev/infiniband/uverbs2").symlink_to("/etc/passwd")
    (change,) = remedies.closed_files(Tree(str(tmp_path)), "infiniband")
    assert [step[1:] for step in change.steps] == [
        ("/dev/infiniband/rdma_cm", "0600 root"),
        ("/dev/infiniband/uverbs0", "0600 root"),
    ]
    (tmp_path / "state").mkdir(mode=0o755)
    remedies.make(change, str(tmp_path / "state"))
    opened = (tmp_path / "dev/infiniband/uverbs0").stat()
    assert (stat.S_IMODE(opened.st_mode), opened.st_uid) == (0o666, 0), "and it keeps its owner"
    assert stat.S_IMODE(Path("/etc/passwd").stat().st_mode) == 0o644, "no link is followed"
    settings, broken = _settings({"infiniband.json": (tmp_path / "state/before/infiniband.json").read_text()})
    assert not broken and [step.kind for step in settings["infiniband"]] == ["access", "access"]
    assert remedies.closed_files(Tree(str(tmp_path)), "infiniband") == []
