"""Trials: what a node says of them, how a run's figures are judged, and the program that measures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shakedown.gates.baselines.model import Pass, Past
from shakedown.jobs.plan import PlanError
from shakedown.ledger.entry import entry_of
from shakedown.runs.directory import JobRecord, RunDirectory, RunRecord, now
from shakedown.state.findings import Verdict
from shakedown.trials import gates, judge, plan
from shakedown.trials.models import Limits, Reading, TrialsRecord, read_log, references
from shakedown.trials.workload.registry import PLACES, trials
from tests import states

WORKLOAD = Path(plan.__file__).parent / "workload"
LINE = {"trial": "gemm", "part": "cpu", "repetition": 1, "figure": "fp32", "state": "ok", "value": 1.5, "wrong": 0}


def line(**changes: object) -> str:
    return f"trial {json.dumps({**LINE, **changes})}"


def test_a_log_gives_its_readings_and_the_node_does_not_say_whose_they_are() -> None:
    found = read_log(
        "node7", ["NCCL INFO hello", line(), line(figure="bf16", node="node1"), "trials: over after 3.2 s"]
    )
    assert [(each.node, each.figure, each.value) for each in found.readings] == [
        ("node7", "fp32", 1.5),
        ("node7", "bf16", 1.5),
    ]
    assert found.over and not found.wrong


@pytest.mark.parametrize(
    "bad",
    [
        line(value=-1),
        line(value=1e300),
        line(part="../../etc"),
        line(figure="x" * 100),
        line(more="than there is"),
        line(state="splendid"),
        'trial {"trial": "gemm", "value": NaN}',
        "trial [1]",
        f"trial {' ' * 5000}",
    ],
)
def test_a_line_that_is_no_reading_is_told_and_not_read(bad: str) -> None:
    found = read_log("node1", [line(), bad])
    assert len(found.readings) == 1 and "line 2 is no reading" in found.wrong


def test_control_characters_of_a_node_reach_no_terminal() -> None:
    (reading,) = read_log("node1", [line(note="\x1b[31mred\x07")]).readings
    assert reading.note.isprintable()


def test_a_node_has_no_more_parts_than_any_node_has() -> None:
    found = read_log("node1", (line(part=f"gpu{number}") for number in range(1000)))
    assert len(found.readings) == 128 and found.wrong == "more than 128 parts"
    assert len(read_log("node1", (line(trial="pairs", part=f"0>{number}") for number in range(1, 512))).readings) == 511
    found = read_log("node1", (line(trial="pairs", part="0>1", rail=f"rdma{number}") for number in range(1000)))
    assert len(found.readings) == 128 and found.wrong, "each rail is a matrix of all nodes"


def record(values: dict[str, list[float]], gpu: str = "cpu", **more: Any) -> TrialsRecord:
    readings = [
        Reading(node=node, trial="gemm", part="cpu", repetition=n + 1, figure="fp32", value=value)
        for node, its in values.items()
        for n, value in enumerate(its)
    ]
    readings += more.pop("readings", [])
    asked = more.pop("asked", ["gemm"])
    return judge.judge_record(
        TrialsRecord(
            asked=asked,
            repetitions=3,
            groups=dict.fromkeys(values, gpu),
            places=list(values),
            readings=readings,
            **more,
        )
    )


EVEN = {f"node{number}": [10.0, 10.1, 9.9] for number in range(1, 5)}


def verdicts(judged: TrialsRecord) -> list[tuple[str, str | None, Verdict]]:
    return [(gate.name, gate.node, gate.verdict) for gate in gates.gates(judged)]


def test_the_slow_node_has_a_gate_of_its_own_and_the_others_pass() -> None:
    judged = record({**EVEN, "node2": [2.5, 2.6, 2.4]})
    assert verdicts(judged) == [("gemm", "node2", Verdict.FAIL), ("gemm", None, Verdict.OK)]
    (slow,) = [each for each in judged.judged if each.standing == "named"]
    assert slow.values == [2.5, 2.6, 2.4] and slow.of_peers == 10.0
    assert list(gates.named_nodes(judged)) == ["node2"]


def test_a_node_cannot_outvote_the_others_by_parts_that_it_invents() -> None:
    """100 parts that are faster than anybody's real ones: who has them would else make all others slow."""
    invented = [
        Reading(node="node1", trial="gemm", part=f"cpu{number}", repetition=n, figure="fp32", value=15.0 + n / 10)
        for number in range(100)
        for n in (1, 2, 3)
    ]
    assert verdicts(record(EVEN, readings=invented)) == [("gemm", None, Verdict.OK)]


