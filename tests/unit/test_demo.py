"""The demo: each fault is found by its right name on its right node, and nothing takes the simulation for a run."""

from __future__ import annotations

import json
import shlex
import shutil
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.hosts import few
from shakedown.ledger.compared import keep
from shakedown.report import markdown
from shakedown.runner.demo.play import Demo
from shakedown.runner.demo.scenario import DEFAULT, SIMULATED, Scenario, faults
from shakedown.runs.directory import RunDirectory
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState
from tests import demo_node
from tests.states import healthy

OF_STATES = [fault for fault in faults().values() if not fault.in_job]
OF_JOBS = [fault for fault in faults().values() if fault.in_job]


def played(folder: Path, *names: str, nodes: int = 4) -> Demo:
    return Demo(Scenario.of(nodes, names, 1), folder, 1)


def test_there_are_at_least_forty_faults_and_each_has_a_description() -> None:
    assert len(faults()) >= 40
    assert all(fault.what and fault.cause for fault in faults().values())


def test_the_simulated_node_is_what_the_probe_reads() -> None:
    (state,) = (state for state in Scenario(["node01"]).states({}).values() if state)
    assert isinstance(state, NodeState) and SIMULATED in str(state.system.product)
    other = healthy(1)
    assert {name: type(value) for name, value in state.model_dump().items()} == {
        name: type(value) for name, value in other.model_dump().items()
    }


def test_the_node_is_made_from_public_machines_and_says_what_is_not() -> None:
    assert demo_node.FILE.read_text("utf-8") == demo_node.made(), "old: python -m tests.demo_node"
    document = json.loads(demo_node.made())
    assert all("https://github.com/" in source and "2026-" in source for source in document["sources"].values())
    public = {"gpus", "kfd", "counters"}
    assert {name.partition(".")[0] for name in document["by hand"]} == set(document["state"]) - public | {"gpus"}
    gpus = document["state"]["gpus"]
    assert [gpu["bdf"][5:7] for gpu in gpus] == ["05", "27", "47", "65", "85", "a7", "c7", "e5"]
    assert not {gpu["bdf"] for gpu in gpus} & {nic["bdf"] for nic in document["state"]["rdma"]}
    assert document["state"]["counters"]["rdma/bnxt_re7/rx_roce_errors"] == 0


def test_a_rack_without_faults_passes(tmp_path: Path) -> None:
    demo = played(tmp_path)
    assert {finding.verdict for finding in demo.examine()} == {Verdict.OK} and demo.repair() == {}
    record = demo.train()
    assert record.verdict is Verdict.OK, [gate for gate in record.gates if gate.verdict != Verdict.OK]
    assert record.diagnosis is None and record.isolation is None
    lines = CliRunner().invoke(main, ["report", str(tmp_path / record.run_id)]).stdout.splitlines()
    text = " ".join(" ".join(lines).split())
    assert len(lines) <= 16 and max(map(len, lines)) <= 100, lines
    assert f"gates: {len(record.gates)} of {len(record.gates)} passed: " in text
    assert all(gate.name in text for gate in record.gates), "each gate that decided the verdict"
    assert "loss_falling falls: -" in text and "at least 580" in text


def test_all_times_of_a_simulated_run_lie_within_it_and_in_the_past(tmp_path: Path) -> None:
    demo = played(tmp_path, "gpu_hang")
    demo.examine()
    record = demo.train()
    directory = tmp_path / record.run_id
    begin, end = (datetime.fromisoformat(text) for text in (record.started_at, record.finished_at or ""))
    noted = [datetime.fromisoformat(json.loads(line)["at"]) for line in (directory / "events.jsonl").open()]
    assert all(begin <= at <= end + timedelta(seconds=1) for at in noted) and noted == sorted(noted)
    assert end < datetime.now(UTC) and f"{begin:%Y%m%dT%H%M%S}" in record.run_id


def test_each_fault_of_a_node_is_found_on_it_and_on_no_other(tmp_path: Path) -> None:
    rare = [fault for fault in OF_STATES if 0 < fault.nodes <= 2]
    demo = played(tmp_path, *(fault.name for fault in rare), nodes=64)
    demo.examine()
    taken = [node for fault in rare for node in demo.scenario.placed[fault.name]]
    assert len(taken) == len(set(taken)), "each has a node of its own"
    for fault in rare:
        for node in demo.scenario.placed[fault.name]:
            found = {finding.name for finding in demo.examination.findings[node] if finding.verdict != Verdict.OK}
            assert fault.cause in found, (fault.name, found)
    for node in set(demo.scenario.nodes) - set(taken):
        assert demo.examination.verdict_of(node) is Verdict.OK, node


