"""A run that somebody watches from another terminal: over a recorded directory that a thread or a process adds to."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from shakedown.cli import main
from shakedown.gates import Gate
from shakedown.jobs.launch import Event
from shakedown.logs.iterations import Iteration
from shakedown.runs.directory import JobRecord, RunDirectory, RunRecord
from shakedown.runs.watch import notes as notes_module
from shakedown.runs.watch.notes import NAME, Notes, NotesReader
from shakedown.runs.watch.picture import Picture
from shakedown.runs.watch.screen import Gone, Lines, follow, line_of_nodes, sparkline
from shakedown.state.findings import Finding, Verdict
from tests.plans import small


def begun(root: Path, run_id: str = "20261123T000000-aaaaaa") -> tuple[RunDirectory, Notes, RunRecord]:
    directory = RunDirectory.create(run_id, root)
    notes = Notes(directory.path, lambda text: text.replace("hunter22", "(masked)"))
    record = RunRecord(run_id=run_id, started_at="t", inventory="rack.py", desired_digest="0")
    directory.save(record)
    notes.note("run", "rack.py")
    return directory, notes, record


def trains(notes: Notes, count: int, job: str = "together", total: int = 40, **more: float) -> None:
    take = notes.taking(job)
    for number in range(1, count + 1):
        values = {"elapsed_ms": 1000.0, "lm_loss": 10.0 / number, "tflops_per_gpu": 380.0 + number, **more}
        take(Event("iteration", "", "b", Iteration(iteration=number, total_iterations=total, **values)))  # type: ignore[arg-type]


def ends(directory: RunDirectory, notes: Notes, record: RunRecord, verdict: Verdict = Verdict.OK) -> None:
    record.finished_at, record.verdict = "later", verdict
    directory.save(record)
    notes.note("verdict", verdict)
    notes.close()


@pytest.fixture(autouse=True)
def _all_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "EVERY_S", 0.0)


class _Out(io.StringIO):
    """Where the picture goes. What is to go on while somebody watches begins with the first that is shown."""

    def __init__(self, meanwhile: threading.Thread | None) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def write(self, text: str) -> int:
        if self._meanwhile is not None and self._meanwhile.ident is None:
            self._meanwhile.start()
        return super().write(text)


def watched(directory: RunDirectory, meanwhile: threading.Thread | None = None, **terminal: bool) -> str:
    out = _Out(meanwhile)
    follow(directory.path, Console(file=out, width=100, highlight=False, **terminal), poll_s=0.01)  # type: ignore[arg-type]
    if meanwhile is not None:
        meanwhile.join()
    return out.getvalue()


def meanwhile(directory: RunDirectory, notes: Notes, record: RunRecord) -> threading.Thread:
    """A run that goes on while somebody watches."""

    def goes_on() -> None:
        try:
            notes.note("stage", "thp: set it")
            notes.note("wait", "waiting for 0:00:20, since 12:00:00: thp: set it, on node[1-3]")
            notes.plan("together", small(3))
            trains(notes, 20)
            notes.taking("together")(Event("failure", "HF_TOKEN=hunter22 was refused\x1b[2J", "a"))
            notes.taking("together")(Event("end", "failed: a: refused"))
            ends(directory, notes, record, Verdict.FAIL)
        finally:
            notes.close()  # or the watcher would wait for ever

    return threading.Thread(target=goes_on)


def test_lines_come_while_the_run_goes_on_and_stop_with_its_verdict(tmp_path: Path) -> None:
    directory, notes, record = begun(tmp_path)
    thread = meanwhile(directory, notes, record)
    lines = watched(directory, thread).splitlines()
    assert [line.partition(" ")[2].split(":")[0] for line in lines[:4]] == [
        "run began, rack.py",
        "stage",
        "waiting for 0",
        "job",
    ]
    text = "\n".join(lines)
    assert "gpt-small on node[01-03]" in text
    assert "iteration 1/40 | loss 10.0000 | 381.0 TFLOP/s/GPU | 1,000 ms | ETA 0:00:39" in text
    assert "FAILED a: HF_TOKEN=(masked) was refused" in text and "\x1b" not in text and "hunter22" not in text


def test_a_terminal_gets_one_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    directory, notes, record = begun(tmp_path)
    thread = meanwhile(directory, notes, record)
    text = watched(directory, thread, force_terminal=True)
    last = text[text.rindex("run 20261123T000000") :]
    assert "iteration 20/40" in last and "█" in last and "0.5000" in last and "FIRST FAILURE a: HF_TOKEN=" in last


def test_a_dumb_terminal_gets_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    directory, notes, record = begun(tmp_path)
    trains(notes, 3)
    notes.note("stage", "the end")
    thread = threading.Thread(target=ends, args=(directory, notes, record))
    text = watched(directory, thread, force_terminal=True)
    assert "stage: the end\n" in text and "\x1b[2K" not in text


KILLED = """
import sys, time
from pathlib import Path
from shakedown.runs.watch.notes import Notes
notes = Notes(Path(sys.argv[1]))
notes.note("run", "rack.py")
print("noted", flush=True)
time.sleep(600)
"""


def test_a_controller_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    run_id = "20261123T000000-bbbbbb"
    directory = RunDirectory.create(run_id, tmp_path)
    with subprocess.Popen([sys.executable, "-c", KILLED, directory.path], stdout=subprocess.PIPE) as controller:
        try:
            assert controller.stdout is not None and controller.stdout.readline() == b"noted\n"
            directory.save(RunRecord(run_id=run_id, started_at="t", inventory="rack.py", desired_digest="0"))
            reader = NotesReader(directory.path)
            assert not reader.writer_is_gone()
            found: list[str] = []

            def watch() -> None:
                try:
                    watched(directory)
                except Gone as gone:
                    found.append(str(gone))

            watcher = threading.Thread(target=watch)
            watcher.start()
            time.sleep(0.1)
            assert watcher.is_alive()
        finally:
            os.kill(controller.pid, signal.SIGKILL)
    watcher.join(60)
    assert len(found) == 1 and "its controller has ended without a verdict" in found[0]
    assert reader.writer_is_gone()
    reader.close()
    ran = CliRunner().invoke(main, ["watch", str(directory.path)])
    assert ran.exit_code == 4 and f"verdict: unknown\n  run {run_id}: its controller has ended" in ran.stdout


def test_a_controller_that_hangs_is_said_to(tmp_path: Path) -> None:
    directory, notes, _ = begun(tmp_path)
    reader = NotesReader(directory.path)
    os.utime(directory.path / NAME, (time.time() - 300,) * 2)
    assert reader.silent_s() > 299 and not reader.writer_is_gone()
    notes.beat()
    assert reader.silent_s() < 200
    reader.close()
    notes.close()


def test_a_pipe_of_few_characters_gets_those_that_it_knows(tmp_path: Path) -> None:
    directory, notes, _ = begun(tmp_path)
    notes.note("failure", "gr\u00f6\u00dfer \u2026 \U0001f600", node="a")
    notes.close()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "shakedown"), "watch", str(directory.path)],
        capture_output=True, text=True, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 4 and "FAILED a: gr??er ? ?" in done.stdout and not done.stderr, done.stderr


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.OK, 0), (Verdict.FAIL, 1), (Verdict.DRIFT, 3)])
def test_a_run_that_is_over_exits_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    ends(*begun(tmp_path), verdict)
    ran = CliRunner().invoke(main, ["watch"])
    assert ran.exit_code == code, ran.output
    assert ran.stdout.startswith(f"verdict: {verdict}\n") and "evidence: " in ran.stdout


def test_a_run_without_events_and_no_run_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    assert CliRunner().invoke(main, ["watch"]).exit_code == 2
    directory, notes, record = begun(tmp_path)
    notes.close()
    (directory.path / NAME).unlink()
    ran = CliRunner().invoke(main, ["watch"])
    assert ran.exit_code == 4 and "older version" in ran.stdout
    record.finished_at, record.verdict = "later", Verdict.OK
    directory.save(record)
    assert CliRunner().invoke(main, ["watch"]).exit_code == 0
    os.mkfifo(directory.path / NAME)
    ran = CliRunner().invoke(main, ["watch"])
    assert ran.exit_code == 2 and "it is not a file" in ran.stderr


def test_hostile_events_are_bounded_cleaned_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    directory, notes, record = begun(tmp_path)
    ends(directory, notes, record)
    with (directory.path / NAME).open("ab") as file:
        file.write(b'{"at":"2026-11-23T00:00:00Z","kind":"stage","text":"a\\u001b[2Jb\\u202e"}\n')
        file.write(b"[" * 200_000 + b"\nnull\n\xff\xfe\n{}\n" + b'{"at":1e999,"kind":"stage"}\n')
        file.write(b'{"at":"2026-11-23T00:00:00Z","kind":"failure","text":"x","node":"' + b"n" * 70_000 + b'"}\n')
        file.write(
            b'{"at":"0001-01-01T00:00:00+14:00","kind":"run"}\n{"at":"9999-12-31T23:59:59-14:00","kind":"run"}\n'
        )
    reader = NotesReader(directory.path)
    found = list(reader)
    assert [note.kind for note in found] == ["run", "verdict", "stage"] and "\x1b" not in found[-1].text
    assert reader.unreadable == 8
    reader.close()
    ran = CliRunner().invoke(main, ["watch"])
    assert ran.exit_code == 0 and "8 lines of the run's events could not be read" in ran.stdout


def test_what_is_noted_is_private_bounded_and_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes_module, "ITERATIONS_BYTES", 2000)
    directory, notes, _ = begun(tmp_path)
    path = directory.path / NAME
    assert path.stat().st_mode & 0o777 == 0o600
    trains(notes, 200)
    assert path.stat().st_size <= 2000
    notes.note("failure", "the one thing to know" + "x" * 10_000)
    reader = NotesReader(directory.path)
    assert [note.kind for note in reader][-1] == "failure"
    reader.close()
    notes.close()
    notes.note("stage", "after the end")


def test_findings_and_gates_are_events_of_the_run(tmp_path: Path) -> None:
    """Whoever follows a run sees what was found and how each gate was judged, and a line for a gate that failed."""
    directory = RunDirectory.create("20261123T000000-aaaaaa", tmp_path)
    notes = Notes(directory.path, lambda text: text.replace("hunter22", "(masked)"))
    wrong = Finding(name="memlock", node="a", verdict=Verdict.DRIFT, wanted="unlimited", actual="8192 KiB")
    notes.begin("rack.py", [wrong, wrong.model_copy(update={"name": "thp", "verdict": Verdict.OK})])
    notes.gates([Gate(name="ran", verdict=Verdict.OK), Gate(name="loss", verdict=Verdict.FAIL, evidence="hunter22")])
    reader = NotesReader(directory.path)
    read = [(note.kind, note.node, note.text) for note in reader]
    reader.close()
    notes.close()
    assert read[0] == ("run", None, "rack.py")
    assert read[1] == ("finding", "a", str(wrong))
    assert read[2:] == [("gate", None, "ok ran"), ("gate", None, "fail loss: (masked)")]
    lines: list[str] = []
    picture, screen = Picture(), Lines(lines.append)
    reader = NotesReader(directory.path)
    for note in reader:
        picture.take(note)
        screen.take(note, picture)
    reader.close()
    assert [line.partition(" ")[2] for line in lines] == ["run began, rack.py", "gate: fail loss: (masked)"]


def test_the_log_as_json_is_the_same_stream(tmp_path: Path) -> None:
    """$SHAKEDOWN_LOG_FORMAT=json: each event of the run, with run, node and time, one object a line."""
    program = f"""