def test_of_two_nodes_that_differ_neither_is_named() -> None:
    readings = [
        Reading(node=node, trial="gemm", part=f"gpu{gpu}", repetition=n, figure="bf16", value=value + n / 10)
        for node, value in (("node1", 115.0), ("node2", 100.0))
        for gpu in range(8)
        for n in (1, 2, 3)
    ]
    groups = {"node1": "cpu", "node2": "cpu"}
    judged = judge.judge_record(TrialsRecord(asked=["gemm"], repetitions=3, groups=groups, readings=readings))
    assert verdicts(judged) == [("gemm", None, Verdict.UNKNOWN)] and judge.to_confirm(judged) == {}
    (gate,) = gates.gates(judged)
    assert "the nodes differ, and 1 other node cannot show which of them is wrong" in gate.evidence
    assert "with more nodes" in str(gate.remedy)
    alone = record({"node1": [115.0] * 3, "node2": [100.0] * 3})
    assert "differs by 13% from 1 peer" in gates.gates(alone)[0].evidence


def test_two_nodes_are_not_enough_unless_a_floor_says_what_is_wanted() -> None:
    two = {"node1": [10.0, 10, 10], "node2": [10.0, 10, 10]}
    assert verdicts(record(two)) == [("gemm", None, Verdict.UNKNOWN)]
    assert verdicts(record(two, limits=Limits(floors={"gemm.fp32": 9.0}))) == [("gemm", None, Verdict.OK)]
    assert verdicts(record(two, limits=Limits(floors={"gemm.fp32": 10.0}))) == [("gemm", None, Verdict.OK)]
    below = record(two, limits=Limits(floors={"gemm.fp32": 11.0}))
    assert [verdict for _, _, verdict in verdicts(below)] == [Verdict.FAIL, Verdict.FAIL]


@pytest.mark.parametrize(
    "asked", [["dataset_read"], ["rvs_gst"], ["perftest"], ["transfer"], ["gemm", "rccl_tests"], ["gemm", "transfer"]]
)
def test_a_trial_that_no_node_can_take_is_not_passed(asked: list[str]) -> None:
    """Its gate was absent, and so a run of this trial alone was ok."""
    name, note = asked[-1], "the tool is not installed"
    readings = [
        Reading(node=n, trial=name, part="node", repetition=1, figure="", state="absent", note=note) for n in "ab"
    ]
    found = gates.gates(record({"a": [], "b": []}, asked=asked, readings=readings))
    (gate,) = [gate for gate in found if gate.name == name]
    assert gate.verdict == Verdict.UNKNOWN and gate.evidence == f"a: {note}, b: {note}" and gate.node is None
    assert f"--only {name} again" in str(gate.remedy)
    usual = [trial.name for trial in trials().values() if not trial.by_name]
    every = gates.gates(record(EVEN, asked=usual, readings=readings))
    assert name not in [gate.name for gate in every], "where all are measured, nodes without GPUs lack nothing"


def test_a_node_that_lacks_the_tool_of_others_is_named_with_the_reason() -> None:
    readings = [
        Reading(node=n, trial="dataset_read", part="node", repetition=r, figure="bandwidth", value=1.0)
        for n in "abcd"
        for r in (1, 2, 3)
    ]
    readings += [
        Reading(node="e", trial="dataset_read", part="node", repetition=1, figure="", state="absent", note="no fio")
    ]
    (gate,) = gates.gates(record({node: [] for node in "abcde"}, asked=["dataset_read"], readings=readings))
    assert gate.verdict == Verdict.UNKNOWN and gate.evidence == "e: no figure (no fio)"