@pytest.mark.parametrize("fault", [fault for fault in OF_STATES if not 0 < fault.nodes <= 2], ids=lambda f: f.name)
def test_drift_of_many_nodes_is_found_and_repaired(tmp_path: Path, fault: object) -> None:
    chosen = next(found for found in OF_STATES if found is fault)
    demo = played(tmp_path, chosen.name)
    demo.examine()
    nodes = {n for n in demo.scenario.nodes if any(not f.verdict.passes for f in demo.examination.findings[n])}
    assert nodes == set(demo.scenario.placed[chosen.name])
    assert set(demo.repair()) == {chosen.cause}
    assert demo.examination.verdict() is Verdict.OK


def test_a_fault_of_most_nodes_is_held_against_no_other(tmp_path: Path) -> None:
    """Where nothing of the fault's own is declared the majority counts as right, as it must."""
    nodes = [f"node{number:02d}" for number in range(1, 6)]
    for fault in OF_STATES:
        if not fault.silent and not fault.cause.startswith("fleet."):
            demo = Demo(Scenario(nodes, {fault.name: nodes[:3]}), tmp_path, 1)
            demo.examine()
            found = {node: {f.name for f in demo.examination.findings[node] if f.verdict != "ok"} for node in nodes}
            assert all(fault.cause in found[node] for node in nodes[:3]), fault.name
            assert not found[nodes[3]] | found[nodes[4]], fault.name


@pytest.mark.parametrize("fault", OF_JOBS, ids=lambda f: f.name)
def test_each_fault_of_the_job_is_named_with_its_node(tmp_path: Path, fault: object) -> None:
    chosen = next(found for found in OF_JOBS if found is fault)
    demo = played(tmp_path, chosen.name)
    demo.examine()
    record = demo.train()
    assert record.verdict is Verdict.FAIL
    bad = set(demo.scenario.placed[chosen.name])
    diagnosis = record.diagnosis
    if chosen.named:
        assert diagnosis is not None and (diagnosis.name, set(diagnosis.origin)) == (chosen.cause, bad), diagnosis
        assert {node.name for node in record.nodes if node.failed} == bad
    else:
        assert diagnosis is None or not set(diagnosis.origin) - bad, diagnosis
        wrong = {gate.name for gate in record.gates if not gate.verdict.passes} | {diagnosis.name if diagnosis else ""}
        assert chosen.cause in wrong, wrong
    if chosen.stops or chosen.slow != 1:
        assert record.isolation and record.isolation.result
        assert [set(suspect.nodes) for suspect in record.isolation.result.suspects] == [bad]


def test_nothing_takes_a_simulation_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_LEDGER", str(tmp_path / "own.sqlite"))
    demo = played(tmp_path / "simulated", "killed")
    demo.examine()
    record = demo.train()
    directory = RunDirectory(tmp_path / "simulated" / record.run_id)
    assert directory.load().simulated and record.run_id.startswith(SIMULATED)
    assert "simulated" in keep(directory, record) and not (tmp_path / "own.sqlite").exists()
    for log in directory.logs.rglob("leader.log"):
        assert log.read_text().startswith(SIMULATED)
    ran = CliRunner().invoke(main, ["judge", str(directory.path), "--ledger"])
    assert ran.exit_code != 0 and "simulated" in ran.output and not (tmp_path / "own.sqlite").exists()


