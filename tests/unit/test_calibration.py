"""Runs one after the other make a baseline; one that does not pass, and a signal, end it in words."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from shakedown.ledger import calibration
from shakedown.ledger.calibration import CalibrationError, Row, baselines_of, in_a_row, usual_seconds
from shakedown.ledger.store import open_ledger
from shakedown.report import formats
from shakedown.report.formats import Calibrated
from shakedown.runner.training import plan_of
from shakedown.runs.directory import JobRecord, RunDirectory
from tests import forks
from tests.unit.test_compared import a_run, earlier, figure, rack

STEADY = (386.1, 384.9, 385.4, 383.8, 385.9)
COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2]); sys.exit(int(sys.argv[3]))"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("SHAKEDOWN_LEDGER", raising=False)


def runs_of(*values: float) -> list[RunDirectory]:
    """Runs as they would be made, in the ledger too."""
    jobs = [JobRecord(plan=plan_of(rack()), figures=figure(value)) for value in values]
    found = [a_run(day, rack(), job) for day, job in enumerate(jobs)]
    for directory in found:
        open_ledger().add(directory)
    return found


def made(*runs: RunDirectory, code: int = 0) -> Callable[[Path], Sequence[str]]:
    """A command that stands for `shakedown run`: its record is the next one of these."""
    left = list(runs)
    return lambda file: [sys.executable, "-c", COPY, str(left.pop(0).path / "run.json"), str(file), str(code)]


def test_runs_make_a_baseline_with_its_uncertainty() -> None:
    said: list[str] = []
    done = in_a_row(made(*runs_of(*STEADY)), 5, 90.0, said.append)
    assert [record.run_id for record in done] == [f"2026090{day + 1}T000000-00000{day}" for day in range(5)]
    assert said[0].startswith("calibrate: run 1 of 5: about 8 minutes to go, until ") and len(said) == 5
    assert all("minute" not in line and "hour" not in line for line in said[1:]), (
        "from the second on, what the first took"
    )
    (row,) = baselines_of(done[-1])
    assert (row.job, row.metric, row.baseline.count) == ("together", "throughput_per_gpu", 5)
    assert row.baseline.centre == pytest.approx(385.2, abs=0.5) and row.baseline.error
    assert row.baseline.bound and 370 < row.baseline.bound < 383
    table, whole = shown([row], "table"), json.loads(shown([row], "json"))
    assert "at least" in table and "ROCm 6.4.1" in table
    assert whole["baselines"][0]["baseline"]["count"] == 5 and whole["runs"] == ["r"]


def shown(rows: list[Row], form: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        formats.write(Calibrated(["r"], rows), form)
    return out.getvalue()


def test_too_few_runs_are_told_and_earlier_ones_count() -> None:
    earlier([385.0] * 2, first=10)
    done = in_a_row(made(*runs_of(*STEADY[:2])), 2, None, lambda _: None)
    (row,) = baselines_of(done[-1])
    assert row.baseline.count == 4 and row.baseline.bound is None and "4 of 5 runs" in shown([row], "table")


@pytest.mark.parametrize("code", [1, 4])
def test_a_run_that_does_not_pass_ends_it(code: int) -> None:
    runs = runs_of(*STEADY[:3])
    passing, failing = made(runs[0]), made(runs[1], code=code)
    commands = iter([passing, failing])
    with pytest.raises(CalibrationError, match=rf"run 2 of 5 did not pass \(exit code {code}\)") as told:
        in_a_row(lambda file: next(commands)(file), 5, None, lambda _: None)
    assert told.value.code == code
    said = str(told.value)
    assert f"shakedown report {runs[1].path.name}" in said and "1 of 5 runs are in the ledger" in said


def test_a_run_without_a_record_or_a_place_in_the_ledger_is_none() -> None:
    with pytest.raises(CalibrationError, match="did not pass") as told:
        in_a_row(lambda _file: [sys.executable, "-c", ""], 1, None, lambda _: None)
    assert told.value.code == 4
    (run,) = runs_of(385.0)
    run.save(run.load().model_copy(update={"not_in_ledger": "not in the ledger: disk full"}))
    with pytest.raises(CalibrationError, match="disk full"):
        in_a_row(made(run), 1, None, lambda _: None)


def test_how_long_it_takes_is_known_from_the_ledger() -> None:
    assert usual_seconds("rack.py") is None
    runs_of(385.0)
    assert usual_seconds("rack.py") == 3600 and usual_seconds("other.py") is None


CHILD = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
pathlib.Path(sys.argv[1]).touch()
time.sleep(120)
"""
PARENT = """
import sys
from shakedown.ledger.calibration import CalibrationError, in_a_row
try:
    in_a_row(lambda _file: [sys.executable, "-c", sys.argv[1], sys.argv[2]], 3, None, print)
except CalibrationError as error:
    print(error)
    sys.exit(error.code)
"""


def test_a_signal_ends_the_run_under_way_and_then_the_rest(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", PARENT, CHILD, str(begun)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        end = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.05)
        parent.send_signal(signal.SIGINT)
        said, _ = parent.communicate(timeout=60)
    assert parent.returncode == 130 and "interrupted in run 1 of 3" in said and "run 2" not in said


def test_input_that_cannot_be_used_is_told_before_the_first_run(tmp_path: Path) -> None:
    inventory = tmp_path / "rack.py"
    inventory.write_text('nodes = (["@local"], {"gpu": "cpu", "smoke": {"recipe": "gpt-smal"}})\n')
    result = forks.called("shakedown", "calibrate", inventory)
    assert result.returncode == 2 and "gpt-smal" in result.stderr and "calibrate: run" not in result.stderr


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (0.0, ": no earlier run shows how long one takes"),
        (89.0, ": about 89 s to go, until 12:01"),
        (90.0, ": about 2 minutes to go, until 12:01"),
        (7200.0, ": about 120 minutes to go, until 14:00"),
    ],
)
def test_the_time_to_go_is_in_words_with_its_end(left_s: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2026, 11, 29, 12).astimezone()
    monkeypatch.setattr(calibration, "datetime", SimpleNamespace(now=lambda: noon))
    assert calibration._until(left_s) == words