@pytest.mark.parametrize(("bound", "verdict"), [(10.0, Verdict.OK), (9.9, Verdict.FAIL)])
def test_a_time_may_be_as_long_as_wanted_and_no_longer(bound: float, verdict: Verdict) -> None:
    times = [
        Reading(node=node, trial="dataset_read", part="data", repetition=n, figure="latency", value=10.0)
        for node in ("node1", "node2")
        for n in (1, 2, 3)
    ]
    found = record({}, asked=["dataset_read"], readings=times, limits=Limits(floors={"dataset_read.latency": bound}))
    assert {found_verdict for _, _, found_verdict in verdicts(found)} == {verdict}


@pytest.mark.parametrize(
    ("value", "nodes", "standing", "why"),
    [
        (100.0, 5, "ok", "misses the published"),
        (100.0, 2, "unknown", "misses the published"),
        (1000.0, 2, "unknown", ""),
    ],
)
def test_a_disputed_floor_is_told_and_neither_names_nor_clears(
    value: float, nodes: int, standing: str, why: str
) -> None:
    group = {f"node{number}": "mi355x" for number in range(nodes)}
    readings = [
        Reading(node=node, trial="rccl_tests", part="all", repetition=n, figure="all_reduce.busbw", value=value)
        for node in group
        for n in (1, 2, 3)
    ]
    whole = TrialsRecord(asked=["rccl_tests"], repetitions=3, groups=group, readings=readings)
    judged = judge.judge_record(whole).judged
    assert {each.standing for each in judged} == {standing}
    assert all(why in each.why and ("misses" in each.why) == bool(why) for each in judged)


def test_more_than_is_possible_is_a_broken_measurement_and_no_pass() -> None:
    ceiling = references().ceiling("mi300x", "gemm.fp32")
    assert ceiling is not None and ceiling > 163.4
    judged = record({**EVEN, "node3": [10.0, 10, 500]}, gpu="mi300x")
    assert verdicts(judged) == [("gemm", None, Verdict.UNKNOWN)]
    assert "physical limit" in gates.gates(judged)[0].evidence


def test_wrong_results_name_a_node_however_fast_it_was() -> None:
    corrupt = [
        Reading(node="node4", trial="gemm", part="cpu", repetition=2, figure="fp32", state="wrong", value=10, wrong=3)
    ]
    judged = record(EVEN, readings=corrupt)
    assert ("gemm", "node4", Verdict.FAIL) in verdicts(judged)
    assert "data is corrupted" in gates.gates(judged)[0].evidence


def test_a_part_that_hung_costs_its_own_figure_and_a_silent_node_is_unknown() -> None:
    hung = [Reading(node="node1", trial="memory", part="cpu", repetition=1, state="timeout", note="nothing for 60 s")]
    judged = record(
        EVEN,
        readings=hung,
        asked=["gemm", "memory"],
        incomplete={"pairs": {"node3": "cut"}, "trials": {"node2": "stopped"}},
    )
    assert verdicts(judged) == [
        ("gemm", None, Verdict.UNKNOWN),
        ("memory", "node1", Verdict.FAIL),
        ("memory", None, Verdict.UNKNOWN),
    ]
    assert gates.gates(judged)[0].evidence == "node2: stopped", "what was lost could have been one of its figures"
    assert "node2: no figure (stopped)" in gates.gates(judged)[2].evidence