def test_the_command_lists_its_faults_and_shows_the_rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(main, ["demo", "--fault", "list"])
    assert listed.exit_code == 0 and len(listed.output.splitlines()) == len(faults())
    unknown = CliRunner().invoke(main, ["demo", "--fault", "gpu_lots", "--nodes", "0"])
    assert unknown.exit_code == 2 and "did you mean gpu_lost?" in unknown.output
    assert "0 is not in the range" in unknown.output, "all wrong options at once"
    ran = CliRunner().invoke(main, ["demo", "--nodes", "8", "--format", "json"])
    assert ran.exit_code == 1, ran.output
    document = json.loads(ran.stdout)
    assert document["simulated"] is True and document["diagnosis"]["name"] == faults()[DEFAULT[-1]].cause
    assert {path.name for path in tmp_path.iterdir()} == {"simulated-runs"}
    (where,) = (tmp_path / "simulated-runs").glob(f"{SIMULATED}-*")
    copy = shutil.copytree(where, tmp_path / "copy")  # whose path says nothing of it
    for command in ("report", "judge"):
        assert "SIMULATED: nothing of this run was measured" in CliRunner().invoke(main, [command, str(copy)]).output
    shown = CliRunner().invoke(main, ["report", str(where)])
    assert shown.exit_code == 1 and f"shakedown report {shlex.quote(str(where))} -v" in shown.stdout, shown.stdout


def test_sixty_four_nodes_with_seven_faults_fit_on_one_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, ["demo"])
    lines = ran.stdout.splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("verdict: fail: "))
    assert lines[0].startswith(SIMULATED) and len(lines) - 1 <= 25, ran.stdout
    assert "report: shakedown report simulated-runs/SIMULATED-" in lines[-1], ran.stdout
    assert max(map(len, lines)) <= 100, ran.stdout
    assert lines[2].split()[:2] == ["FAIL", "gpu_count"] and "node63" in lines[end], ran.stdout
    assert "7 of 8 GPUs: 0000:47:00.0 left the bus at 04:38 " in lines[2]


MANY = (
    (
        "gpu_ecc_corrected",
        "unreachable",
        "gpu_lost",
        "c2",
        "kfd",
        "clock",
        "gpu_memory_partition",
        "shared_memory_full",
    ),
    ("node_lost", "gpu_partition", "gpu_bad_pages", "modules", "gpu_link_width", "provider", "memlock", "unreachable"),
    ("gpu_lost", "provider", "gpu_hang", "gpu_partition", "memlock", "gpu_link_width", "image", "gpu_memory_partition"),
)


@pytest.mark.parametrize("names", MANY)
def test_more_causes_and_a_failed_job_fit_on_the_same_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Each cause has its line, and the end its headline, the next step and the place of the report."""
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, ["demo", "--nodes", "24", *(word for name in names for word in ("--fault", name))])
    lines = ran.stdout.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 100, ran.stdout
    rows = [line for line in lines if line.split()[0] in ("FAIL", "DRIFT", "WARN")]
    advice = "gpu_ecc_corrected" in names  # stands in the line of the rest
    assert len(rows) == len(names) - 1 - advice, ran.stdout
    begins = [line.split(":")[0].strip() for line in lines]
    assert {"verdict", "next", "then", "report"} <= {*begins}, ran.stdout


@pytest.mark.parametrize("names", [("disk_filled", "gpu_hang"), ("disk_filled", "rank_stops", "segmentation_fault")])
def test_what_one_node_has_shown_is_no_cause_of_another(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Several bad nodes: each that is named has a cause of its own, or none."""
    demo = played(tmp_path, *names, nodes=24)
    demo.examine()
    record = demo.train()
    lines = CliRunner().invoke(main, ["report", str(tmp_path / record.run_id)]).stdout.replace("\n        ", " ")
    (verdict,) = [line for line in lines.splitlines() if line.startswith("verdict: ")]
    nodes = {name: demo.scenario.placed[name][0] for name in names}
    for name, what in (("disk_filled", "a disk is full"), ("segmentation_fault", "a process crashed")):
        if what in verdict:
            assert f"{nodes[name]}: {what}" in verdict, verdict
    assert [what for what in ("a disk is full", "a queue", "a process") if what in verdict], verdict
    assert all(node in verdict for node in nodes.values()), verdict