from pathlib import Path
from shakedown.common.log import configure
from shakedown.runs.watch.notes import Notes
configure("json"); configure("json")
folder = Path({str(tmp_path)!r}, "20261123T000000-aaaaaa"); folder.mkdir()
notes = Notes(folder); notes.note("failure", "it broke", job="together", node="a"); notes.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    (event,) = [json.loads(line) for line in done.stderr.splitlines()]
    (noted,) = [json.loads(line) for line in (tmp_path / "20261123T000000-aaaaaa" / NAME).read_text().splitlines()]
    assert event["event"] == noted.pop("kind") and event["run"] == "20261123T000000-aaaaaa"
    assert {key: event[key] for key in noted} == noted and noted["node"] == "a"


def test_a_full_disk_ends_the_notes_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, notes, _ = begun(tmp_path)
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123
        own, notes._file = notes._file, full  # type: ignore[assignment]
        notes.note("stage", "lost")
        notes._file = own
    notes.note("stage", "nothing is noted any more")
    reader = NotesReader(directory.path)
    assert [note.kind for note in reader] == ["run"] and not reader.writer_is_gone()
    reader.close()
    notes.close()


def test_iterations_of_one_job_are_thinned_out_but_for_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes_module, "EVERY_S", 1000.0)
    directory, notes, _ = begun(tmp_path)
    trains(notes, 40)
    reader = NotesReader(directory.path)
    assert [note.iteration.iteration for note in reader if note.iteration] == [1, 40]
    reader.close()
    notes.close()