def test_a_part_or_a_repetition_that_is_missing_on_one_node_is_no_pass() -> None:
    """A reading that was lost, or that a node keeps to itself, could be the slow one."""

    def of_second(nodes: Sequence[str], repetitions: Sequence[int]) -> list[Reading]:
        return [
            Reading(node=node, trial="gemm", part="cpu1", repetition=number, figure="fp32", value=10.0 + number / 10)
            for node in nodes
            for number in repetitions
        ]

    all_nodes, whole = list(EVEN), (1, 2, 3)
    assert verdicts(record(EVEN, readings=of_second(all_nodes, whole))) == [("gemm", None, Verdict.OK)]
    one_less = record(EVEN, readings=of_second(all_nodes[1:], whole))
    assert verdicts(one_less) == [("gemm", None, Verdict.UNKNOWN)]
    assert gates.gates(one_less)[0].evidence == "node1: cpu1 fp32: no figure"
    late = record(EVEN, readings=[*of_second(all_nodes[1:], whole), *of_second(all_nodes[:1], (1, 3))])
    assert gates.gates(late)[0].evidence == "node1: cpu1 fp32: 2 of 3 repetitions"


def test_what_the_tool_itself_calls_too_little_is_too_little_where_it_always_is() -> None:
    def missed(*repetitions: int) -> list[str]:
        readings = [
            Reading(
                node="node1",
                trial="rvs_gst",
                part="gpu0",
                repetition=n,
                figure="fp8",
                value=1.1,
                missed=n in repetitions,
                note="RVS asks for 1215 TFLOPS" if n in repetitions else "",
            )
            for n in (1, 2, 3)
        ]
        return [each.standing for each in record({}, readings=readings, asked=["rvs_gst"]).judged]

    assert (missed(1, 2, 3), missed(2), missed()) == (["named"], ["undecided"], ["unknown"])


def between(nodes: int, slow: Callable[[int, int], bool]) -> list[Reading]:
    return [
        Reading(
            node=f"node{a + 1}",
            trial="pairs",
            part=f"{a}>{b}",
            repetition=repetition,
            figure="bandwidth",
            value=0.01 if slow(a, b) else 1.0 + 0.01 * repetition,
        )
        for a in range(nodes)
        for b in range(nodes)
        for repetition in (1, 2, 3)
        if a != b
    ]


def test_pairs_name_a_sender_and_what_a_node_says_of_others_counts_for_nothing() -> None:
    readings = between(4, lambda a, _b: a == 1)
    readings += [Reading(node="node1", trial="pairs", part="2>3", repetition=9, figure="bandwidth", value=0.001)]
    judged = record(EVEN, readings=readings, asked=["pairs"])
    assert verdicts(judged) == [("pairs", "node2", Verdict.FAIL), ("pairs", None, Verdict.OK)]
    assert min(judged.matrices[0].cells["node3"]["node4"]) > 1


def test_a_link_that_carries_more_than_its_nic_is_a_broken_measurement() -> None:
    ready = {"readings": between(4, lambda _a, _b: False), "asked": ["pairs"]}
    assert verdicts(record(EVEN, **ready)) == [("pairs", None, Verdict.OK)]
    judged = record(EVEN, limits=Limits(ceilings={"pairs.bandwidth": 0.5}), **ready)
    assert verdicts(judged) == [("pairs", None, Verdict.UNKNOWN)]
    assert "physical limit" in gates.gates(judged)[0].evidence


def earlier(value: float, runs: int = 8) -> Past:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    name = judge.metric("gemm", "fp32", "cpu")
    passes = [
        Pass(run_id=f"r{n}", at=day + timedelta(days=n), figures={name: value + 0.01 * (n % 3)}) for n in range(runs)
    ]
    return Past(judge=True, earlier=passes)


def test_earlier_runs_decide_where_no_peers_do_and_else_raise_doubt() -> None:
    alone = record({"node1": [10.0, 10.0]})
    assert [each.standing for each in alone.judged] == ["unknown"]
    assert "with more nodes" in str(gates.gates(alone)[0].remedy)
    named, unnamed = (str(gates.gates(alone, site)[0].remedy) for site in ("my rack.py", ""))
    assert named.startswith("run shakedown trials 'my rack.py' --only ") and "INVENTORY" not in named
    assert unnamed.startswith("run shakedown trials INVENTORY --only ")

    def standing(record_: TrialsRecord, value: float) -> list[str]:
        return [each.standing for each in judge.judge_record(record_, {"node1": earlier(value)}).judged]

    assert standing(alone, 10.0) == ["ok"]
    assert standing(alone, 20.0) == ["named"]
    assert standing(record(EVEN), 20.0) == ["undecided", "ok", "ok", "ok"]
    assert [each.standing for each in judge.judge_record(alone, {"node1": earlier(20.0, runs=2)}).judged] == ["unknown"]


