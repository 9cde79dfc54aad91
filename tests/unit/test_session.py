"""The record of a run, kept by the deploy: one that cannot be written is told, and no pass."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyinfra.api import Config, Inventory, State

from shakedown.checks.examination import Examination
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.results import JobResult, NodeResult
from shakedown.gates import Gate
from shakedown.jobs.launch import Job
from shakedown.ledger.entry import entry_of
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session
from shakedown.runner.training import elsewhere
from shakedown.runs.directory import RunDirectory
from shakedown.state.findings import Verdict
from tests.states import desired


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(invocation, "unrecorded", "")
    state = State()
    state.init(Inventory(([], {})), Config())
    opened = Session(state, Examination({}))
    opened.open_run().gates = [Gate(name="ran", verdict=Verdict.OK)]
    return opened


def in_the_way(session: Session) -> Path:
    """What makes every write of run.json fail, for root too."""
    assert session.directory is not None
    path = session.directory.path / ".run.json.part"
    path.mkdir()
    return path


def on_disk(session: Session) -> Verdict:
    assert session.directory is not None
    return RunDirectory(session.directory.path).load().verdict


def test_a_run_whose_record_is_kept_passes(session: Session) -> None:
    session.close()
    assert session.record is not None
    assert (session.record.verdict, on_disk(session), invocation.unrecorded) == (Verdict.OK, Verdict.OK, "")


def test_a_run_without_its_record_has_failed(session: Session) -> None:
    in_the_way(session)
    session.close()
    assert session.record is not None
    assert session.record.verdict == Verdict.FAIL
    assert on_disk(session) == Verdict.UNKNOWN
    assert "run.json.part" in invocation.unrecorded


def test_a_record_that_can_be_written_later_is_the_run_s(session: Session) -> None:
    path = in_the_way(session)
    session.close()
    path.rmdir()
    session.close()
    assert session.record is not None
    assert (session.record.verdict, on_disk(session), invocation.unrecorded) == (Verdict.OK, Verdict.OK, "")


def test_a_finished_record_is_not_written_again(session: Session) -> None:
    session.close()
    assert session.record is not None
    finished = session.record.finished_at
    session.record.gates = []
    session.close()
    assert (session.record.finished_at, session.record.verdict) == (finished, Verdict.OK)


def test_a_report_that_cannot_be_written_is_told_and_changes_no_verdict(session: Session) -> None:
    session.examination.desired = {"a": desired("cpu", None, reports=["junit", "markdown"])}
    assert session.directory is not None
    (session.directory.path / ".junit.xml.part").mkdir()
    session.close()
    session.write_reports()
    assert (on_disk(session), session.record and session.record.verdict) == (Verdict.OK, Verdict.OK)
    assert (session.directory.path / "report.md").read_text().startswith("**Passed")
    assert len(session.notices) == 1 and "junit.xml: this report could not be written" in session.notices[0]


AT = datetime(2026, 11, 24, tzinfo=UTC)
NODES = ("n1", "n2", "n3")


def ended(node: str, code: int | None, stopped: bool) -> NodeResult:
    return NodeResult(name=node, exit_code=code, started_at=AT, ended_at=AT, stopped=stopped, kept=[], notes=[])


def test_of_a_failed_training_every_view_marks_the_node_where_the_failure_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    state = State()
    state.init(Inventory((list(NODES), {})), Config())
    current = Session(state, Examination({}))
    monkeypatch.setattr(Examination, "verdict_of", lambda _self, _node: Verdict.OK)
    record = current.open_run()
    record.gates = [Gate(name="exit_codes", verdict=Verdict.FAIL)]
    results = [ended("n1", -9, True), ended("n2", -9, False), ended("n3", 1, False)]
    result = JobResult(
        run_id="r", outcome="failed", reason="", first_failure=None, failures=[], nodes=results,
        last_iteration=1, started_at=AT, finished_at=AT,
    )  # fmt: skip
    job = Job(make_plan=lambda: None, log_dir=tmp_path, result=result)  # type: ignore[arg-type,return-value]
    current.jobs.append(job)
    record.diagnosis = Diagnosis(
        job="together",
        name="killed",
        cause="a rank was killed",
        remedy="",
        confidence="certain",
        origin=("n2",),
        why="",
    )
    current.save()
    shown = {node.name: (node.verdict, node.exit_code, node.why) for node in record.nodes}
    assert shown == {
        "n1": (Verdict.OK, None, "stopped by the controller"),
        "n2": (Verdict.FAIL, -9, "failed: a rank was killed"),
        "n3": (Verdict.OK, 1, "ended with 1 after the failure began on n2"),
    }
    assert current.directory is not None
    rows = {row["node"]: (row["verdict"], row["why"]) for row in entry_of(record, {}, current.directory, {}).nodes}
    assert rows["n2"] == ("fail", "failed: a rank was killed") and rows["n1"] == ("ok", "stopped by the controller")
    assert elsewhere(current, "n2") == ""
    assert elsewhere(current, "n1") == "stopped by the controller: the failure began on n2"
    update = {"confidence": "undecided", "origin": (), "among": ("n2", "n3")}
    record.diagnosis = record.diagnosis.model_copy(update=update)
    stopped = "stopped by the controller; on which node the failure began is undecided"
    assert [elsewhere(current, node) for node in NODES] == [stopped, "", ""], "the others ended badly themselves"
    assert current.parts()["n2"] == (Verdict.UNKNOWN, "ended with -9")
    assert current.parts()["n1"] == (Verdict.UNKNOWN, "stopped by the controller")
