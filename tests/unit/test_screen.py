"""The findings of a rack on one screen: the right cause on top, few lines, short lines, no broken name."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from shakedown import checks
from shakedown.checks.examination import Examination, Reading
from shakedown.cli.last_state import show_state
from shakedown.hosts import nodes
from shakedown.report import formats, screen
from shakedown.report.causes import Cause, causes
from shakedown.runs.directory import RunDirectory, RunRecord, now
from shakedown.state.findings import Finding, FixedBy, Remedy, Verdict
from tests.states import MODULES, desired, healthy, unreadable, with_

Change = dict[Any, Any]


def missing_gpu(host: int, index: int = 4) -> Change:
    """The fifth GPU left the bus: the others lack its link, the driver has seven, and one render node is gone."""
    state = healthy(host).model_dump()
    left = [gpu | {"xgmi_links": 6} for place, gpu in enumerate(state["gpus"]) if place != index]
    dri = state["devices"]["dri"][:-1]
    return {"gpus": left, "kfd.gpus": 7, "kfd.gpu_nodes": 7, "devices.dri": dri}


def missing_nic(host: int) -> Change:
    state = healthy(host).model_dump()
    return {"rdma": state["rdma"][:-1], "interfaces": state["interfaces"][:-1]}


def no_driver(_host: int) -> Change:
    gone = unreadable("missing", "/dev/kfd")
    return {
        "modules.loaded": [module for module in MODULES if module != "amdgpu"],
        "devices.kfd": gone,
        "devices.kfd_major": gone,
        "devices.dri": [],
        "gpu_tool": gone,
        "kfd.gpus": gone,
        "kfd.gpu_nodes": gone,
        **{f"gpus.{index}.vram_bytes": gone for index in range(8)},
        **{f"gpus.{index}.compute_partition": gone for index in range(8)},
    }


def port_down(_host: int) -> Change:
    return {"rdma.1.state": "DOWN", "rdma.1.phys_state": "Polling", "rdma.1.rate_gbps": 40.0}


FAULTS: dict[str, Callable[[int], Change]] = {
    "gpu_count": missing_gpu,
    "rdma_count": missing_nic,
    "modules.amdgpu": no_driver,
    "rdma_state": port_down,
    "rdma_rate": lambda _host: {"rdma.3.rate_gbps": 200.0},
    "gpu_ecc": lambda _host: {"gpus.2.ecc_uncorrectable": 3},
    "gpu_link.width": lambda _host: {"gpus.6.link.width": 8},
    "clock": lambda _host: {"clock.synchronised": False},
    "fleet.bios": lambda _host: {"system.bios_version": "2.1.0"},
    "kernel_log": lambda _host: {"kernel_log.records": unreadable("not permitted", "/dev/kmsg")},
    "gpu_idle": lambda _host: {"gpu_processes": [{"pid": 77, "name": "python3", "vram_bytes": 2**30}]},
    "numa_balancing": lambda _host: {"numa.balancing": {"running": "1", "persisted": "1"}},
    "memlock": lambda _host: {"limits.memlock": {"running": "8192", "persisted": "8192"}},
    "cmdline": lambda _host: {"cmdline.running": ["iommu=pt"], "cmdline.persisted": ["iommu=pt"]},
    "mtu.ens[0-7]np0": lambda _host: {
        f"interfaces.{index}.mtu": {"running": "1500", "persisted": "1500"} for index in range(1, 9)
    },
}


@functools.cache
def big(count: int) -> Examination:
    return rack(64, SEVEN) if count == 64 else rack(count, BIG, "node[001-{}]")


def rack(count: int, faults: dict[str, str], form: str = "node[01-{}]", lost: str = "") -> Examination:
    """A rack in its desired state but for faults (name -> nodes); the nodes `lost` do not answer."""
    names = nodes(form.format(count))
    examination = Examination(dict.fromkeys(names, desired()))
    where = {fault: nodes(text) for fault, text in faults.items()}
    for host, name in enumerate(names, start=1):
        changes: Change = {}
        for fault, on in where.items():
            changes |= FAULTS[fault](host) if name in on else {}
        reading = Reading(with_(healthy(host), changes) if changes else healthy(host))
        if lost and name in nodes(lost):
            reading = Reading(None, f"timed out: 10.0.0.{host % 256}, port 22", tried=f"ssh to {name}")
        examination.keep(name, reading)
    examination.judge()
    return examination


def shown(examination: Examination, capsys: pytest.CaptureFixture[str], **more: Any) -> list[str]:
    document = formats.Findings(
        examination.verdict(), len(examination.desired), examination.all_findings(), inventory="rack.py", **more
    )
    formats.write(document, "table")
    return capsys.readouterr().out.splitlines()


LOST = "amdgpu 0000:05:00.0: amdgpu: device lost from bus!"
FATAL = "pcieport 0000:04:00.0: AER: Uncorrected (Fatal) error received: 0000:05:00.0"
ELSEWHERE = "amdgpu 0000:06:00.0: amdgpu: device lost from bus!"


@pytest.mark.parametrize(
    ("records", "clock", "words"),
    [
        ([(300.0, LOST)], 900.0, "0000:05:00.0 left the bus at 05:50 UTC"),
        ([(300.0, LOST), (780.0, LOST)], 900.0, "0000:05:00.0 left the bus at 05:58 UTC"),
        ([(300.0, FATAL), (420.0, LOST)], 900.0, "0000:05:00.0 left the bus at 05:52 UTC"),
        ([(300.0, FATAL), (420.0, FATAL)], 900.0, "0000:05:00.0 has failed since 05:50 UTC"),
        ([(300.0, LOST)], 86_700.0, "0000:05:00.0 left the bus at 2026-11-20 06:00 UTC"),
        ([(300.0, ELSEWHERE)], 900.0, "0000:05:00.0 is missing"),
        ([(300.0, LOST)], unreadable("failed", "no clock"), "0000:05:00.0 is missing"),
        (unreadable("not permitted", "/dev/kmsg"), 900.0, "0000:05:00.0 is missing"),
    ],
)
def test_a_device_that_left_is_named_with_the_time_of_the_kernel_log(records: Any, clock: Any, words: str) -> None:
    if isinstance(records, list):
        records = [
            {"number": number, "priority": 3, "seconds": seconds, "message": message}
            for number, (seconds, message) in enumerate(records, start=40)
        ]
    log = {"kernel_log.records": records, "system.monotonic_s": clock, "system.epoch_s": 1795240800.0}
    examination = rack(4, {}, "node0[1-{}]")
    examination.keep("node02", Reading(with_(healthy(2), missing_gpu(2) | log)))
    examination.judge()
    found = next(cause for cause in causes(examination.all_findings()) if cause.names == ("gpu_count",))
    assert found.text == f"7 of 8 GPUs: {words.replace(' UTC', '')}"
    assert "missing" in words or f"in the kernel's log: {words}; missing beside" in found.finding.evidence
    assert "missing" in words or "kernel_log" in found.follows


def test_a_missing_device_is_named_by_the_nodes_of_its_group_alone() -> None:
    examination = rack(5, {}, "node0[1-{}]")
    examination.groups = {f"node0{host}": "a" if host < 3 else "b" for host in range(1, 6)}
    elsewhere = {f"gpus.{index}.bdf": f"0000:{index + 64:02x}:00.0" for index in range(8)}
    for host in (3, 4, 5):
        examination.keep(f"node0{host}", Reading(with_(healthy(host), elsewhere)))
    examination.keep("node02", Reading(with_(healthy(2), missing_gpu(2))))
    examination.judge()
    found = next(cause for cause in causes(examination.all_findings()) if cause.names == ("gpu_count",))
    assert found.text == "7 of 8 GPUs: 0000:05:00.0 is missing"


def test_of_two_missing_devices_each_has_its_own_words() -> None:
    record = {"number": 7, "priority": 3, "seconds": 30.0, "message": LOST}
    state = healthy(2).model_dump()
    lost = {"gpus": [gpu for gpu in state["gpus"] if gpu["bdf"] not in ("0000:05:00.0", "0000:07:00.0")]}
    log = {"kernel_log.records": [record], "system.monotonic_s": 90.0, "system.epoch_s": 1795240800.0}
    examination = rack(4, {}, "node0[1-{}]")
    examination.keep("node02", Reading(with_(healthy(2), lost | log)))
    examination.judge()
    texts = [cause.text for cause in causes(examination.all_findings()) if cause.names == ("gpu_count",)]
    assert texts == ["6 of 8 GPUs: 0000:05:00.0 left the bus at 05:59, 0000:07:00.0 is missing"]


SEVEN = {
    "gpu_count": "node17",
    "rdma_rate": "node[40-41]",
    "gpu_ecc": "node08",
    "fleet.bios": "node[22-24]",
    "numa_balancing": "node[01-64]",
    "memlock": "node[01-16]",
    "cmdline": "node[30-39]",
}
BIG = {fault: where.replace("node[", "node[0").replace("-", "-0") for fault, where in SEVEN.items()}
BIG |= {"gpu_count": "node017", "gpu_ecc": "node008", "numa_balancing": "node[001-512]"}


@pytest.mark.parametrize("columns", ["80", "100", "200", None])
@pytest.mark.parametrize(("count", "faults"), [(64, SEVEN), (512, BIG)])
def test_seven_causes_fit_on_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str | None, count: int, faults: Any
) -> None:
    monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS", raising=False)
    lines = shown(big(count), capsys)
    assert len(lines) <= 22 and max(map(len, lines)) <= min(int(columns or 100), 100)
    assert re.match(rf"{count} nodes, \d\d checks each +FAILED   7 causes", lines[0])
    assert lines[1].split()[:3] == ["FAIL", "gpu_count", faults["gpu_count"]]
    assert "7 of 8 GPUs: 0000:05:00.0 is missing" in lines[1] and "(+" in lines[1]
    rows = [line.split()[:2] for line in lines if re.match(r" [A-Z]+ ", line)]
    assert [row[1] for row in rows if row[0] in ("FAIL", "DRIFT")] == [
        "gpu_count", "rdma_rate", "fleet.bios", "gpu_ecc", "numa_balancing", "memlock", "cmdline"
    ]  # fmt: skip
    text = "\n".join(lines)
    assert f"Then: shakedown run rack.py --limit {faults['gpu_count']}" in text
    assert "3 kinds of drift are fixed by: shakedown run rack.py" in text
    assert "4 causes need a person: " in text and "shakedown drift rack.py -v" in text
    assert f"one node: shakedown show rack.py {faults['gpu_count']} --state" in text


def found(*faults: str, count: int = 6) -> list[Cause]:
    """The causes of a rack with these faults on its third node."""
    return causes(rack(count, dict.fromkeys(faults, "node03"), "node[01-0{}]").all_findings())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_cause_under_its_own_name(fault: str) -> None:
    (cause,) = found(fault)
    assert (cause.name, cause.nodes) == (fault, ("node03",))


@pytest.mark.parametrize(
    ("cause", "others"),
    [
        ("gpu_count", {"gpu_xgmi", "kfd_topology", "dri", "fleet.gpu_count", "fleet.gpu_xgmi"}),
        ("rdma_state", {"rdma_state.link", "rdma_rate", "fleet.nic_state", "fleet.nic_rate"}),
        ("modules.amdgpu", {"kfd", "dri", "gpu_tool", "kfd_topology", "gpu_model.vram", "gpu_partition.compute"}),
        ("rdma_count", {"infiniband"}),
    ],
)
def test_what_follows_from_a_cause_is_folded_under_it(cause: str, others: set[str]) -> None:
    (one,) = found(cause)
    assert set(one.follows) >= others - {"infiniband"}


@pytest.mark.parametrize("other", ["gpu_ecc", "gpu_link.width", "gpu_idle", "rdma_rate", "clock"])
def test_a_fault_of_another_part_stands_beside_a_missing_gpu(other: str) -> None:
    assert {cause.name for cause in found("gpu_count", other)} == {"gpu_count", other}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_headline_has_the_verdict_of_a_line_below(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = shown(rack(6, {fault: "node03"}, "node[01-0{}]"), capsys)
    verdict = {"FAILED": "FAIL", "OK": "WARN"}.get(word := head.rpartition("   ")[0].split()[-1], word)
    assert verdict in {row.split()[0] for row in rows}, [head, *rows]


def test_drift_that_a_failure_follows_from_is_a_failure() -> None:
    of_module = finding("modules.amdgpu", "n1", Verdict.DRIFT, remedy=Remedy(text="load it", operation="modules.x"))
    (cause,) = causes([of_module, finding("kfd", "n1")])
    assert (cause.verdict, cause.follows, cause.fixable) == (Verdict.FAIL, ("kfd",), True)


def test_advice_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    advised = [finding("x", "node01", Verdict.WARN, remedy=Remedy(text="look at it"))]
    formats.write(formats.Findings(Verdict.OK, 1, advised, inventory="rack.py"), "table")
    lines = capsys.readouterr().out.splitlines()
    assert "advice" in lines[1] and lines[2].strip() == "Look at it."


def test_a_port_that_is_slow_is_not_the_port_that_is_down() -> None:
    assert [cause.name for cause in found("rdma_state", "rdma_rate")] == ["rdma_state", "rdma_rate"]


def finding(name: str, node: str, verdict: Verdict = Verdict.FAIL, **more: Any) -> Finding:
    return Finding(name=name, node=node, verdict=verdict, **({"wanted": 1, "actual": 2} | more))


def test_what_is_not_shown_keeps_nothing_apart() -> None:
    digits = [finding("disk_free./", f"n{i}", wanted=10**12, actual=4 * 10**10 + i, unit="bytes") for i in range(9)]
    evidence = [finding("x", f"n{i}", evidence=f"line {i}", remedy=Remedy(text=f"log in to n{i}")) for i in range(9)]
    assert [(cause.name, len(cause.nodes)) for cause in causes([*digits, *evidence])] == [("disk_free./", 9), ("x", 9)]
    assert causes(evidence)[0].remedy == "Log in to the node." and causes(evidence[:1])[0].remedy == "Log in to n0."


def test_many_values_are_one_line_and_few_are_several() -> None:
    many = [finding("x", f"n{i}", actual=100 + i) for i in range(9)]
    (one,) = causes([*many, finding("x", "n9", actual=104)])
    assert one.text == "104, wanted 1 and 8 other values" and len(one.nodes) == 10
    assert len(causes(many[:3])) == 3
    operation = Remedy(text="set it", operation="tuning.x")
    few = [finding("x", f"n{i}", Verdict.DRIFT, actual=i, remedy=operation) for i in range(2, 4)]
    assert len(causes(few)) == 1


def test_what_cannot_be_read_for_one_reason_is_one_line_that_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    reading = {path: unreadable("not permitted", path) for path in ("kernel_log.records", "acs.enabled", "gpu_tool")}
    state = with_(healthy(), reading)
    (cause,) = causes(checks.evaluate(desired(), state, "node01"))[:1]
    assert cause.verdict == Verdict.UNKNOWN and "not read: not permitted: " in cause.text and cause.follows
    assert cause.remedy.startswith("Read it as root")


def test_what_was_not_read_stands_below_what_was_seen() -> None:
    unread = {"actual": None, "evidence": "unreadable (missing: /sys)"}
    wrong = [
        finding(name, "n1", Verdict.UNKNOWN, **unread) for name in ("modules.amdgpu", *(f"d{i}" for i in range(9)))
    ]
    first, second = causes([*wrong, finding("kfd", "n1", actual="no /dev/kfd"), finding("disk_free./", "n1")])
    assert (first.names, second.verdict) == (("disk_free./",), Verdict.FAIL) and len(second.follows) > 8


def test_a_rack_with_everything_wrong_still_fits(capsys: pytest.CaptureFixture[str]) -> None:
    together = [fault for fault in FAULTS if fault not in ("gpu_link.width", "rdma_count", "modules.amdgpu")]
    everything = dict.fromkeys(together, "node[01-03]") | {"modules.amdgpu": "node04", "rdma_count": "node05"}
    lines = shown(rack(8, everything, "node[01-0{}]", lost="node08"), capsys)
    assert len(lines) <= 22 and max(map(len, lines)) <= 100
    assert "Then: shakedown run rack.py" in "".join(lines[:4]), "the first cause has its remedy"
    every = shown(rack(8, everything, "node[01-0{}]", lost="node08"), capsys, evidence=True)
    assert max(map(len, every)) <= 100 and any("evidence: " in line for line in every)
    assert not any("more (-v" in line for line in every)


def test_of_too_many_causes_the_gravest_are_shown_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    made = [finding(f"c{i}", "n1", Verdict.WARN) for i in range(5)]
    made += [finding(f"d{i}", "n1", Verdict.DRIFT, remedy=Remedy(text="set it", operation="x.y")) for i in range(30)]
    made += [finding(f"f{i}", "n1", remedy=Remedy(text="do it")) for i in range(3)]
    lines = shown_findings(made, capsys)
    assert len(lines) == 22 and [line.split()[1] for line in lines[1:4]] == ["f0", "f1", "f2"]
    (rest,) = [line for line in lines if line.startswith(" and ")]
    assert rest.startswith(" and 20 more (-v shows all): 15 DRIFT, 5 WARN: d15, ")
    assert len(shown_findings(made[:5], capsys)) == 5 + 2, "advice alone is shown"


def test_a_rack_that_cannot_be_reached_is_one_cause(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(rack(64, {}, lost="node[01-64]"), capsys)
    assert lines[1].split()[:3] == ["FAIL", "reachable", "node[01-64]"] and "timed out: *, port 22" in lines[1]
    assert len(lines) <= 6


def test_names_of_nodes_are_never_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"rack{rack}-compute{node}.cluster-a.example.org" for rack in (3, 7, 11) for node in (2, 5, 19)]
    made = [finding("gpu_link.width", name, wanted=16, actual={"0000:c1:00.0": 8}, unit="lanes") for name in names]
    lines = shown_findings(made, capsys)
    assert names[0] in lines[1].split() and max(map(len, lines)) <= 80
    assert "0000:c1:00.0: 8 lanes, wanted 16" in "\n".join(lines)
    wide = "\n".join(shown_findings(made, capsys, wide=True))
    assert len(set(re.findall(r"rack\S+", wide))) >= 1 and "+8" not in wide


def shown_findings(made: list[Finding], capsys: pytest.CaptureFixture[str], **more: Any) -> list[str]:
    formats.write(formats.Findings(Verdict.FAIL, len(made), made, inventory="rack.py", **more), "table")
    return capsys.readouterr().out.splitlines()


def test_quiet_is_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(shown(rack(4, {"clock": "node01"}, "node[01-0{}]"), capsys, quiet=True)) == 1


def test_a_note_says_how_it_is_fixed() -> None:
    notes = {cause.name: cause.note for cause in found("memlock", "numa_balancing", "cmdline", "clock")}
    assert notes == {
        "memlock": "fixable, new login",
        "numa_balancing": "fixable",
        "cmdline": "fixable, reboot",
        "clock": "",
    }
    login = Remedy(text="log in again", by=FixedBy.LOGIN)
    assert causes([finding("x", "n", Verdict.DRIFT, remedy=login)])[0].note == "new login"
    assert causes([finding("x", "n", Verdict.WARN)])[0].note == "advice"


@pytest.mark.parametrize("other", ["gpu_count", "modules.amdgpu", "rdma_rate"])
def test_a_node_that_does_not_answer_stands_above_what_others_show(other: str) -> None:
    """Whatever is wrong there is not seen: the node is the first thing to look at, however few checks it fails."""
    found = causes(rack(8, {other: "node0[4-6]"}, "node0[1-{}]", lost="node02").all_findings())
    assert found[0].names == ("reachable",) and any(other in cause.names for cause in found[1:])


UNKNOWN_THERE = {
    "cli/captures.py",
    "operations/atomic.py",
    "report/screen.py",
    "trials/gates.py",
}  # a file on a node, a capture


def test_a_command_in_a_message_names_the_inventory_where_it_is_known() -> None:
    """A person pastes it. A word in capitals stands for the inventory in help and docstrings alone."""
    package = Path(screen.__file__).parents[1]
    written = set()
    folders = (package, package / "facts", package / "operations")  # rglob follows no link
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        bodies = [
            node.body[0] for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list) and node.body
        ]
        documented = {id(first.value) for first in bodies if isinstance(first, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documented]
        written |= {str(file.relative_to(package)) for text in texts if "INVENTORY" in str(text.value)}
    assert written == UNKNOWN_THERE


def test_the_state_of_a_node_that_no_run_has_read_has_its_command(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    with pytest.raises(SystemExit), redirect_stderr(StringIO()) as shown:
        show_state("n1", "table", "my rack.py")
    assert shown.getvalue().endswith("no run or check has read n1: shakedown drift 'my rack.py' --limit n1\n")


@pytest.mark.parametrize("width", ["80", "100"])
def test_the_state_of_a_node_ends_with_its_causes_the_worst_first(
    width: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    monkeypatch.setenv("COLUMNS", width)
    examination = rack(4, {"numa_balancing": "node0[1-4]", "gpu_count": "node02"}, "node0[1-{}]")
    directory = RunDirectory.create("20261130T203232-a99cbf", tmp_path)
    record = RunRecord(run_id=directory.path.name, started_at=now(), inventory="rack.py", desired_digest="0")
    record.findings = examination.all_findings()
    directory.save(record)
    directory.write_state("node02", examination.states["node02"])
    show_state("node02", "table", "rack.py")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert max(map(len, [*out.splitlines(), *lines[1:]])) <= int(width)
    assert lines[0].startswith("node02, as ") and record.run_id not in out
    rows = [line.split()[:2] for line in lines if re.match(r" [A-Z]+ ", line)]
    assert rows == [["FAIL", "gpu_count"], ["DRIFT", "numa_balancing"]]
    assert "Reseat or replace the GPU that is missing" in err and "evidence: 0000:" in err
    assert json.loads(re.search(r"^gpus\.0\.bdf +(\S+)$", out, re.MULTILINE)[1]) == "0000:01:00.0"  # type: ignore[index]