def test_the_ledger_keeps_what_did_not_stand_out(tmp_path: Path) -> None:
    values = {**EVEN, "node2": [2.5, 2.6, 2.4], "node3": [10.0, 10.0, 500.0]}
    run = RunRecord(run_id="20260101T000000-000000", started_at=now(), inventory="i", desired_digest="0" * 64)
    run.trials = record(values, gpu="mi300x")
    state = states.bare()
    for node in values:
        made = plan.plan_alone(states.desired(gpu="cpu"), state, node, "run", ["gemm"], plan.Trials())
        run.jobs.append(JobRecord(node=node, trials="trials", plan=made))
    run.jobs.append(JobRecord(node="node1", plan=made))  # a training, which no trial's figures are of
    run.finished_at = now()
    kept = entry_of(run, dict.fromkeys(values, state), RunDirectory(tmp_path), {})
    assert [(row["job"], row["metric"], row["value"]) for row in kept.figures] == [
        ("trials/node1", "gemm.fp32.cpu", 10.0),
        ("trials/node4", "gemm.fp32.cpu", 10.0),
    ]


def again(
    *values: float, state: str = "ok", nodes: Sequence[str] = ("node1", "node2", "node3", "node4")
) -> list[Reading]:
    """A fresh run in which node2 has these and all others the usual."""
    return [
        Reading.model_validate(
            {
                "node": node,
                "trial": "gemm",
                "part": "cpu",
                "repetition": number,
                "figure": "fp32",
                "state": state if node == "node2" else "ok",
                "value": value if node == "node2" else 10.0,
                "wrong": 1 if state == "wrong" and node == "node2" else 0,
                "fresh": True,
            }
        )
        for node in nodes
        for number, value in enumerate(values, 1)
    ]


def test_a_node_is_named_only_where_a_fresh_run_names_it_again() -> None:
    slow = {**EVEN, "node2": [2.5, 2.6, 2.4]}
    assert list(judge.to_confirm(record(slow))) == ["node2"]
    twice = record(slow, readings=again(2.4, 2.4, 2.4), confirm=True)
    assert verdicts(twice) == [("gemm", "node2", Verdict.FAIL), ("gemm", None, Verdict.OK)]
    (named,) = [each for each in twice.judged if each.standing == "named"]
    assert named.values == [2.5, 2.6, 2.4] and named.again == [2.4, 2.4, 2.4] and "again in a fresh run" in named.why
    once = record(slow, readings=again(9.9, 10.0, 10.0), confirm=True)
    assert verdicts(once) == [("gemm", None, Verdict.UNKNOWN)]
    (doubtful,) = [each for each in once.judged if each.standing == "undecided"]
    assert "not so in a fresh run: 10" in doubtful.why and doubtful.values == [2.5, 2.6, 2.4], "never the better of two"
    never = record(slow, confirm=True)
    assert verdicts(never) == [("gemm", None, Verdict.UNKNOWN)] and "no fresh run" in str(never.judged[1].why)


def test_a_wrong_result_needs_no_second_run_and_one_of_the_second_counts() -> None:
    wrong = [
        Reading(node="node2", trial="gemm", part="cpu", repetition=1, figure="fp32", state="wrong", value=1, wrong=3)
    ]
    assert judge.to_confirm(record(EVEN, readings=wrong)) == {}
    assert ("gemm", "node2", Verdict.FAIL) in verdicts(record(EVEN, readings=wrong, confirm=True))
    later = record({**EVEN, "node2": [2.5, 2.6, 2.4]}, readings=again(10, 10, 10, state="wrong"), confirm=True)
    assert ("gemm", "node2", Verdict.FAIL) in verdicts(later)


