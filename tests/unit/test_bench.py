"""The bench's pure parts: medians, targets, and what makes a run worthless."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import measure, report
from bench.cases import ANSIBLE, CHANGE, DEPLOY, DRIFT, FLOOR, PROBE, Case, recap
from bench.measure import Cost, Outcome
from bench.nodes import BenchError, Nodes
from bench.settings import Settings
from shakedown.desired.layers import HostLayers, Layer
from shakedown.runner.features import resolve

SETTINGS = Settings(
    sysctl={"net.ipv4.tcp_rmem": "4096 131072 6291456"},
    numa_balancing="0",
    limits={"memlock": "unlimited", "nofile": 1024},
    disk_free={"/": 1 << 30},
)


def costs(**walls: float) -> dict[str, list[Cost]]:
    return {name: [Cost(wall, 0.1, 60.0, 1.0)] for name, wall in walls.items()}


def judged(**walls: float) -> dict[str, tuple[float, bool]]:
    found = report.result(10, costs(**walls), dict.fromkeys(walls, "what"))
    return {target["target"].partition(":")[0]: (target["value"], target["met"]) for target in found["targets"]}


def test_each_figure_has_its_own_median() -> None:
    runs = [Cost(1, 30, 200, 3), Cost(2, 10, 100, 1), Cost(9, 20, 300, 2)]
    assert measure.median(runs) == Cost(2, 20, 200, 2)


def test_a_ratio_is_of_runs_that_took_turns() -> None:
    floor, drift = [Cost(wall, 1, 1) for wall in (1, 5, 2)], [Cost(wall, 1, 1) for wall in (2, 10, 9)]
    assert report.ratio(drift, floor) == 2  # and not 9 / 2, the ratio of the medians


def test_a_target_is_met_on_its_bound_and_missed_beyond() -> None:
    wall = "drift, wall time on shared cores"
    assert judged(**{FLOOR: 1.0, DRIFT: 2.2})[wall] == (2.2, True)
    assert judged(**{FLOOR: 1.0, DRIFT: 2.3})[wall] == (2.3, False)
    found = judged(**{FLOOR: 1.0, DRIFT: 9.0})
    assert found["drift, CPU of the controller"] == (1.0, True)  # it is the same, whatever the time
    assert found["drift, CPU on each node with sshd's session"] == (100.0, False)  # 1 s over 10 hosts
    assert judged(**{DRIFT: 1.0, DEPLOY: 1.6})["deploy without changes"] == (1.6, False)
    assert judged(**{DEPLOY: 1.6})["deploy without changes, CPU"] == (0.1, True)
    assert judged(**{PROBE: 9.0})["probe"] == (0.1, True)  # its CPU counts, not its wall time


def test_faster_than_ansible_is_a_bound_from_below() -> None:
    assert judged(**{DRIFT: 1.0, ANSIBLE: 61.0})["drift"] == (61.0, True)
    assert judged(**{DRIFT: 1.0, ANSIBLE: 59.0})["drift"] == (59.0, False)


def test_a_target_whose_cases_were_not_measured_is_left_out() -> None:
    assert list(judged(**{DRIFT: 1.0})) == ["drift, CPU on each node with sshd's session"]


def test_the_table_shows_ratios_and_missed_targets() -> None:
    found = report.result(10, costs(**{FLOOR: 1.0, DRIFT: 3.0, ANSIBLE: 90.0}), {FLOOR: "f", DRIFT: "d", ANSIBLE: "a"})
    text = report.table([json.loads(json.dumps(found))])
    drift = next(line for line in text.splitlines() if "| d " in line)
    assert [cell.strip() for cell in drift.split("|")][-3:-1] == ["3.00", "30.0"]
    assert "missed  drift, wall time on shared cores: at most 2.2 x the floor: 3.00" in text


@pytest.mark.parametrize(
    ("row", "good"),
    [
        ("127.1.0.1 : ok=19 changed=0 unreachable=0 failed=0 skipped=0", True),
        ("127.1.0.1 : ok=19 changed=1 unreachable=0 failed=0 skipped=0", False),
        ("127.1.0.1 : ok=0 changed=0 unreachable=1 failed=0 skipped=0", False),
        ("127.1.0.1 : ok=3 changed=0 unreachable=0 failed=1 skipped=0", False),
        ("", False),
    ],
)
def test_an_ansible_run_counts_only_when_every_host_is_ok_and_unchanged(row: str, good: bool) -> None:
    outcome = Outcome(Cost(1, 1, 1), 0, f"PLAY RECAP ***\n{row}\n")
    assert (recap(outcome, 1) is None) is good
    assert recap(outcome, 2) is not None


def test_a_run_that_did_not_do_its_work_has_no_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nodes, "cpu_s", lambda self: 0.0)
    nodes = Nodes([], 0, tmp_path, 0)
    failing = Case("x", "x", [sys.executable, "-c", "print('why'); raise SystemExit(3)"], lambda o: str(o.code or ""))
    with pytest.raises(BenchError, match=r"(?s)x: 3.*why"):
        failing.cost(nodes)


def test_the_cost_is_that_of_the_command_and_its_children(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    large = bytearray(300 << 20)  # what measures is no part of what is measured
    outcome = measure.run([sys.executable, "-c", child], tmp_path)
    del large
    assert outcome.code == 0
    assert 0.3 <= outcome.cost.cpu_s < 5
    assert outcome.cost.wall_s >= 0.3
    assert 4 < outcome.cost.peak_mb < 150


def test_the_desired_state_is_one_that_we_take() -> None:
    resolved = resolve([HostLayers("n1", [Layer("bench", SETTINGS.desired())], "root")])
    tuning = resolved.states["n1"].tuning
    assert (tuning.memlock, tuning.nofile, tuning.sysctl) == ("unlimited", 1024, SETTINGS.sysctl)
    assert resolved.states["n1"].smoke is None  # a deploy ends before the smoke run


def test_ansible_has_a_task_for_every_setting_that_is_kept_in_a_file() -> None:
    (play,) = SETTINGS.playbook()
    lines = {
        task["ansible.builtin.lineinfile"]["line"] for task in play["tasks"] if "ansible.builtin.lineinfile" in task
    }
    assert lines == {
        "net.ipv4.tcp_rmem = 4096 131072 6291456",
        "kernel.numa_balancing = 0",
        "root - memlock unlimited",
        "root - nofile 1024",
    }


def test_what_a_further_host_costs_is_between_the_fewest_and_the_most() -> None:
    def found(hosts: int, cpu_s: float) -> dict[str, Any]:
        return report.result(hosts, {DRIFT: [Cost(1.0, cpu_s, 60.0, 1.0)]}, {DRIFT: "d"})

    assert report.per_further_host([found(10, 0.5)]) is None
    assert report.per_further_host([found(110, 0.9), found(10, 0.5)]) == pytest.approx(4.0)


def test_the_growth_of_a_deploy_is_that_between_the_most_hosts() -> None:
    def found(hosts: int, cpu_s: float) -> dict[str, Any]:
        return report.result(hosts, {CHANGE: [Cost(1.0, cpu_s, 60.0, 1.0)]}, {CHANGE: "c"})

    few, many, most = found(10, 1.0), found(100, 10.0), found(200, 20.0)
    assert report.growth([few]) is None
    assert report.growth([most, few, many]) == pytest.approx(1.0)
    assert "missed  deploy that changes" in report.table([many, found(200, 40.0)])
