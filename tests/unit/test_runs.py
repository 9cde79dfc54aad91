"""The run directory: whole or not at all, and judged again offline to the same verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shakedown.findings import Finding, Verdict
from shakedown.runs import Evidence, JobRecord, RunDirectory, RunNode, RunRecord, judge_job, judge_run, new_run_id, now
from shakedown.smoke.gates.model import TOGETHER
from tests.plans import small

LOGS = Path(__file__).parents[1] / "data/logs"
COUNTERS = {"node01": {"ethtool/eth0/rx_errors": 0}}


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(new_run_id(), tmp_path)


def a_run(directory: RunDirectory, log: str = "rocm.log", **evidence: object) -> tuple[RunRecord, Evidence]:
    (directory.logs / "node01").mkdir()
    (directory.logs / "node01/leader.log").write_bytes((LOGS / log).read_bytes())
    record = RunRecord(run_id=directory.path.name, started_at=now(), inventory="i.py", desired_digest="0")
    logs = ["logs/node01/leader.log"]
    record.nodes = [RunNode(name="node01", verdict=Verdict.OK, part="trained", logs=logs)]
    record.jobs = [JobRecord(plan=small(iterations=20), logs={"node01": logs})]
    known = {"exit_codes": {"node01": 0}, "counters_before": COUNTERS, "counters_after": COUNTERS}
    return record, Evidence.model_validate(known | evidence)


def verdicts(directory: RunDirectory, record: RunRecord, evidence: Evidence) -> dict[str, str]:
    return {gate.name: gate.verdict.value for gate in judge_run(directory, record, {TOGETHER: evidence})}


def test_latest_is_the_newest(tmp_path: Path) -> None:
    RunDirectory.create("20260101T000000-aaaaaa", tmp_path)
    second = RunDirectory.create("20260101T000001-bbbbbb", tmp_path)
    assert (tmp_path / "latest").resolve() == second.path.resolve()


def test_a_record_comes_back_as_it_was_and_has_the_documented_top_level(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    record.findings = [Finding(name="thp", node="node01", verdict=Verdict.DRIFT, wanted="always", actual="never")]
    (job,) = record.jobs
    judged = judge_job(directory, job, evidence)
    record.gates, job.iterations, job.figures = judged.gates, judged.iterations, judged.figures
    directory.save(record, {TOGETHER: evidence})
    assert directory.load() == record
    assert directory.load_evidence() == {TOGETHER: evidence}
    documented = "schema_version run_id started_at finished_at inventory desired_digest verdict nodes findings gates"
    document = json.loads((directory.path / "run.json").read_text())
    assert list(document) == [*documented.split(), "jobs", "plan", "iterations", "figures"]
    for part in ("findings", "gates"):
        assert {"name", "verdict", "wanted", "actual", "unit", "evidence", "remedy"} <= set(document[part][0])
    assert len((directory.path / "iterations.jsonl").read_text().splitlines()) == 20


def test_a_record_from_before_a_run_had_jobs_is_judged_as_it_was(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    (job,) = record.jobs
    judged = judge_job(directory, job, evidence)
    record.gates, job.iterations, job.figures = judged.gates, judged.iterations, judged.figures
    document = record.model_dump(mode="json")
    del document["jobs"]
    document["gates"] = [{k: v for k, v in gate.items() if k not in ("job", "node")} for gate in document["gates"]]
    (directory.path / "run.json").write_text(json.dumps(document))
    (directory.path / "evidence.json").write_text(evidence.model_dump_json())
    assert directory.load() == record
    assert judge_run(directory, directory.load(), directory.load_evidence()) == judged.gates


def test_a_good_run_passes_and_each_piece_of_evidence_can_fail_it(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    assert set(verdicts(directory, record, evidence).values()) == {"ok"}

    def worse(**changes: object) -> dict[str, str]:
        return verdicts(directory, record, evidence.model_copy(update=changes))

    assert worse(exit_codes={"node01": 1})["exit_codes"] == "fail"
    assert worse(exit_codes={})["exit_codes"] == "unknown"
    risen = {"node01": {"ethtool/eth0/rx_errors": 1}}
    assert worse(counters_after=risen)["counters"] == "fail"
    assert worse(counters_after={})["counters"] == "unknown"
    assert worse(stopped="node01: stalled")["ran_to_its_end"] == "fail"


def test_a_log_that_is_gone_or_names_a_nan_does_not_pass(tmp_path: Path) -> None:
    first = RunDirectory.create("20260101T000000-aaaaaa", tmp_path)
    record, evidence = a_run(first, "nan_loss.log")
    assert verdicts(first, record, evidence)["loss_finite"] == "fail"
    (first.path / "logs/node01/leader.log").unlink()
    assert verdicts(first, record, evidence)["iterations_complete"] == "unknown"


def test_a_run_that_never_started_says_one_thing(directory: RunDirectory) -> None:
    record, evidence = a_run(directory, stopped="node01: another run holds this node")
    record.jobs[0].logs = {}
    assert verdicts(directory, record, evidence) == {"ran_to_its_end": "fail"}


@pytest.mark.parametrize("text", ["", '{"schema_version": 1, "run_id": "x"', "[]", '{"schema_version": 99}'])
def test_a_record_cut_short_or_of_another_schema_is_refused(directory: RunDirectory, text: str) -> None:
    (directory.path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json"):
        directory.load()


def test_a_write_that_fails_leaves_the_old_file_whole(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write("plan.txt", "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        directory.write("plan.txt", "new")
    assert (directory.path / "plan.txt").read_text() == "old"
    assert [path.name for path in directory.path.glob(".*")] == []


def test_a_run_nobody_finished_is_not_a_pass() -> None:
    record = RunRecord(run_id="x", started_at=now(), inventory="i.py", desired_digest="0")
    assert (record.verdict, record.finished_at) == (Verdict.UNKNOWN, None)