def test_a_sender_is_named_only_where_fresh_rounds_name_it_again() -> None:
    eight = {f"node{number}": [1.0] for number in range(1, 9)}
    first = between(8, lambda a, _b: a == 5)
    assert judge.suspects(record(eight, readings=first, asked=["pairs"])) == {"pairs": [5]}
    places = ["node2", "node4", "node6", "node7", "node8"]

    def fresh(slow: int) -> TrialsRecord:
        readings = [
            each.model_copy(update={"node": places[int(each.part[0])], "fresh": True})
            for each in between(5, lambda a, _b: a == slow)
        ]
        return record(eight, readings=[*first, *readings], asked=["pairs"], confirm=True, places_again=places)

    confirmed = fresh(2)
    assert verdicts(confirmed) == [("pairs", "node6", Verdict.FAIL), ("pairs", None, Verdict.OK)]
    assert confirmed.matrices[0].named[0].confirmed and confirmed.matrices_again[0].named[0].what == "node6"
    another = fresh(0)
    assert verdicts(another) == [("pairs", None, Verdict.UNKNOWN)]
    assert "not so in a fresh run, which names sender node2" in gates.gates(another)[0].evidence
    alone = record(eight, readings=first, asked=["pairs"], confirm=True)
    assert verdicts(alone) == [("pairs", None, Verdict.UNKNOWN)]


def test_a_node_that_broke_off_with_all_is_named_by_its_row_and_column() -> None:
    readings = [each for each in between(5, lambda _a, _b: False) if "3" not in each.part]
    readings += [
        Reading(node=f"node{a + 1}", trial="pairs", part=f"{a}>{b}", repetition=1, state="crashed")
        for a, b in [(3, 0), (3, 1), (3, 2), (3, 4), (0, 3), (1, 3), (2, 3), (4, 3)]
    ]
    judged = record({**EVEN, "node5": [10.0]}, readings=readings, asked=["pairs"])
    assert [(n.kind, n.what) for n in judged.matrices[0].named] == [("node", "node4")]


def test_every_published_figure_is_one_that_a_trial_has_with_its_page_and_day() -> None:
    known = trials()
    for floor in references().floors:
        name, _, figure = floor.figure.partition(".")
        if name in known:
            assert known[name].unit(figure) == floor.unit, floor.figure
        assert floor.source and floor.date.year >= 2024
    assert references().floor("mi355x", "rccl_tests.all_reduce.busbw").disputed  # type: ignore[union-attr]
    assert {each.on for each in known.values()} == set(PLACES)


# -- plans -------------------------------------------------------------------------------------------------------------


def test_a_node_without_gpus_measures_with_the_python_of_its_environment() -> None:
    desired = states.desired(gpu="cpu", smoke={"recipe": "gpt-small", "venv": "/opt/venv"})
    wanted = plan.Trials()
    made = plan.plan_alone(desired, states.bare(), "n1", "run", ["gemm", "pairs"], wanted)
    (node,) = made.nodes
    assert node.command == ["/opt/venv/bin/python", "{run_dir}/workload/run.py", "{run_dir}/request.json"]
    request = json.loads(node.files["request.json"])
    assert (request["trials"], request["gpus"]) == (["gemm"], 0)
    assert made.timeout_s > request["limit_s"] and request["start_s"] == plan.START_S
    patient = plan.plan_alone(desired, states.bare(), "n1", "run", ["gemm"], plan.Trials(limit_s=900))
    assert json.loads(patient.nodes[0].files["request.json"])["start_s"] == 900, "slow nodes start slowly, too"
    assert patient.timeout_s > 900 + 3 * 900 + 900


