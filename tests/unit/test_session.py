"""The record of a run, kept by the deploy: one that cannot be written is told, and no pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra.api import Config, Inventory, State

from shakedown.examination import Examination
from shakedown.findings import Verdict
from shakedown.runner.invocation import invocation
from shakedown.runner.session import Session
from shakedown.runs import RunDirectory
from shakedown.smoke.gates import Gate
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