def test_the_nodes_own_jobs_are_one_line(tmp_path: Path) -> None:
    directory, notes, record = begun(tmp_path)
    for number in range(1, 101):
        trains(notes, 1 + number % 3, f"each/node{number:03}")
        if number < 50:
            notes.taking(f"each/node{number:03}")(Event("end", "completed"))
    notes.taking("each/node077")(Event("failure", "out of memory", "node077"))
    ends(directory, notes, record)
    picture, reader = Picture(), NotesReader(directory.path)
    for note in reader:
        picture.take(note)
    reader.close()
    line = line_of_nodes(picture.of_nodes["each"])
    assert line.startswith("each node alone: 49 of 100 done, failed: node077, slowest node051 at iteration 1/40")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([5.0, 5.0], "▅▅"),
        ([1, None, float("nan"), float("inf"), 2], "▁!!!█"),
        ([None], "!"),
        ([-1e308, 1e308], "▅▅"),
        ([], ""),
    ],
)
def test_a_curve_is_a_line_of_bars(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def test_ctrl_c_ends_the_watching_alone(tmp_path: Path) -> None:
    directory, notes, _ = begun(tmp_path)
    command = [str(Path(sys.executable).parent / "shakedown"), "watch", str(directory.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        try:
            assert watcher.stdout is not None
            assert "run began" in watcher.stdout.readline()
            watcher.send_signal(signal.SIGINT)
            _, err = watcher.communicate(timeout=60)
        finally:
            watcher.kill()
    assert watcher.returncode == 130 and "the run goes on" in err and "Traceback" not in err
    notes.note("stage", "still there")
    reader = NotesReader(directory.path)
    assert [note.text for note in reader][-1] == "still there" and not reader.writer_is_gone()
    reader.close()
    notes.close()


@pytest.mark.parametrize("command", ["report", "judge", "bundle"])
def test_a_run_without_an_end_is_said_to_go_on_or_to_have_been_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    directory, notes, record = begun(tmp_path / "runs")
    record.jobs = [JobRecord(plan=small(iterations=20))]
    directory.save(record, {})
    going = CliRunner().invoke(main, [command, str(directory.path)])
    words = f"the run goes on, and this is what it has kept so far; to follow it: shakedown watch {directory.path.name}"
    assert words in " ".join(going.output.split())  # a screen has folded lines
    notes.close()
    for path in tmp_path.glob("*.tar.gz"):
        path.unlink()
    killed = CliRunner().invoke(main, [command, str(directory.path)])
    assert "its controller was killed" in " ".join(killed.output.split())
