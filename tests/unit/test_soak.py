"""The burn-in: its plan, the program on the nodes with tools that are scripts, and what the logs come to."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from shakedown.cli import main
from shakedown.desired.models import Smoke, Soak
from shakedown.evidence.telemetry import KERNEL_LOG
from shakedown.gates import Gate
from shakedown.ledger.store import open_ledger
from shakedown.logs.kept_logs import LogFile, LogQuota
from shakedown.report.failure import next_steps
from shakedown.runner import soak as burning
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunNode, RunRecord
from shakedown.runs.judging import any_failed, soak_failed
from shakedown.service.evidence import incidents, passed_loads
from shakedown.state.findings import Verdict
from shakedown.trials import soak
from shakedown.trials.soak_judge import FAULT, NO_COUNTER, Part, judge_parts, soak_gates
from tests import forks
from tests.nodes import until
from tests.states import bare, desired
from tests.unit.test_service import NODES, a_record

PROGRAM = Path(soak.__file__).parent / "workload" / "run.py"
MI300X = desired()
CPU = desired("cpu", None)
DATA = Path(__file__).parents[1] / "data" / "soak"


def record(time_: str = "24h", only: tuple[str, ...] = (), nodes: int = 2, **changes: Any) -> soak.SoakRecord:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    of_each = CPU.model_copy(update=changes)
    return soak.record_of(soak.seconds_of(time_), only, dict.fromkeys(names, of_each), dict.fromkeys(names, bare()))


# -- the plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1.5h", 5400), ("24h", 86400), ("14d", 1209600)]
)
def test_a_length_of_time(text: str, seconds: float) -> None:
    assert soak.seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (90_000, "25 h")]
)
def test_a_length_is_written_in_the_largest_unit_that_it_has_twice(seconds: float, text: str) -> None:
    assert soak.length(seconds) == text


@pytest.mark.parametrize("text", ["", "24", "5s", "15d", "-1h", "1e9s", "24h 5m", "nanh", "९h"])
def test_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="no length of a soak"):
        soak.seconds_of(text)


@pytest.mark.parametrize("length", ["5m", "30m", "4h", "24h", "14d"])
def test_the_stages_share_all_of_the_time_in_the_order_of_the_load(length: str) -> None:
    rack = {"gpu": MI300X.gpu, "rdma": MI300X.rdma, "smoke": Smoke(recipe="gpt-small")}
    planned = record(length, **rack)
    assert sum(stage.wanted_s for stage in planned.stages) == pytest.approx(soak.seconds_of(length))
    order = [stage.name for stage in soak.catalogue().stage]
    assert [stage.name for stage in planned.stages] == [name for name in order if name not in planned.left_out]
    assert set(order) == {stage.name for stage in planned.stages} | set(planned.left_out)


def test_what_does_not_apply_is_left_out_with_the_reason() -> None:
    planned = record()
    assert list(planned.left_out) == ["gpu", "fabric", "smoke"]
    assert "gpu.count" in planned.left_out["gpu"] and "no section smoke" in planned.left_out["smoke"]
    short = {"smoke": Smoke(recipe="gpt-small"), "time_": "5m"}
    assert record(**short).left_out["smoke"] == "too short for it: a soak of 5 min"
    assert [stage.name for stage in record(**short, only=("smoke",)).stages] == ["smoke"]
    assert "gst" not in soak.tools_of(planned, "all") and "gst" not in soak.tools_of(record(only=("all",)), "all")
    assert "gst" in soak.tools_of(record(only=("all",), gpu=MI300X.gpu), "all")
    with pytest.raises(ValueError, match="nothing to do: gpu"):
        record(only=("gpu",))
    with pytest.raises(ValueError, match=r"no such stage: gpus \(did you mean gpu\? there are cpu, memory"):
        record(only=("gpus",))


def test_a_job_writes_in_a_folder_of_its_own_alone_and_removes_it() -> None:
    planned = record(only=("disk",))
    plan = soak.plan_load(planned, "disk", 60.0, "R", Soak(scratch="/scratch"), {"n1": (CPU, bare())})
    (node,) = plan.nodes
    folder = "/scratch/shakedown-soak-R"
    assert node.command[-1] == folder and node.cleanup == [["rm", "-rf", "--", folder]]
    assert [need.path for need in node.needs if need.path] == ["/scratch"], "looked at for whom it is"
    assert plan.telemetry_s == soak.catalogue().sample_s and plan.timeout_s == 60.0 + soak.SLACK_S
    for tool in soak.catalogue().tool.values():
        words = " ".join(tool.command)
        assert "/dev/" not in words and ("fio" not in words or "--directory={scratch}" in words)
        assert tool.program != "fio" or "--size={size}" in tool.command
    assert "--readonly" in soak.catalogue().tool["read"].command


def test_a_node_that_answers_slowly_has_the_time_of_the_smoke_run_in_every_job() -> None:
    planned, slow = (
        record(only=("disk",)),
        CPU.model_copy(update={"smoke": Smoke(recipe="gpt-small", unreachable_s=180)}),
    )
    for stage in ("disk", soak.LOOK):
        plan = soak.plan_load(planned, stage, 60.0, "R", Soak(), {"n1": (CPU, bare()), "n2": (slow, bare())})
        assert plan.unreachable_s == 180
        assert soak.plan_load(planned, stage, 60.0, "R", Soak(), {"n1": (CPU, bare())}).unreachable_s == 20


def test_the_tools_figures_are_read_of_their_real_output() -> None:
    for file, value in {"cpu": 1568.49, "memory": 48237.82, "write": 2215852.0, "read": 776827.0}.items():
        found = re.findall(soak.catalogue().tool[file].figure, (DATA / f"{file}.txt").read_text(), re.MULTILINE)
        assert [float(number) for number in found] == [value], file


# -- the program on a node ---------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Node:
    """A node's program, with scripts in the place of the tools."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scratch = folder, folder / "scratch"
        self.counters = folder / "sys/mc0"
        self.counters.mkdir(parents=True)
        (self.counters / "ue_count").write_text("0\n")
        (self.counters / "ce_count").write_text("2\n")
        (folder / "bin").mkdir()

    def tool(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def child(self, process: subprocess.Popen[str]) -> int:
        """Wait for the process that a tool has started."""
        for _ in range(400):
            text = (self.folder / "child").read_text() if (self.folder / "child").exists() else ""
            if text.endswith("\n"):
                return int(text)
            time.sleep(0.05)
        process.kill()
        raise AssertionError("no tool was started")

    def start(self, seconds: float, tools: list[str], **more: Any) -> subprocess.Popen[str]:
        known = {name: tool.model_dump(exclude={"source", "unit"}) for name, tool in soak.catalogue().tool.items()}
        counters = [
            {"name": "memory", "path": f"{self.folder}/sys/mc*/{kind}_count", "value": r"(\d+)", "uncorrectable": bad}
            for kind, bad in (("ue", True), ("ce", False))
        ]
        request = {
            "seconds": seconds, "slack_s": 20, "slice_s": 1, "sample_s": 0.2, "together": False, "memory": 0.001,
            "tools": [{"name": name, **known[name]} for name in tools], "counters": counters, "gpus": 0, "model": "",
            "hotspot": {"path": "/nonexistent/*", "bound": "x"}, "scratch_bytes": 1 << 20, **more,
        }  # fmt: skip
        (self.folder / "request.json").write_text(json.dumps(request))
        words = [sys.executable, str(PROGRAM), "soak", str(self.folder / "request.json"), str(self.scratch)]
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}" if "path" not in more else more["path"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": path})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield Node(tmp_path)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("soak ")) for line in text.splitlines() if line.startswith("soak {")]