@pytest.mark.parametrize(
    ("nodes", "names", "headline"),
    [
        (
            12,
            ["slow", "gpu_lost"],
            "{slow} (named by the search for bad nodes): gate throughput_per_gpu failed with it",
        ),
        (24, ["rank_stops"], "{rank_stops} (named by the search for bad nodes): the job hangs"),
        (12, ["nic_slow"], "{nic_slow} did not take part (rdma_rate); the job passed 15 gates"),
        (12, ["gpu_hang"], "{gpu_hang} (certain: "),
    ],
)
def test_the_end_is_one_screen_that_names_the_bad_node_and_no_other(
    tmp_path: Path, nodes: int, names: list[str], headline: str
) -> None:
    demo = played(tmp_path, *names, nodes=nodes)
    demo.examine()
    path = tmp_path / demo.train().run_id
    lines = CliRunner().invoke(main, ["report", str(path)]).stdout.splitlines()
    where = [line for line in lines if line.startswith(("report: ", "evidence: "))]  # a path is as long as it is
    assert len(lines) <= 25 and max(len(line) for line in lines if line not in where) <= 100, lines
    placed = {name: few(nodes) for name, nodes in demo.scenario.placed.items()}
    (verdict,) = [line for line in lines if line.startswith("verdict: ")]
    assert verdict.startswith(f"verdict: fail: {headline.format_map(placed)}"), verdict
    without = [line.partition(" --limit ")[2] for line in lines if " --limit '!" in line]
    assert without == ([f"'!{placed[names[0]]}'"] if "search" in headline else [])


def test_a_ticket_names_the_node_its_parts_and_what_was_seen(tmp_path: Path) -> None:
    demo = played(tmp_path, "gpu_hang", "numa_balancing")
    demo.examine()
    demo.repair()
    record = demo.train()
    (node,) = demo.scenario.placed["gpu_hang"]
    written = CliRunner().invoke(main, ["ticket", str(tmp_path / record.run_id)])
    assert written.exit_code == 0, written.output
    lines = written.stdout.splitlines()
    assert lines[0] == f"# {node}: a queue of the GPU made no progress in time"
    assert "SIMULATED run" in written.stdout
    state = demo.examination.states[node]
    assert isinstance(state.gpus, list) and isinstance(state.rdma, list)
    rows = [line for line in lines if line.startswith(("| GPU", "| **GPU", "| NIC"))]
    assert len(rows) == 16 and all(str(gpu.serial) in written.stdout for gpu in state.gpus)
    assert [row for row in rows if "**GPU**" in row] == [row for row in rows if state.gpus[2].bdf in row]
    assert any("kernel.log" in line and "ring" in line for line in lines)
    hostile = state.gpus[2].model_copy(update={"firmware": {"<b>|[a](b)": "1"}})
    shown = markdown.text_of(record, node, state.model_copy(update={"gpus": [hostile]}))
    assert "| \\<b\\>\\|\\[a\\](b) 1 |" in shown and "<b>" not in shown, "a node writes no markup"
    assert any(line.endswith("settings that the run changed: numa\\_balancing") for line in lines)


def test_a_ticket_is_of_one_node_and_shows_no_secret(tmp_path: Path) -> None:
    demo = played(tmp_path, "gpu_lost", "nic_slow", nodes=6)
    demo.examine()
    record = demo.train()
    path = str(tmp_path / record.run_id)
    several = CliRunner().invoke(main, ["ticket", path])
    bad = [node for node in demo.scenario.nodes if any(node in found for found in demo.scenario.placed.values())]
    assert several.exit_code == 2 and f" names {few(bad)}: choose one with --node" in several.output
    (node,) = demo.scenario.placed["gpu_lost"]
    one = CliRunner().invoke(main, ["ticket", path, "--node", node])
    assert one.exit_code == 0 and "`gpu_count`: 7" in one.stdout
    wrong = CliRunner().invoke(main, ["ticket", path, "--node", "node99"])
    assert wrong.exit_code == 2 and "node99" in wrong.output
    file = tmp_path / record.run_id / "run.json"
    token = "hf_" + "Zq3" * 12
    file.write_text(file.read_text().replace('"wanted": 8,', f'"wanted": "HF_TOKEN={token}",'))
    shown = CliRunner().invoke(main, ["ticket", path, "--node", node]).stdout
    assert "HF" in shown and token not in shown


def test_each_gid_of_a_played_node_holds_the_address_that_it_is_of() -> None:
    states = Scenario.of(300, [], 0).states({})
    gids = [gid for state in states.values() for device in state.rdma for gid in device.gids if gid.ipv4]
    assert [str(IPv4Address(int(gid.gid.replace(":", "")[-8:], 16))) for gid in gids] == [gid.ipv4 for gid in gids]
    assert len({gid.ipv4 for gid in gids}) == sum(len(state.rdma) for state in states.values()) > 300
