"""Around the search: slow groups, hints, the jobs of groups, what later runs make of its result."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shakedown.evidence.results import JobResult
from shakedown.gates.model import Gate
from shakedown.isolation import groups, hints, knowledge, pace, strategy, trainings, tree
from shakedown.isolation.causes import Cause
from shakedown.isolation.knowledge import Knowledge
from shakedown.isolation.trainings import ITERATIONS, _outcome, judge_training, scale_to_group
from shakedown.isolation.tree import left_out, verdict_of
from shakedown.logs.kept_logs import KeptLog
from shakedown.runs.directory import RunDirectory
from shakedown.runs.isolation import Group, Isolation, Problem, Result, Suspect, Training
from shakedown.state.findings import Finding, Verdict
from shakedown.trials.models import Matrix, Named, TrialsRecord
from tests.states import desired


def training(number: int, *nodes: str, step_ms: float | None = 100, outcome: str = "pass") -> Training:
    group = Group(id=f"1.{number}", nodes=nodes, purpose="groups")
    return Training.model_validate({"group": group, "outcome": outcome, "step_ms": step_ms})


def newest(trainings: list[Training], earlier: list[Training]) -> Training:
    return pace.judge_rounds([earlier, trainings])[-1][0]


def paced(*steps: float, of: int = 2) -> list[str]:
    made = [training(n, *(f"n{n}-{m}" for m in range(of)), step_ms=step) for n, step in enumerate(steps)]
    return [each.outcome for each in pace.judge_rounds([made])[0]]


@pytest.mark.parametrize(
    ("steps", "outcomes"),
    [
        ((100, 101, 99, 250), ["pass", "pass", "pass", "fail"]),
        ((100, 101, 99, 125), ["pass", "pass", "pass", "unknown"]),  # near the threshold: again
        ((100, 101, 99, 115), ["pass"] * 4),
        ((100, 101, 99, 98, 102, 20), ["pass"] * 6),  # faster is no fault
        ((100, 101, 250), ["pass", "pass", "unknown"]),  # too few to compare with
        # They differ as much by themselves: that tells neither good nor bad.
        ((60, 200, 90, 150, 260, 180), ["pass", "unknown", "pass", "unknown", "unknown", "unknown"]),
        ((100, 300, 101, 300, 99, 300), ["pass", "fail"] * 3),  # of few nodes, half of all groups have the slow one
    ],
)
def test_a_slow_group_fails_where_the_others_agree(steps: tuple[float, ...], outcomes: list[str]) -> None:
    assert paced(*steps) == outcomes


def test_groups_of_another_size_tell_what_they_can_and_earlier_rounds_are_peers() -> None:
    large = [training(n, *(f"n{n}-{m}" for m in range(9)), step_ms=100) for n in range(4)]
    small = training(9, "a", "b", step_ms=300)
    told = newest([small], large)  # it has less to tell each other, and no reason to be slower
    assert told.outcome == "fail"
    assert told.why == "slow: 300 ms an iteration, 100 ms in the faster of 4 groups of as many nodes or more"
    small = training(9, "a", "b", step_ms=100)
    assert newest([small], large).outcome == "pass"
    whole = [f"n{n}" for n in range(64)]
    assert newest([training(1, *whole, step_ms=145)], large).outcome == "pass"  # a larger ring, and little more
    far = newest([training(1, *whole, step_ms=300)], large)
    assert (far.outcome, far.doubt) == ("unknown", "peers")
    assert "300 ms an iteration of 64 nodes, 100 ms in the faster of 4 smaller groups" in far.why
    small = training(9, "a", "b", step_ms=300)
    earlier = [training(n, f"n{n}", f"m{n}", step_ms=100) for n in range(4)]
    slow = newest([small], earlier)
    assert slow.outcome == "fail"
    assert slow.why == "slow: 300 ms an iteration, 100 ms in the faster of 4 groups of like size"
    assert newest([training(9, "a", "b", step_ms=None)], earlier).outcome == "pass"


def test_near_the_threshold_two_of_three_decide() -> None:
    usual = [training(n, f"n{n}", f"m{n}", step_ms=100) for n in range(4)]

    def decided(*steps: float) -> list[tuple[str, str | None]]:
        rounds = [usual]
        for step in steps:
            rounds = pace.judge_rounds([*rounds, [training(9, "a", "b", step_ms=step)]])
        return [(each.outcome, each.doubt) for [each] in rounds[1:]]

    near = ("unknown", "near")
    assert decided(125, 140, 125) == [near, near, ("pass", None)]
    assert decided(125, 140, 150) == [near, near, ("fail", None)]
    assert decided(140, 140) == [near, ("fail", None)]
    assert decided(125, 101) == [near, ("pass", None)]


def test_what_had_too_few_beside_it_is_judged_again_when_there_are_more() -> None:
    first = [training(1, "a", "b", step_ms=100), training(2, "c", "d", step_ms=300)]
    rounds = pace.judge_rounds([first])
    assert (rounds[0][1].outcome, rounds[0][1].doubt) == ("unknown", "peers")
    rounds = pace.judge_rounds([*rounds, [training(3, "a", "e", step_ms=99), training(4, "b", "f", step_ms=101)]])
    assert [each.outcome for each in rounds[0]] == ["pass", "fail"]
    assert rounds[0][1].why == "slow: 300 ms an iteration, 100 ms in the faster of 3 groups of like size"


def finding(node: str, verdict: Verdict, name: str = "pcie.width") -> Finding:
    return Finding(name=name, node=node, verdict=verdict, wanted=16, actual=8)


def test_what_one_node_has_is_a_hint_and_what_all_have_is_none() -> None:
    nodes = ["n1", "n2", "n3"]
    shared = [finding(node, Verdict.DRIFT, "thp") for node in nodes]
    found = list(hints.from_findings([*shared, finding("n2", Verdict.WARN), finding("n1", Verdict.OK)]))
    assert [(hint.node, hint.source, hint.text) for hint in found] == [("n2", "finding pcie.width", "8")]
    assert hints.strongest(found, nodes) == found
    assert hints.strongest(found, ["n1", "n3"]) == []
    everywhere = [hints.Hint(node=node, source="x") for node in nodes]
    assert hints.strongest(everywhere, nodes) == []


def test_of_two_hints_the_stronger_counts() -> None:
    found = [*hints.from_findings([finding("n2", Verdict.WARN), finding("n2", Verdict.FAIL, "link")])]
    [kept] = hints.strongest(found, ["n1", "n2", "n3"])
    assert kept.source == "finding link"


@pytest.mark.parametrize(("batch", "expected"), [({"global_batch_size": 128}, 32), ({}, None)])
def test_a_group_has_its_share_of_the_batch_and_few_iterations(batch: dict[str, int], expected: int | None) -> None:
    smoke = {"recipe": "gpt-small", "options": batch | {"train_iters": 500}, "min_nodes": 6, "scope": "each"}
    both = desired("cpu", None, smoke=smoke)
    made = scale_to_group({"n1": both, "n2": both}, 8)["n1"].smoke
    assert made is not None
    assert made.options.get("global_batch_size") == expected
    assert (made.iterations, "train_iters" in made.options) == (ITERATIONS, False)
    assert (made.min_nodes, made.scope) == (None, ["together"])


@pytest.mark.parametrize(("nodes", "expected"), [(7, 8), (3, 32)])
def test_a_batch_keeps_its_steps_in_a_group_of_another_size(nodes: int, expected: int) -> None:
    smoke = {"recipe": "gpt-small", "options": {"global_batch_size": 100}}
    made = scale_to_group({"n1": desired("cpu", None, smoke=smoke)}, nodes)["n1"].smoke
    assert made is not None
    assert made.options["global_batch_size"] == expected


RESULT = Result(
    suspects=[
        Suspect(kind="node", nodes=("n3",), trainings=("2.1", "3.2", "4.1"), probability=0.999),
        Suspect(kind="link", nodes=("n1", "n2"), trainings=("5.1", "6.1"), probability=0.999),
    ],
    cleared=["n1", "n2", "n4"],
    undecided={"n5": "bad with a probability of 0.1"},
    conclusion="the run passes without n3",
)


def keep(root: Path, run_id: str, inventory: str, result: Result | None = RESULT) -> None:
    folder = root / run_id
    folder.mkdir()
    isolation = Isolation(inventory=inventory, problem=Problem(nodes=["n1", "n2", "n3", "n4", "n5"]), result=result)
    (folder / "isolation.json").write_text(isolation.model_dump_json())


def test_what_a_search_says_of_a_node() -> None:
    assert verdict_of("n3", RESULT) == (Verdict.FAIL, "suspect: n3, which failed in 2.1, 3.2, 4.1")
    assert verdict_of("n2", RESULT)[0] == Verdict.FAIL
    assert verdict_of("n4", RESULT) == (Verdict.OK, "")
    assert verdict_of("n5", RESULT)[0] == Verdict.UNKNOWN
    assert verdict_of("n6", RESULT)[0] == verdict_of("n4", None)[0] == Verdict.UNKNOWN


def test_suspects_of_the_last_search_over_the_inventory_are_left_out(tmp_path: Path) -> None:
    nodes = ["n1", "n2", "n3", "n4"]
    assert left_out(nodes, "rack.py", tmp_path) == {}
    keep(tmp_path, "20260101T000000-aaaaaa", "rack.py")
    keep(tmp_path, "20260102T000000-bbbbbb", "other.py", Result(conclusion="no node was found bad"))
    keep(tmp_path, "20260103T000000-cccccc", "rack.py", None)  # not finished
    (tmp_path / "20260104T000000-dddddd").mkdir()
    (tmp_path / "20260104T000000-dddddd" / "isolation.json").write_text("{")
    found = left_out(nodes, "rack.py", tmp_path)
    assert found == {
        "n3": "suspect (n3) of the search in run 20260101T000000-aaaaaa",
        "n2": "suspect (link n1 - n2) of the search in run 20260101T000000-aaaaaa",
    }
    keep(tmp_path, "20260105T000000-eeeeee", "rack.py", Result(conclusion="no node was found bad", cleared=nodes))
    assert left_out(nodes, "rack.py", tmp_path) == {}


def test_a_file_that_is_no_search_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "isolation.json").write_text('{"problem": {"nodes": ["a", "a"]}}')
    with pytest.raises(ValueError, match=r"isolation\.json: problem: .*listed twice"):
        RunDirectory(tmp_path).load_isolation()


def test_a_report_shows_the_search_and_what_it_came_to() -> None:
    from bench.plays import play
    from shakedown.report.formats import Run
    from shakedown.report.overview import overview
    from shakedown.report.page.render import page_of
    from shakedown.runs.directory import RunRecord, now

    isolation = play(16, 1, 4).isolation
    record = RunRecord(
        run_id="20260101T000000-aaaaaa",
        started_at=now(),
        finished_at=now(),
        inventory="rack.py",
        desired_digest="0",
        verdict=Verdict.FAIL,
        isolation=isolation,
    )
    shown = overview(Run(record))
    assert "the run passes without node0010" in shown.sentence
    html = page_of(Run(record))
    assert "Search for bad nodes" in html
    assert "suspect    node0010" in html


def test_a_diagnosis_and_trials_are_hints() -> None:
    from shakedown.evidence.diagnosis.model import Diagnosis
    from shakedown.trials.models import Judged, Matrix, Named, TrialsRecord

    diagnosis = Diagnosis(
        name="x", cause="c", remedy="r", confidence="likely", origin=("n1",), among=("n2", "n3"), why="it was first"
    )
    found = {hint.node: hint.odds for hint in hints.from_diagnosis(diagnosis)}
    assert found["n1"] > found["n2"] == found["n3"] > 1
    base = {"trial": "gemm", "figure": "tflops", "part": "gpu0", "unit": "TFLOP/s", "values": [1.0], "median": 1.0}
    judged = [
        Judged.model_validate({**base, "node": node, "standing": standing})
        for node, standing in (("n1", "named"), ("n2", "ok"), ("n3", "notice"))
    ]
    link = Named(kind="link", what="n4 > n5", nodes=["n4", "n5"], figure="bandwidth", cells=1, of=1, evidence="slow")
    matrix = Matrix(figure="bandwidth", unit="GB/s", nodes=["n4", "n5"], cells={}, named=[link])
    trials = TrialsRecord(asked=["gemm"], repetitions=1, judged=judged, matrices=[matrix])
    assert {hint.node for hint in hints.from_trials(trials)} == {"n1", "n4", "n5"}


def test_a_node_whose_samples_stand_apart_from_those_of_its_peers_is_a_hint() -> None:
    from shakedown.evidence.telemetry.summary import NodeTelemetry, Spread

    def sampled(clock: float, pressure: float = 0.2, **more: Any) -> NodeTelemetry:
        at = {"gpu/*/gfx_clock_mhz": clock, "pressure/cpu_some_s": pressure}
        channels = {name: Spread(min=value, median=value, max=value) for name, value in at.items()}
        return NodeTelemetry(window="steady iterations", seconds=100, samples=50, channels=channels, gpus=8, **more)

    nodes = {f"n{number}": sampled(1900 + number) for number in range(5)}
    assert list(hints.from_telemetry(nodes | {"n5": sampled(1890, pressure=2.0)})) == []
    (slow,) = hints.from_telemetry(nodes | {"n5": sampled(1400)})
    assert (slow.node, slow.source) == ("n5", "telemetry")
    assert slow.text == "gpu/*/gfx_clock_mhz: 1400 MHz, the median of 5 others is 1902"
    (hot,) = hints.from_telemetry(nodes | {"n5": sampled(1903, throttled={"gpu3": {"thermal": 30.0}})})
    assert hot.text == "gpu/*/throttle_thermal_s: 30 % of the time, the median of 5 others is 0"
    (busy,) = hints.from_telemetry(nodes | {"n5": sampled(1903, pressure=60)})
    assert "pressure/cpu_some_s: 60 % of the time" in busy.text
    unread = sampled(1903, throttle_unread={"thermal": [f"gpu{number}" for number in range(8)]})
    assert list(hints.from_telemetry(nodes | {"n5": unread})) == []
    assert list(hints.from_telemetry({"n1": sampled(1900), "n2": sampled(1900), "n3": sampled(900)})) == []  # too few


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [("ok", "pass"), ("ok warn", "pass"), ("ok unknown", "unknown"), ("unknown fail", "fail"), ("", "pass")],
)
def test_a_training_passes_on_gates_that_are_known_to_hold(verdicts: str, outcome: str) -> None:
    gates = [Gate(name=f"g{n}", verdict=Verdict(word)) for n, word in enumerate(verdicts.split())]
    result: Any = SimpleNamespace(first_failure=None)
    judgement: Any = SimpleNamespace(gates=gates)
    assert _outcome(judgement, result)[0] == outcome


@pytest.mark.parametrize(("kind", "nodes", "more"), [("node", ["n1"], True), ("link", ["n1", "n2"], False)])
def test_a_trial_that_names_one_node_says_more_than_one_that_names_two(kind: Any, nodes: list[str], more: bool) -> None:
    named = Named(kind=kind, what="x", nodes=nodes, figure="bus", cells=3, of=3, evidence="slow")
    matrix = Matrix(figure="bus", unit="GB/s", nodes=["n1", "n2", "n3"], cells={}, named=[named])
    found = list(hints.from_trials(TrialsRecord(asked=["pairs"], repetitions=3, matrices=[matrix])))
    assert [hint.node for hint in found] == nodes
    (failed,) = hints.from_findings([finding("n1", Verdict.FAIL)])
    assert [hint.odds > failed.odds for hint in found] == [more] * len(nodes)


def test_a_group_that_failed_before_is_the_parent_of_itself_and_of_its_part() -> None:
    failed = training(1, "n1", "n2", "n3", outcome="fail")
    knowledge = Knowledge(Problem(nodes=["n1", "n2", "n3", "n4"]), [[failed]])
    assert groups._group(knowledge, ("n1", "n2", "n3"), "2.1").parent == "1.1"
    assert groups._group(knowledge, ("n1", "n2"), "2.1").parent == "1.1"
    assert groups._group(knowledge, ("n1", "n4"), "2.1").parent is None


def test_a_node_without_partner_joins_another_half_than_that_of_its_group() -> None:
    knowledge: Any = SimpleNamespace(problem=SimpleNamespace(smallest=2), cleared=set())
    same, other = groups._Wanted(["a", "b"], "half", "1.2"), groups._Wanted(["c", "d", "e"], "half", "1.1")
    assert groups._joined(knowledge, [same, other], [groups._Wanted(["f"], "half", "1.2")]) == []
    assert (same.nodes, other.nodes) == (["a", "b"], ["c", "d", "e", "f"])


def test_a_larger_group_is_held_against_three_smaller_ones() -> None:
    smaller = [training(n, *(f"n{n}-{m}" for m in range(4)), step_ms=100) for n in range(3)]
    whole = training(9, *(f"n{n}" for n in range(16)), step_ms=300)
    assert newest([whole], smaller).doubt == "peers"
    assert newest([whole], smaller[:2]).outcome == "pass"


@pytest.mark.parametrize(("probable", "nodes", "shared"), [(2, 4, False), (3, 6, True), (3, 9, False), (4, 9, True)])
def test_many_probable_nodes_are_one_cause_and_two_are_suspects(probable: int, nodes: int, shared: bool) -> None:
    chances = {f"n{n}": 0.99 if n < probable else 0.01 for n in range(nodes)}
    knowledge: Any = SimpleNamespace(probability=chances, decisive=[], problem=SimpleNamespace(nodes=list(chances)))
    assert bool(strategy._systemic(knowledge)) is shared


@pytest.mark.parametrize(("outcomes", "named"), [("fail pass", 0), ("fail fail", 1)])
def test_a_shared_cause_needs_two_failures_of_the_search_itself(
    monkeypatch: pytest.MonkeyPatch, outcomes: str, named: int
) -> None:
    """The failed run that the search follows is one failure of everything that it may be."""
    sure = SimpleNamespace(likeliest=lambda _number: [(0.999, Cause("trunk", (0, 1)))])
    monkeypatch.setattr(knowledge, "posterior", lambda *_: sure)
    racks = {f"n{n}": f"r{n // 2}" for n in range(4)}
    rounds = [[training(n, "n0", "n1", "n2", "n3", outcome=outcome)] for n, outcome in enumerate(outcomes.split(), 1)]
    known = Knowledge(Problem(nodes=list(racks), racks=racks, failed=True), rounds)
    assert len(known._believed(known.problem.noise).shared) == named


def test_of_a_round_the_trainings_that_did_not_pass_are_shown() -> None:
    passed, failed = training(1, "n1", "n2"), training(2, "n3", "n4", outcome="fail")
    shown = list(tree.round_line([passed, failed]))
    assert [line.split()[0] for line in shown] == ["round", "fail"] and "1 of 2 trainings passed" in shown[0]
    assert len(list(tree.round_line([passed]))) == 2, "the only training of a round is shown"


def test_a_gate_is_a_hint_where_it_failed_for_one_node() -> None:
    found = [("a", "n1", "fail"), ("b", "n1", "ok"), ("c", None, "fail")]
    record = SimpleNamespace(
        findings=[], trials=None, diagnosis=None, jobs=[],
        gates=[Gate(name=name, node=node, verdict=Verdict(word)) for name, node, word in found],
    )  # fmt: skip
    told = list(hints.from_run(record))  # type: ignore[arg-type]
    assert [(hint.node, hint.source) for hint in told] == [("n1", "gate a")]


@pytest.mark.parametrize("outcome", ["interrupted", "not started"])
def test_a_training_that_a_person_stopped_shows_nothing(tmp_path: Path, outcome: Any) -> None:
    started = datetime(2026, 11, 1, tzinfo=UTC)
    result = JobResult(
        run_id="r", outcome=outcome, reason="Ctrl-C", first_failure=None, failures=[], nodes=[], last_iteration=None,
        started_at=started, finished_at=started,
    )  # fmt: skip
    group = Group(id="1.1", nodes=("n1", "n2"), purpose="groups")
    job: Any = SimpleNamespace(result=result, plan=object(), log_dir=tmp_path / "logs", error=None)
    directory: Any = SimpleNamespace(path=tmp_path)
    stopped = judge_training(group, job, directory)  # a judgement of this plan would raise
    assert (stopped.outcome, stopped.why) == ("unknown", "Ctrl-C")


@pytest.mark.parametrize("step", [1500.0, None])
def test_a_training_is_kept_with_the_time_of_its_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float | None
) -> None:
    figure = SimpleNamespace(value=step) if step else None
    judged = SimpleNamespace(gates=[], figures=SimpleNamespace(elapsed_time_per_iteration=figure))
    monkeypatch.setattr(trainings, "_judgement", lambda *_: judged)
    at = datetime(2026, 11, 1, tzinfo=UTC)
    result = JobResult(
        run_id="r", outcome="completed", reason="", first_failure=None, failures=[], nodes=[], last_iteration=5,
        started_at=at, finished_at=at,
    )  # fmt: skip
    job: Any = SimpleNamespace(result=result, plan=object(), log_dir=tmp_path / "logs", error=None)
    directory: Any = SimpleNamespace(path=tmp_path)
    made = judge_training(Group(id="1.1", nodes=("n1", "n2"), purpose="groups"), job, directory)
    assert (made.outcome, made.step_ms) == ("pass", step)


def test_only_small_groups_make_partners() -> None:
    made = [training(1, "n1", "n2"), training(2, "n1", "n3", "n4", "n5", "n2")]
    knowledge = Knowledge(Problem(nodes=[f"n{n}" for n in range(1, 6)]), [made])
    assert knowledge.problem.smallest == 2
    assert knowledge.partners["n1"] == {"n1": 1, "n2": 1} and not knowledge.partners["n3"]


@pytest.mark.parametrize("kind", ["uplink", "trunk"])
def test_a_likely_uplink_is_tried_alone_and_all_others_without_it(kind: Any) -> None:
    rack = np.array([0, 0, 1, 1, 2, 2])
    which = (1,) if kind == "uplink" else (1, 2)
    made = [tuple(labels) for labels in groups._alone([Cause(kind, which)], rack, 6)]
    assert made[0] == tuple(0 if part in which else -1 for part in rack)
    assert (0, 0, -1, -1, 0, 0) in made and (1, 1, 0, 0, 1, 1) in made


@pytest.mark.parametrize(("failed", "passed", "silent", "may"), [(2, 2, 1, True), (2, 3, 0, False), (0, 0, 2, False)])
def test_a_group_is_tried_five_times_at_most_and_twice_without_a_result(
    failed: int, passed: int, silent: int, may: bool
) -> None:
    known: Any = SimpleNamespace(tally=lambda nodes: (failed, passed), without_result=lambda nodes: [None] * silent)
    assert groups._may_try(known, frozenset({"node1"})) is may


def test_a_training_is_judged_by_its_logs_and_one_without_a_log_by_none(tmp_path: Path) -> None:
    directory = RunDirectory.create("20260101T000000-aaaaaa", tmp_path)
    (directory.logs / "n").mkdir(parents=True)
    (directory.logs / "n/leader.log").write_text("one line\n")
    size = len("one line\n")
    digest = hashlib.sha256(b"one line\n").hexdigest()
    kept = KeptLog(name="leader.log", path=str(directory.logs / "n/leader.log"), size=size, kept=size, sha256=digest)
    log = trainings._leader([kept], directory)
    assert log is not None and log.lines == 1
    assert trainings._leader([], directory) is None