METRICS = "echo 'stress-ng: metrc: [1] cpu 10 1.00 1.00 0.00 50.5 50.5 99.0 1'"


def test_tools_run_in_turn_until_the_time_under_load_is_over(node: Node) -> None:
    node.tool("stress-ng", f"sleep 0.3; {METRICS}")
    out, _ = (process := node.start(1.0, ["cpu"])).communicate(timeout=60)
    report = lines(out)
    assert process.returncode == 0 and report[-1]["over"] and report[-1]["loaded"] >= 1.0
    assert [entry["value"] for entry in report if "figure" in entry][:2] == [50.5, 50.5]
    names = {"memory mc0 ue_count uncorrectable": 0, "memory mc0 ce_count correctable": 2}
    assert next(entry["counters"] for entry in report if "counters" in entry) == names
    assert not node.scratch.exists()


def test_the_rest_of_a_stage_may_be_too_short_for_a_figure(node: Node) -> None:
    """A soak that goes on has such rests, and would be unknown for them."""
    first, ran = f"test -e {node.folder}/ran || {METRICS}", f"touch {node.folder}/ran"
    node.tool("stress-ng", f"{first}; {ran}; sleep 0.7")
    report = lines(node.start(1.1, ["cpu"]).communicate(timeout=60)[0])
    assert report[-1]["over"] and not [entry for entry in report if "failed" in entry]
    report = lines(node.start(1.1, ["cpu"]).communicate(timeout=60)[0])
    assert [entry["text"] for entry in report if "failed" in entry] == ["its output has no figure"], (
        "of the whole slice"
    )


