"""Runs are compared with those that the ledger has of the same job, and nodes with what they did alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyinfra.api import Config, Inventory, State

from shakedown import gates
from shakedown.checks.examination import Examination, Reading
from shakedown.cli import main
from shakedown.gates import Gate
from shakedown.gates.observed import Expected
from shakedown.ledger.compared import know_peers
from shakedown.ledger.store import open_ledger
from shakedown.logs.figures import Figure, Figures
from shakedown.logs.kept_logs import LogFile, LogQuota
from shakedown.logs.metrics import METRICS
from shakedown.report import outcomes, terminal
from shakedown.runner.comparison import compare_with_alone, compare_with_earlier
from shakedown.runner.session import Session
from shakedown.runner.training import plan_of
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunNode, RunRecord
from shakedown.runs.judging import judge_run
from shakedown.state.findings import Verdict
from tests.states import GIB, bare, desired, with_
from tests.unit.test_gates_baseline import rack_of

LOG = Path(__file__).parents[1] / "data" / "logs" / "rocm.log"
MEASURED = 1442.9  # TFLOP/s/GPU of the log
BASELINES = ("baseline.throughput_per_gpu", "baseline.throughput_per_gpu.mean")
BEGIN = datetime(2026, 9, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("SHAKEDOWN_LEDGER", raising=False)


def rack(nodes: int = 1, rocm: str = "6.4.1", **smoke: Any) -> Examination:
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    own = desired("cpu", None, smoke={"recipe": "gpt-small", "iterations": 20, **smoke})
    changes = {"memory.available_bytes": 8 * GIB, "rocm_version": rocm}
    states = {name: Reading(with_(bare(number + 1), changes)) for number, name in enumerate(names)}
    return Examination(dict.fromkeys(names, own), readings=states)


def figure(value: float) -> Figures:
    metric = METRICS["throughput_per_gpu"]
    return Figures(steady=17, throughput_per_gpu=Figure(metric=metric, value=value, mean=value, spread=1.0, count=17))


def with_mean(value: float) -> dict[str, float]:
    return {"throughput_per_gpu": value, "throughput_per_gpu.mean": value}


def a_run(day: int, examined: Examination, job: JobRecord, evidence: Evidence | None = None) -> RunDirectory:
    at = BEGIN + timedelta(days=day)
    directory = RunDirectory.create(f"{at:%Y%m%dT%H%M%S}-{day:06x}")
    record = RunRecord(
        run_id=directory.path.name,
        started_at=at.isoformat(),
        finished_at=(at + timedelta(hours=1)).isoformat(),
        inventory="rack.py",
        desired_digest="0",
        verdict=Verdict.OK,
        nodes=[RunNode(name=name, verdict=Verdict.OK, part="trained") for name in examined.states],
        gates=[Gate(name="ran", verdict=Verdict.OK, job=job.name, node=job.node)],
        jobs=[job],
    )
    directory.save(record, {job.name: evidence or Evidence()})
    for name, state in examined.states.items():
        directory.write(f"states/{name}.json", state.model_dump_json())
    return directory


def earlier(values: list[float], examined: Examination | None = None, first: int = 0, node: str | None = None) -> None:
    """Passes of a day each, in the ledger."""
    seen = examined or rack()
    for day, value in enumerate(values, first):
        job = JobRecord(node=node, plan=plan_of(seen, alone=node), figures=figure(value))
        open_ledger().add(a_run(day, seen, job))


def this_run(day: int = 60) -> RunDirectory:
    examined = rack()
    directory = a_run(day, examined, JobRecord(plan=plan_of(examined), logs={"node01": ["logs/node01/leader.log"]}))
    room = LogFile("leader.log", directory.logs / "node01" / "leader.log", LogQuota())
    room.write(LOG.read_bytes())
    room.size = room.kept
    kept = room.close().model_copy(update={"path": "logs/node01/leader.log"})
    directory.save(directory.load(), {"together": Evidence(exit_codes={"node01": 0}, logs={"node01": [kept]})})
    return directory


def judged(directory: RunDirectory, *options: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["judge", str(directory.path), "--format", "json", *options])
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def baseline_gates(found: dict[str, Any]) -> dict[str, str]:
    return {gate["name"]: gate["verdict"] for gate in found["gates"] if gate["name"].startswith("baseline")}


@pytest.mark.parametrize(("usual", "verdict", "code"), [(MEASURED, "ok", 0), (1.06 * MEASURED, "fail", 1)])
def test_a_run_is_judged_again_by_the_runs_before_it(usual: float, verdict: str, code: int) -> None:
    earlier([usual * (1 + 0.002 * number) for number in range(-4, 5)])
    earlier([2 * usual], first=90)  # after this run: it counts for none before it
    run = this_run()
    assert baseline_gates(judged(run)) == {}
    found = judged(run, "--baseline", code=code)
    assert baseline_gates(found) == dict.fromkeys(BASELINES, verdict)
    (gate,) = (each for each in found["gates"] if each["name"] == "baseline.throughput_per_gpu")
    assert "9 runs before" in gate["evidence"] and "ROCm 6.4.1" in gate["evidence"]
    assert {each["name"]: each["why"] for each in found["recorded"]}["mem_usage"] == "0 of 5 runs"


def test_another_rocm_is_another_baseline() -> None:
    earlier([2 * MEASURED] * 9, rack(rocm="6.3.0"))
    earlier([MEASURED] * 2, first=20)
    found = judged(this_run(), "--baseline")
    assert baseline_gates(found) == {}
    assert {each["name"]: each["why"] for each in found["recorded"]}["throughput_per_gpu"] == "2 of 5 runs"
    (note,) = found["notes"]
    assert "a new baseline begins with" in note and "9 with" in note and "ROCm 6.3.0" in note


def test_a_ledger_that_cannot_be_read_is_unknown_where_it_is_to_judge(tmp_path: Path) -> None:
    run = this_run()
    (tmp_path / "runs" / "ledger.sqlite").write_text("no database")
    found = judged(run, "--baseline", code=4)
    assert baseline_gates(found) == {"baseline_known": "unknown"}


@pytest.mark.parametrize(("key", "value"), [("at", "2026-09-01T00:00:00"), ("figures", {"throughput_per_gpu": "inf"})])
def test_evidence_of_earlier_runs_that_cannot_be_is_refused(key: str, value: Any) -> None:
    earlier([MEASURED] * 6)
    directory = this_run()
    evidence = directory.load_evidence()
    evidence["together"].past = compared(session(rack(baseline="judge"))).past
    directory.save(directory.load(), evidence)
    path = directory.path / "evidence.json"
    document = json.loads(path.read_text())
    document["jobs"]["together"]["past"]["earlier"][2][key] = value
    path.write_text(json.dumps(document))
    result = CliRunner().invoke(main, ["judge", str(directory.path)])
    assert result.exit_code == 2 and f"past.earlier.2.{key}" in result.output


def test_a_log_has_no_earlier_runs() -> None:
    result = CliRunner().invoke(main, ["judge", str(LOG), "--baseline"])
    assert result.exit_code == 2 and "--baseline is for a run" in result.output


def session(examined: Examination) -> Session:
    opened = Session(State(Inventory((list(examined.desired), {})), Config()), examined)
    opened.open_run()
    return opened


def compared(current: Session, **own: JobRecord) -> Evidence:
    assert current.record is not None
    current.record.jobs += own.values()
    job = JobRecord(plan=plan_of(current.examination), figures=figure(380.0))
    compare_with_earlier(current, [job])
    compare_with_alone(current, job, lambda node: plan_of(current.examination, alone=node))
    return current.evidence[job.name]


@pytest.mark.parametrize(("baseline", "asked"), [("judge", [*with_mean(1.0)]), ("record", []), ("off", None)])
def test_a_run_is_given_the_earlier_ones_as_the_desired_state_asks(baseline: str, asked: list[str] | None) -> None:
    earlier([400.0] * 6)
    given = compared(session(rack(baseline=baseline))).past
    assert (None if given is None else list(given.judged)) == asked
    assert given is None or len(given.earlier) == 6


def test_what_was_given_is_kept_and_judged_again_alike_whatever_the_ledger_has_since() -> None:
    earlier([1.06 * MEASURED] * 6)
    examined = rack(baseline="judge")
    directory, current = this_run(), session(examined)
    evidence = directory.load_evidence()
    evidence["together"].past = compared(current).past
    record = directory.load()
    record.gates = judge_run(directory, record, evidence)
    directory.save(record, evidence)
    (open_ledger().place.path or Path()).unlink()
    assert baseline_gates(judged(directory, code=1)) == dict.fromkeys(BASELINES, "fail")
    assert judge_run(directory, directory.load(), directory.load_evidence()) == record.gates


def test_a_ledger_that_cannot_be_read_is_told_and_decides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    current = session(rack())
    (tmp_path / "runs" / "ledger.sqlite").write_text("no database")
    given = compared(current).past
    assert given is not None and given.judged == {} and "cannot be read: ledger " in given.problem
    assert "cannot be read" in "".join(capsys.readouterr())
    assert [each.name for each in gates.judge(gates.Observed(expected=Expected(past=given)))] == []


def test_what_nodes_did_alone_comes_from_this_run_or_from_earlier_ones() -> None:
    examined = rack(2, scaling=0.9)
    earlier([300.0, 390.0, 410.0], examined, node="node02")
    current = session(examined)
    own = JobRecord(node="node01", plan=plan_of(examined, alone="node01"), figures=figure(400.0))
    given = compared(current, own=own).alone
    assert given is not None and given.share == 0.9
    one, two = given.nodes["node01"], given.nodes["node02"]
    assert one is not None and one.figures == with_mean(400.0) and one.runs == [current.record.run_id]  # type: ignore[union-attr]
    assert two is not None and two.figures == with_mean(390.0) and len(two.runs) == 3
    assert one.ranks == two.ranks == examined_ranks(examined)


def test_nodes_that_train_alone_know_the_noise_of_the_others_of_their_epoch() -> None:
    pasts = rack_of(0.04, nodes=8)
    know_peers(pasts)
    assert {past.peers["throughput_per_gpu"].nodes for past in pasts.values()} == {7}
    upgraded = {node: past.model_copy(update={"epoch": "another image"}) for node, past in list(pasts.items())[:4]}
    both = {**pasts, **upgraded}
    know_peers(both)
    assert {past.peers["throughput_per_gpu"].nodes for past in both.values()} == {3}


def examined_ranks(examined: Examination) -> int:
    return plan_of(examined, alone="node01").world_size


def test_a_node_of_which_nothing_is_known_alone_is_named() -> None:
    given = compared(session(rack(2, scaling=0.9))).alone
    assert given is not None and given.nodes == {"node01": None, "node02": None}
    assert compared(session(rack(2))).alone is None and compared(session(rack(1, scaling=0.9))).alone is None


def test_the_table_of_figures_says_what_earlier_runs_say() -> None:
    from shakedown.gates.baselines.judge import compare as against
    from shakedown.gates.baselines.model import Past

    earlier([400.0] * 6)
    past = compared(session(rack())).past or Past(judge=False)
    known = {"throughput_per_gpu": against(past, "throughput_per_gpu", 380.0, "at least")}
    console = terminal.console()
    console.width = 60
    with console.capture() as shown:
        console.print(outcomes.figures_table(figure(380.0), {}, baselines=known))
    assert "\nelapsed_time_per_iteration " in shown.get(), "a name is not broken, however narrow the screen"
    console.width = 200
    with console.capture() as shown:
        console.print(outcomes.figures_table(figure(380.0), {}, baselines=known))
    assert "this run is worse: at least 3" in (text := " ".join(shown.get().split())) and "by 6 runs around 400" in text