def test_a_node_with_gpus_measures_in_the_container_of_the_smoke_run() -> None:
    desired = states.desired(
        smoke={"recipe": "llama3.1-8b-fp8", "image": "megatron"}, images={"megatron": "rocm/megatron-lm:v25.5_py310"}
    )
    made = plan.plan_alone(desired, states.healthy(), "n1", "run", ["gemm"], plan.Trials())
    (node,) = made.nodes
    assert made.runtime == "container" and node.command[0] in ("docker", "podman")
    words = " ".join(node.command)
    assert "--device /dev/kfd" in words and "job.sh --without-torchrun" in words
    assert words.endswith("python3 /shakedown/workload/run.py /shakedown/request.json")
    assert json.loads(node.files["request.json"])["gpus"] == 8


def test_each_node_is_told_where_the_rendezvous_is_and_which_address_is_its_own() -> None:
    wanted, nodes = (
        states.desired(gpu="cpu", nic=None, smoke={"recipe": "gpt-small", "venv": "/opt/venv"}),
        ["n1", "n2", "n3"],
    )
    desired = dict.fromkeys(nodes, wanted)
    found = {name: states.bare(number) for number, name in enumerate(nodes, 1)}
    made = plan.plan_between(desired, found, "run", [[(0, 1)], [(0, 2)], [(1, 2)]], plan.Trials())
    request = json.loads(made.nodes[1].files["request.json"])
    assert (request["own"], request["place"], request["rails"]) == (made.nodes[1].address, 1, [])
    assert request["address"] == made.nodes[0].address != request["own"]
    assert request["port"] == made.master_port


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no such trial: gem \(did you mean gemm\? there are gemm, memory"):
        plan.chosen_trials(plan.Trials(), ["gem"])
    assert plan.chosen_trials(plan.Trials(only=["pairs", "gemm"])) == ["gemm", "pairs"]
    assert issubclass(PlanError, ValueError)


# -- the program -------------------------------------------------------------------------------------------------------


def test_one_wrong_bit_of_a_product_is_seen() -> None:
    import torch

    from shakedown.trials.workload.measures.parts import wrong_rows
    from shakedown.trials.workload.registry import Place

    place = Place("cpu", torch.device("cpu"))

    def corrupt(left: Any, right: Any) -> Any:
        product = torch.matmul(left, right)
        product[17, 5] += 1
        return product

    assert wrong_rows(place, torch.matmul, torch.float32, 128) == 0
    assert wrong_rows(place, torch.matmul, torch.bfloat16, 128) == 0
    assert wrong_rows(place, corrupt, torch.bfloat16, 128) == 1


HANGS = '''
"""A device that does not answer, and a host that does."""

import time
from ..registry import Measured, trial


@trial(on="device", figures={"*": "GB/s"})
def first(place):
    """It hangs in its second repetition."""
    if hasattr(place, "again"):
        time.sleep(600)
    place.again = True
    yield Measured("speed", 1.0)


@trial(on="device", figures={"*": "GB/s"})
def second(place):
    """It comes after what hangs."""
    yield Measured("speed", 2.0)


@trial(on="host", figures={"*": "GB/s"})
def third(place):
    """It is of another part."""
    yield Measured("speed", 3.0)
'''


def test_a_hung_part_is_ended_and_the_others_are_measured(tmp_path: Path) -> None:
    folder = tmp_path / "workload"
    shutil.copytree(WORKLOAD, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "measures/aaa.py").write_text(HANGS)
    asked = {"trials": ["first", "second", "third"], "gpus": 0, "ranks": 2, "repetitions": 2, "seconds": 0.01}
    (tmp_path / "request.json").write_text(json.dumps({**asked, "limit_s": 4, "start_s": 120}))
    command = [sys.executable, str(folder / "run.py"), str(tmp_path / "request.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = read_log("n", done.stdout.splitlines())
    assert found.over and not found.wrong
    states_of = {(each.trial, each.repetition, each.figure): each.state for each in found.readings}
    assert states_of == {
        ("first", 1, "speed"): "ok",
        ("second", 1, "speed"): "ok",
        ("first", 2, ""): "timeout",
        ("third", 1, "speed"): "ok",
        ("third", 2, "speed"): "ok",
    }