def test_an_uncorrectable_error_ends_the_load_at_once_and_leaves_nothing(node: Node) -> None:
    node.tool("stress-ng", "sleep 300 & echo $! > ../../child; wait")
    process = node.start(200.0, ["cpu"], slice_s=100)
    assert process.stdout is not None
    child = node.child(process)
    (node.counters / "ue_count").write_text("1\n")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 3 and "rose from 0 to 1" in out
    assert [entry["rose"] for entry in lines(out) if "rose" in entry] == ["memory mc0 ue_count uncorrectable"]
    assert not alive(child) and not node.scratch.exists()


def test_the_end_of_a_job_ends_its_tools(node: Node) -> None:
    node.tool("stress-ng", "trap '' TERM; sleep 300 & echo $! > ../../child; wait; sleep 300")
    process = node.start(200.0, ["cpu"], slice_s=100)
    child = node.child(process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 143 and not lines(out)[-1]["over"] and lines(out)[-1]["loaded"] > 0
    assert not alive(child) and not node.scratch.exists()


def test_a_wrong_result_and_a_tool_that_fails_are_reported_and_one_that_is_absent_is_named(node: Node) -> None:
    node.tool("stress-ng", "echo 'stress-ng: fail: [7] cpu: matrix: wrong product'; exit 2")
    node.tool("fio", "echo 'fio: no space'; exit 1")
    report = lines(node.start(2.0, ["cpu", "write", "gst"]).communicate(timeout=60)[0])
    assert next(entry["wrong"] for entry in report if "wrong" in entry) == "cpu"
    assert "no space" in next(entry["text"] for entry in report if entry.get("failed") == "write")
    assert next(entry["why"] for entry in report if entry.get("absent") == "gst") == "the node has no GPU"
    look = lines(node.start(0, ["cpu", "gst"], gpus=8).communicate(timeout=60)[0])
    assert "memory mc0 ue_count uncorrectable" in look[-2]["counters"]
    assert look[-1]["here"] == ["cpu"] and "install the package rocm-validation-suite" in look[0]["why"]


def test_the_file_that_is_read_is_written_by_the_program_and_bounded(node: Node) -> None:
    node.tool("fio", 'stat -c %s read >&2; case "$*" in *--readonly*) echo "3;fio-3.33;n;0;0;9;2000;1";; esac')
    process = node.start(1.0, ["read"])
    out, errors = process.communicate(timeout=60)
    report = lines(out)
    assert next(entry["value"] for entry in report if "figure" in entry) == 2.048 and "--readonly" in errors
    assert "1048576" in errors and not node.scratch.exists()


@pytest.mark.parametrize("path", ["/mnt/a:b", "/mnt/a\\b", "/mnt/{run_dir}", "mnt", "/mnt\n"])
def test_no_scratch_folder_that_a_tool_takes_for_another(path: str) -> None:
    """fio takes a colon for the end of one folder of several, and would have written into /mnt/a."""
    with pytest.raises(ValidationError):
        Soak(scratch=path)
    assert Soak(scratch="/mnt/a b").scratch


# -- what the logs come to ---------------------------------------------------------------------------------------------


def log(seconds: float, *entries: dict[str, Any], ue: int = 0, ce: int = 0, over: bool = True) -> str:
    first = {
        "t": 0,
        "loaded": 0,
        "counters": {"memory mc0 ue_count uncorrectable": 0, "memory mc0 ce_count correctable": 0},
    }
    last = {"memory mc0 ue_count uncorrectable": ue, "memory mc0 ce_count correctable": ce}
    rest = [{"t": seconds, "loaded": seconds, **entry} for entry in entries]
    end = {"t": seconds, "loaded": seconds, "counters": last}
    report = [first, *rest, end, *([{"t": seconds, "loaded": seconds, "over": True}] if over else [])]
    return "".join(f"soak {json.dumps(entry)}\n" for entry in report)


def figures(*values: float) -> list[dict[str, Any]]:
    return [{"figure": "cpu", "value": value} for value in values]


def judged(planned: soak.SoakRecord, *parts: tuple[str, dict[str, str]]) -> tuple[soak.SoakRecord, dict[str, Gate]]:
    found = judge_parts(planned, [Part(stage, True, 0.0, texts) for stage, texts in parts])
    gates = {}
    for gate in soak_gates(found, {}):
        gates.setdefault(gate.name.removeprefix("soak_"), gate)
    return found, gates


def test_a_soak_that_found_nothing_is_ok() -> None:
    whole = log(600.0, *figures(*[100.0] * 40))
    found, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": whole, "n2": whole}))
    assert {gate.verdict for gate in gates.values()} == {Verdict.OK} and found.over, gates
    assert "only cpu was asked for" in gates["time"].evidence


@pytest.mark.parametrize("done", [0.0, 300.0, 560.0])
def test_an_unfinished_soak_is_unknown_and_the_slowest_node_counts(done: float) -> None:
    slow = log(done, *figures(100.0, 100.0), over=False)
    found, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": log(600.0, *figures(100, 100)), "n2": slow}))
    assert gates["time"].verdict == Verdict.UNKNOWN and found.done_s == done and not found.over
    assert "same command again" in str(gates["time"].remedy)


def test_the_parts_of_a_soak_that_was_gone_on_with_add_up() -> None:
    parts = [("cpu", dict.fromkeys(("n1", "n2"), log(part, *figures(100, 100)))) for part in (200.0, 400.0)]
    found, gates = judged(record("10m", ("cpu",)), *parts)
    assert (
        found.over and gates["time"].verdict == Verdict.OK and found.growth[0].hours == pytest.approx(1 / 6, rel=0.01)
    )


def test_an_uncorrectable_error_names_its_node_and_part() -> None:
    rose = {"rose": "memory mc0 ue_count uncorrectable", "before": 0, "after": 1}
    bad = log(100.0, *figures(1, 1), rose, ue=1, over=False)
    found, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": log(100.0, *figures(1, 1), over=False), "n2": bad}))
    assert (gates["uncorrectable"].verdict, gates["uncorrectable"].node) == (Verdict.FAIL, "n2")
    assert "mc0 ue_count" in gates["uncorrectable"].evidence and found.rose
    assert "new soak" in str(gates["time"].remedy)
    _, between = judged(record("10m", ("cpu",)), ("cpu", {"n1": log(100.0, ue=3), "n2": log(100.0)}))
    assert (between["uncorrectable"].verdict, between["uncorrectable"].node) == (Verdict.FAIL, "n1")


def test_a_fabric_that_perftest_did_not_load_is_not_stressed() -> None:
    """Its program ends with 0 where perftest is not installed, or where it printed nothing at all."""
    planned = record("10m", ("fabric",), rdma=CPU.rdma.model_copy(update={"count": 1}))
    mark = "trial "
    good = mark + json.dumps(
        {"trial": "perftest", "part": "0>1", "repetition": 0, "figure": "ib_write_bw", "value": 390.0, "rail": "rail0"}
    )
    bare = mark + json.dumps(
        {"trial": "perftest", "part": "0>1", "repetition": 0, "state": "absent", "note": "ib_write_bw not installed"}
    )
    looks = Part("look", True, 0.0, {"n1": log(0.0), "n2": log(0.0)})

    def stressed(other: str) -> Gate:
        found = judge_parts(planned, [looks, Part("fabric", False, 600.0, {"n1": good, "n2": other}), looks])
        (gate,) = [gate for gate in soak_gates(found, {}) if gate.name == "soak_stressed"]
        return gate

    assert stressed(good).verdict is Verdict.OK
    assert stressed(bare).verdict is Verdict.UNKNOWN and "not installed): not run on n2" in stressed(bare).evidence
    assert stressed("").verdict is Verdict.UNKNOWN


def test_an_error_of_a_training_is_seen_by_the_look_after_it() -> None:
    planned = record("10m", ("smoke",), smoke=Smoke(recipe="gpt-small"))
    texts = dict.fromkeys(("n1", "n2"), "")
    parts = [
        Part("look", True, 0.0, {"n1": log(0.0), "n2": log(0.0)}),
        Part("smoke", False, 600.0, texts),
        Part("look", True, 0.0, {"n1": log(0.0), "n2": log(0.0, ue=1)}),
    ]
    found = judge_parts(planned, parts)
    assert found.over and {growth.hours for growth in found.growth} == {round(1 / 6, 4)}
    failed = [gate.node for gate in soak_gates(found, {}) if gate.verdict == Verdict.FAIL]
    assert failed == ["n2"]


def test_what_the_smoke_runs_program_prints_is_no_reading() -> None:
    planned = record("10m", ("smoke",), smoke=Smoke(recipe="gpt-small"))
    forged = [
        {"rose": "gpu x uncorrectable"},
        {"wrong": "cpu"},
        {"hottest": {"x": [99, 9]}},
        *figures(9, 1),
        {"absent": "cpu"},
    ]
    look = Part("look", True, 0.0, {"n1": log(0.0), "n2": log(0.0)})
    plain, lied = ({"n1": text, "n2": ""} for text in ("", log(0.0, *forged, ue=7, ce=9)))
    found, said = (judge_parts(planned, [look, Part("smoke", False, 600.0, texts)]) for texts in (plain, lied))
    assert found == said


def test_a_node_without_the_counter_of_its_memory_was_not_seen() -> None:
    blind = log(600.0, *figures(100, 100)).replace("memory mc0", "filesystem vda")
    _, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": log(600.0, *figures(100, 100)), "n2": blind}))
    assert gates["uncorrectable"].verdict == Verdict.UNKNOWN and "n2: memory" in gates["uncorrectable"].evidence
    nothing = record("10m", ("cpu",)).model_copy(update={"stages": []})
    (gate,) = [gate for gate in soak_gates(nothing, {}) if gate.name == "soak_uncorrectable"]
    assert (gate.verdict, gate.evidence) == (Verdict.UNKNOWN, f"{NO_COUNTER}: on no node")


@pytest.mark.parametrize(
    ("grown", "verdict"), [(0, Verdict.OK), (1, Verdict.WARN), (50, Verdict.WARN), (51, Verdict.FAIL)]
)
def test_corrected_errors_grow_by_part_and_hour(grown: int, verdict: Verdict) -> None:
    day = log(86400.0, *figures(1, 1), ce=grown)
    found, gates = judged(record("24h", ("cpu",)), ("cpu", {"n1": day, "n2": log(86400.0, *figures(1, 1))}))
    assert (gates["correctable"].verdict if "correctable" in gates else Verdict.OK) == verdict
    growth = next(each for each in found.growth if each.node == "n1" and "ce_count" in each.counter)
    assert (growth.grown, growth.hours) == (grown, 24.0)


def test_a_tool_that_is_absent_leaves_the_verdict_unknown_with_the_package() -> None:
    absent = {"absent": "cpu", "why": "stress-ng is not installed: install the package stress-ng"}
    found, gates = judged(record("10m", ("cpu",)), ("look", {"n1": log(0.0), "n2": log(0.0, absent)}))
    assert (
        gates["stressed"].verdict == Verdict.UNKNOWN
        and "package stress-ng): not run on n2" in gates["stressed"].evidence
    )
    assert found.absent == {"n2": {"cpu": absent["why"]}}
    assert str(gates["time"].remedy).startswith("do first what soak_stressed says, then give the same command again")
    fio = [{"absent": tool, "why": "fio is not installed: install the package fio"} for tool in ("write", "read")]
    _, gates = judged(record("10m", ("disk",)), ("look", {"n1": log(0.0, *fio), "n2": log(0.0)}))
    assert gates["stressed"].evidence.endswith("not run on n1"), "a program is named once for all its tools"


def test_a_wrong_result_fails_and_a_failed_tool_is_unknown() -> None:
    texts = {
        "n1": log(600.0, {"wrong": "cpu", "text": "fail: x"}),
        "n2": log(600.0, {"failed": "cpu", "text": "code 1"}),
    }
    _, gates = judged(record("20m", ("cpu",)), ("cpu", texts))
    assert gates["time"].remedy == "repair what has failed, then begin a new soak"
    assert (gates["results"].verdict, gates["results"].node) == (Verdict.FAIL, "n1")
    found, _ = judged(record("10m", ("cpu",)), ("cpu", texts))
    assert [gate.verdict for gate in soak_gates(found, {}) if gate.node == "n2"] == [Verdict.UNKNOWN]


def test_the_last_tenth_is_compared_with_the_first() -> None:
    falls = log(600.0, *figures(*[100.0] * 35, *[80.0] * 5))
    _, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": falls, "n2": log(600.0, *figures(*[100.0] * 40))}))
    assert (gates["throughput"].verdict, gates["throughput"].node) == (Verdict.FAIL, "n1")
    few = log(600.0, *figures(100.0, 100.0, 80.0))
    assert judged(record("10m", ("cpu",)), ("cpu", {"n1": few, "n2": few}))[1]["throughput"].verdict == Verdict.WARN
    one = log(600.0, *figures(100.0))
    assert judged(record("10m", ("cpu",)), ("cpu", {"n1": one, "n2": one}))[1]["throughput"].verdict == Verdict.UNKNOWN


def test_heat_and_throttling_are_judged_by_the_gpus_own_limit() -> None:
    hot = log(600.0, *figures(1, 1), {"hottest": {"0000:05:00.0": [104.0, 100.0], "0000:15:00.0": [70.0, 100.0]}})
    found, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": hot, "n2": hot}))
    assert gates["hotspot"].verdict == Verdict.FAIL and "104 of 100" in gates["hotspot"].evidence
    gates = {gate.name: gate for gate in soak_gates(found, {"n1": {"power": 500.0}, "n2": {"hbm_thermal": 3.0}})}
    assert (gates["soak_throttling"].verdict, gates["soak_throttling"].node) == (Verdict.FAIL, "n2")


@pytest.mark.parametrize(
    "line",
    [
        "soak {",
        "soak []",
        'soak {"t": 1e999, "loaded": NaN}',
        'soak {"loaded": -5, "figure": "cpu", "value": "1"}',
        'soak {"loaded": true, "counters": {"a": true, "b": -1, "c": 1e30}}',
        'soak {"hottest": {"a": [1], "b": "x", "c": [null, 1]}}',
        'soak {"t": 1%s}' % ("0" * 400),
        'soak {"hottest": {"a": [NaN, 1], "b": [1e999, 1], "c": [1%s, 1]}}' % ("0" * 400),
        'soak {"absent": "no tool", "why": "x"}',
        "soak " + "[" * 5000,
        'soak {"counters": ' + json.dumps({f"memory {number} uncorrectable": 1 for number in range(9000)}) + "}",
    ],
)
def test_no_line_of_a_node_breaks_the_judgement(line: str) -> None:
    found, gates = judged(record("10m", ("cpu",)), ("cpu", {"n1": f"{line}\n", "n2": ""}))
    assert gates["time"].verdict == Verdict.UNKNOWN and found.done_s == 0.0 and len(found.growth) <= 4096
    assert not found.absent and soak.SoakRecord.model_validate_json(found.model_dump_json()) == found, "run.json"


# -- service, and idle nodes -------------------------------------------------------------------------------------------


def soaked(*gates: Gate, over: bool = True, **more: Any) -> RunRecord:
    """A run whose soak of three nodes ended with these gates."""
    stage = soak.SoakStage(name="cpu", wanted_s=600, done_s=600 if over else 100)
    kept = soak.SoakRecord(total_s=600, stages=[stage], nodes=list(NODES))
    return a_record(jobs=[], gates=list(gates), soak=kept, **more)


def gate(name: str, verdict: Verdict, node: str | None = None) -> Gate:
    return Gate(name=f"soak_{name}", verdict=verdict, job="soak", node=node)


def test_a_soak_is_a_load_that_nodes_pass_and_a_preempted_one_proves_and_names_nothing() -> None:
    whole = soaked(gate("time", Verdict.OK), gate("correctable", Verdict.WARN))
    assert [(load.node, load.load, load.others) for load in passed_loads(whole)] == [(n, "soak", 2) for n in NODES]
    preempted = soaked(gate("time", Verdict.UNKNOWN), over=False, verdict=Verdict.UNKNOWN)
    for record_ in (preempted, soaked(gate("time", Verdict.OK), over=False), soaked()):
        assert passed_loads(record_) == [] and incidents(record_) == []
    failed = soaked(gate("time", Verdict.UNKNOWN), gate("uncorrectable", Verdict.FAIL, "node2"), over=False)
    assert [(each.node, each.drains) for each in incidents(failed)] == [("node2", True)] and passed_loads(failed) == []


def test_nodes_that_passed_a_load_longest_ago_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    monkeypatch.delenv("SHAKEDOWN_LEDGER", raising=False)

    def stale(*words: str) -> list[str]:
        result = CliRunner().invoke(main, ["ledger", "stale", *words])
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    assert stale("node[1-3]") == ["node1 never", "node2 never", "node3 never"]
    for day, names in (("20", ("node1", "node2")), ("23", ("node1",))):
        at = f"2026-11-{day}T08:00:00+00:00"
        nodes = [RunNode(name=name, verdict=Verdict.OK, part="measured") for name in names]
        run = soaked(
            gate("time", Verdict.OK), nodes=nodes, started_at=at, finished_at=at, run_id=f"202611{day}T080000-aaaaaa"
        )
        kept = run.model_copy(update={"soak": run.soak.model_copy(update={"nodes": list(names)}) if run.soak else None})
        directory = RunDirectory.create(kept.run_id, tmp_path)
        directory.save(kept, {})
        open_ledger().add(directory, kept)
    everyone = stale("node[1-3]", "--after", "2026-11-24")
    assert everyone == ["node3 never", "node2 2026-11-20T08:00:00+00:00", "node1 2026-11-23T08:00:00+00:00"]
    assert stale("node[1-3]", "--after", "2026-11-21") == everyone[:2]
    assert stale("node[1-3]", "--after", "2026-11-20T08:00:00+00:00") == everyone[:1]
    assert stale("node[1-3]", "--after", "2026-11-24", "--one-in", "2") == everyone[:2]
    assert stale("node[1-3]", "--after", "2026-11-24", "--one-in", "100") == everyone[:1]
    assert CliRunner().invoke(main, ["ledger", "stale", "node[3-1]"]).exit_code == 2
    assert "a file: give the names of nodes" in CliRunner().invoke(main, ["ledger", "stale", __file__]).output


@pytest.mark.parametrize(("code", "requeued"), [(0, False), (1, False), (4, False), (130, True)])
def test_the_job_of_an_idle_node_is_queued_again_where_slurm_took_the_node(
    tmp_path: Path, code: int, requeued: bool
) -> None:
    for name, body in (
        ("srun", f'echo "$@" >> {tmp_path}/called; exit {code}'),
        ("scontrol", f"echo $* > {tmp_path}/requeued"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = Path(__file__).parents[2] / "contrib" / "slurm" / "revalidate.sh"
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_ON_NODE": "96",
        "LENGTH": "30m",
    }
    done = subprocess.run([script, "--job", "rack.py", "node3"], env=environment, check=False, timeout=30)
    assert done.returncode == (0 if requeued else code)
    assert (
        (tmp_path / "called")
        .read_text()
        .endswith("--cpus-per-task=96 shakedown soak rack.py --limit node3 --for 30m\n")
    )
    assert (tmp_path / "requeued").exists() == requeued


@pytest.mark.parametrize(("answer", "code", "chosen"), [("exit 2", 2, []), ("true", 0, []), ("echo n2 9d", 0, ["n2"])])
def test_a_ledger_that_cannot_be_read_fails_the_choice_of_idle_nodes(
    tmp_path: Path, answer: str, code: int, chosen: list[str]
) -> None:
    """cron mails what fails; with a pipe the script ended well, and nothing was ever validated again."""
    bodies = {
        "scontrol": "echo n1; echo n2",
        "squeue": "true",
        "shakedown": answer,
        "sbatch": f"echo $* >> {tmp_path}/s",
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = Path(__file__).parents[2] / "contrib" / "slurm" / "revalidate.sh"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([script, "rack.py", "n[1-2]"], env=environment, check=False, timeout=30)
    submitted = (tmp_path / "s").read_text().splitlines() if (tmp_path / "s").exists() else []
    assert (done.returncode, [line.split()[-1] for line in submitted]) == (code, chosen)


def test_a_run_that_was_no_soak_cannot_go_on_as_one(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text("nodes = (['@local'], {'gpu': 'cpu'})\n")
    run = RunDirectory.create("20261129T000000-aaaaaa", tmp_path / "runs")
    run.save(
        RunRecord(run_id=run.path.name, started_at="2026-11-29T00:00:00+00:00", inventory="site.py", desired_digest="")
    )
    words = [str(Path(sys.executable).with_name("shakedown")), "soak", str(tmp_path / "site.py"), "--plan"]
    code, _, err = forks.run([*words, "--resume", run.path.name], tmp_path, os.environ)
    assert code == 2 and "is no soak: `shakedown history` lists the runs" in err, err


def a_failed_gate(job: str) -> Gate:
    return Gate(name="x", verdict=Verdict.FAIL, wanted=0, actual=1, evidence="", remedy="", job=job)


@pytest.mark.parametrize(
    ("ended", "gate", "goes_on"),
    [
        ("", None, True),
        ("SIGTERM", None, True),
        ("", a_failed_gate("soak/look-2"), True),  # another run held the node: nothing began
        ("", a_failed_gate("soak/cpu-1"), False),
        ("", a_failed_gate("soak"), False),
        (f"{FAULT}: n1: a machine check", None, False),
    ],
)
def test_what_is_shown_as_the_next_command_is_not_refused(ended: str, gate: Gate | None, goes_on: bool) -> None:
    run = RunRecord(run_id="r", started_at="2026-11-29T00:00:00+00:00", inventory="site.py", desired_digest="")
    run.soak = record("10m", ("cpu",)).model_copy(update={"ended": ended})
    run.jobs = [JobRecord(trials="soak/cpu-1", logs={"n1": ["x"]}), JobRecord(trials="soak/look-2")]
    run.gates = [gate] if gate else []
    assert soak_failed(run) is not goes_on and bool(next_steps(run)) is goes_on
    (time_gate,) = [gate for gate in soak_gates(run.soak, {}, any_failed(run, run.gates)) if gate.name == "soak_time"]
    assert ("same command again" in str(time_gate.remedy)) is goes_on


KERNEL = """# begin monotonic=1.0 wall=1.0 source=kmsg
# before
{line}# end monotonic=9.0
"""
FAULTY = "<0>[    2.000000] mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 1: bd80000000100134\n"


@pytest.mark.parametrize("faulty", ["", "cpu-1", "disk-1", "memory-1"])
def test_a_kernel_fault_ends_a_soak_and_a_stage_without_its_tool_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: str
) -> None:
    """No node loads its memory. What comes after it is loaded all the same, unless a kernel reported a fault."""
    directory = RunDirectory.create("20261129T000000-aaaaaa", tmp_path)
    run = RunRecord(
        run_id=directory.path.name, started_at="2026-11-29T00:00:00+00:00", inventory="i", desired_digest=""
    )
    run.soak = record("4m", ("cpu", "disk", "memory"))
    session = Mock(begun=(run, directory), record=run, shared={}, evidence={}, notes=None)
    ran: list[str] = []

    def job(_current: object, _where: object, _interrupted: object, stage: str, seconds: float) -> JobRecord:
        assert run.soak is not None
        ran.append(name := f"{stage}-1")
        nodes = {node: (CPU, bare()) for node in run.soak.nodes}
        kept = JobRecord(trials=f"soak/{name}", plan=soak.plan_load(run.soak, stage, seconds, "R", Soak(), nodes))
        loaded = 0.0 if stage in ("memory", soak.LOOK) else seconds
        evidence = Evidence(exit_codes=dict.fromkeys(nodes, 0))
        for node in nodes:
            texts = {
                "leader.log": log(loaded, *figures(1.0, 1.0)),
                KERNEL_LOG: KERNEL.format(line=FAULTY if name == faulty and node == "n2" else ""),
            }
            evidence.logs[node] = []
            for file, text in texts.items():
                path = f"soak/{name}/{node}/{Path(file).name}"
                (target := LogFile(file, directory.path / path, LogQuota())).write(text.encode())
                target.size = len(text)
                evidence.logs[node].append(target.close().model_copy(update={"path": path}))
            kept.logs[node] = [each.path for each in evidence.logs[node]]
        session.evidence[kept.name] = evidence
        run.jobs.append(kept)
        return kept

    monkeypatch.setattr(burning, "_job", job)
    monkeypatch.setattr(burning.training, "note_missing", lambda _: None)
    burning._load(session, Mock(lost=lambda: ""), lambda: None)
    order = ["look-1", "cpu-1", "memory-1", "disk-1"]
    assert ran == (order[: order.index(faulty) + 1] if faulty else order)
    cut = ran != order  # after the last stage nothing is left to be ended
    assert run.soak is not None and run.soak.ended.startswith(f"{FAULT}: n2: ") is cut
    assert bool(run.soak.ended) is cut


@pytest.mark.skipif(shutil.which("stress-ng") is None, reason="loads this machine with it")
def test_a_soak_that_is_ended_and_one_that_is_only_planned_have_one_verdict(tmp_path: Path) -> None:
    """The last lines say what run.json says, and a plan is no pass. This machine, as most, has no EDAC."""
    shakedown = str(Path(sys.executable).with_name("shakedown"))
    (tmp_path / "site.py").write_text("nodes = (['@local'], {'gpu': 'cpu'})\n")
    words = [shakedown, "soak", "site.py", "--only", "cpu", "--for", "10m"]
    gently = tmp_path / "bin/stress-ng"  # the rest of the cores is other tests'
    gently.parent.mkdir()
    gently.write_text(f'#!/bin/sh\nexec {shutil.which("stress-ng")} --cpu-load 20 "$@"\n')
    gently.chmod(0o755)
    environment = os.environ | {"PATH": f"{gently.parent}:{os.environ['PATH']}"}
    _code, _out, err = forks.run([*words, "--plan"], tmp_path, os.environ, 300)
    last = [line for line in err.splitlines() if "verdict" in line]
    assert [line.startswith("plan: no load was run; of the checks alone, verdict: ") for line in last] == [True]
    with forks.Program(words, tmp_path, environment) as process:
        record = tmp_path / "runs/latest/run.json"
        until(lambda: record.exists() and "soak/cpu-1" in record.read_text(), 300)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        text = "".join(process.communicate(120))
        assert process.returncode == 130, text
    assert json.loads(record.read_text())["verdict"] == "unknown", text
    assert "verdict: unknown (interrupted)" in text and "verdict: fail" not in text, text
    (command,) = re.findall(r"^  next: shakedown (.+)$", text, re.MULTILINE)
    _code, _out, shown = forks.run([shakedown, *shlex.split(command), "--plan"], tmp_path, os.environ, 300)
    assert "soak: going on with runs/" in shown and "soak: 10 min under load on @local, in 1 stage" in shown, shown
    if not list(Path("/sys/devices/system/edac/mc").glob("mc*/ue_count")):
        assert "the verdict will be unknown at best: no counter of uncorrectable errors can be read" in " ".join(
            text.split()
        )
