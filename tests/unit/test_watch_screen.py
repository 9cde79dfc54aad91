"""A run on the screen of whoever watches it: a cell for each node, over a pseudo terminal and at many sizes."""

from __future__ import annotations

import io
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from shakedown.jobs.launch import Event
from shakedown.runner.demo.play import Demo
from shakedown.runner.demo.scenario import Scenario, faults
from shakedown.runs.directory import RunDirectory, RunNode
from shakedown.runs.watch import notes as notes_module
from shakedown.runs.watch.notes import Note, Notes, NotesReader
from shakedown.runs.watch.picture import Cell, Picture, legend, rows
from shakedown.runs.watch.screen import drawn
from shakedown.state.findings import Finding, Verdict
from tests.plans import small
from tests.screens import Program, Screen
from tests.unit.test_watch import begun, ends, trains

NAMES = [f"node{number:02d}" for number in range(1, 65)]
SHAKEDOWN = str(Path(sys.executable).parent / "shakedown")
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b2J\u202egnp\r\n\x1b[?1049l" + "x" * 3000


@pytest.fixture(autouse=True)
def _all_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "EVERY_S", 0.0)


def rack(root: Path, names: list[str], racks: int = 4) -> tuple[RunDirectory, Notes]:
    directory, notes, record = begun(root)
    size = -(-len(names) // racks)
    record.nodes = [
        RunNode(name=name, group=f"rack{index // size}", verdict=Verdict.OK, part="examined")
        for index, name in enumerate(names)
    ]
    directory.save(record)
    return directory, notes


def picture_of(directory: RunDirectory) -> Picture:
    picture, reader = Picture(), NotesReader(directory.path)
    picture.begin(directory.load().nodes)
    for note in reader:
        picture.take(note)
    reader.close()
    return picture


def shown(picture: Picture, columns: int, lines: int, encoding: str = "utf-8") -> list[str]:
    """What a terminal of this size shows of the picture."""
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=out, width=columns, height=lines, force_terminal=True, highlight=False)
    console.print(drawn(picture, "20261123T000000-aaaaaa", "", console))
    out.flush()
    screen = Screen(columns, lines + 1)  # and the line below
    screen.feed(out.buffer.getvalue().decode(encoding).replace("\n", "\r\n"))  # type: ignore[attr-defined]
    assert not screen.text[-1], "one line too many"
    return screen.text[:-1]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Notes, Program]]:
    directory, notes = rack(tmp_path, NAMES)
    program = Program([SHAKEDOWN, "watch", str(directory.path)], 80, 24, {})
    yield notes, program
    program.close()
    notes.close()


def test_a_run_has_the_whole_screen_a_cell_for_each_node_and_a_rack_to_a_row(watched: tuple[Notes, Program]) -> None:
    notes, program = watched
    program.until(lambda screen: "rack3  ................" in screen.text)
    notes.note("stage", "thp: set it")
    notes.note("decision", "goes no further: " + HOSTILE, node="node18")
    notes.plan("together", small(3))
    trains(notes, 20)
    program.until(lambda screen: any("iteration 20/40 (50%) | 1,000 ms | ETA 0:00:20" in row for row in screen.text))
    text = program.screen.text
    assert program.screen.alternate and not program.screen.cursor and program.screen.colours
    assert text[0].startswith("run 20261123T000000-aaaaaa  rack.py, for 0:00:0")
    assert text[2:6] == [f"rack0  {'T' * 16}", f"rack1  TX{'T' * 14}", f"rack2  {'T' * 16}", f"rack3  {'T' * 16}"]
    assert text[6:8] == ["X 1 excluded   T 63 in a job", "excluded: node18"]
    assert text[10].startswith("loss         █▄▃▂▂▂▂▂▁▁") and text[10].endswith("▁ 0.5000")
    assert text[11].startswith("TFLOP/s/GPU  ▁▁▂▂▂▃▃") and text[11].endswith("█ 400.0")
    notes.taking("together")(Event("failure", "a rank was killed " + HOSTILE, "node17"))
    notes.taking("together")(Event("end", "failed: node17"))
    program.until(lambda screen: any(row.endswith("end: failed: node17") for row in screen.text))
    text = program.screen.text
    assert text[1].startswith("FIRST FAILURE node17: a rank was killed ") and text[4] == f"rack1  FX{'S' * 14}"
    assert "failed: node17" in text and "owned" not in "".join(text)
    program.resize(44, 18)
    program.until(lambda screen: f"rack3  {'S' * 16}" in screen.text and screen.text[-1] != "")
    text = program.screen.text
    assert text[1].startswith("FIRST FAILURE node17: a rank was killed") and text[4] == f"rack1  FX{'S' * 14}"


@pytest.mark.parametrize("way", ["Ctrl-C", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_given_back_and_the_run_goes_on(watched: tuple[Notes, Program], way: str | int) -> None:
    notes, program = watched
    program.until(lambda screen: screen.alternate and "rack3  ................" in screen.text)
    if isinstance(way, int):
        program.process.send_signal(way)
    else:
        program.type("\x03")
    assert program.end() == 130
    assert not program.screen.alternate and program.screen.cursor
    assert [row for row in program.screen.text if "the watching ends here; the run goes on" in row]
    notes.note("stage", "still there")


def test_the_last_picture_stays_above_the_verdict(watched: tuple[Notes, Program], tmp_path: Path) -> None:
    notes, program = watched
    program.until(lambda screen: screen.alternate)
    trains(notes, 40)
    directory = RunDirectory(tmp_path / "20261123T000000-aaaaaa")
    ends(directory, notes, directory.load())
    assert program.end() == 0
    text = program.screen.text
    assert not program.screen.alternate and program.screen.cursor
    at = text.index("verdict: ok")
    assert [row for row in text[:at] if "iteration 40/40 (100%)" in row] and text[at + 1].startswith("evidence:")


def test_without_colours_the_letters_say_it(tmp_path: Path) -> None:
    directory, notes = rack(tmp_path, NAMES)
    notes.taking("together")(Event("failure", "out of memory", "node17"))
    program = Program([SHAKEDOWN, "watch", str(directory.path)], 80, 24, {"NO_COLOR": "1"})
    try:
        program.until(lambda screen: f"rack1  F{'.' * 15}" in screen.text)
        assert not program.screen.colours
    finally:
        program.close()
        notes.close()


@pytest.fixture(scope="module", params=[1, 64, 512, 4096])
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Picture]:
    """The nodes of a rack of that size with long names, and its picture after three jobs: read once, drawn often."""
    count = request.param
    names = [f"node{number:04d}.dc1.example.com" for number in range(1, count + 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notes_module, "EVERY_S", 0.0)
        directory, notes = rack(tmp_path_factory.mktemp("crowd"), names, max(count // 18, 1))
        notes.begin("rack.py", [])
        for node in names[::50]:
            notes.note("decision", "goes no further: memlock \u2026 \U0001f600 \u4e2d\u6587" * 9, node=node)
        for job in ("pairs", "more", "together"):
            notes.plan(job, small(3))
            trains(notes, 20, job)
        trains(notes, 3, f"each/{names[0]}")
        notes.taking("together")(Event("failure", "lost", names[-1]))
        notes.note("wait", "waiting for 0:00:20: " + "long " * 99)
        notes.close()
    return names, picture_of(directory)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 12), (20, 6), (200, 60)])
def test_any_rack_fits_on_any_terminal(
    crowd: tuple[list[str], Picture], columns: int, lines: int, encoding: str
) -> None:
    names, picture = crowd
    count = len(names)
    text = shown(picture, columns, lines, encoding)
    assert text[1].startswith(f"FIRST FAILURE {names[-1]}"[: columns - 1])
    if lines >= 24:
        grid = [row for row in text if set(row.rpartition("  ")[2]) <= set(".TXF")]
        assert any("F" in row.rpartition("  ")[2] for row in grid)
        cells = sum(len(row.rpartition("  ")[2]) for row in grid)
        (each,) = [int(row.split()[2]) for row in text if row.startswith("one cell: ")] or [1]
        assert cells * each >= count and (count > 64 or cells == count)
        assert len([row for row in text if row[2:3] == ":"]) >= 3, "the last events"


def test_a_rack_is_a_group_of_the_inventory_or_what_the_names_show() -> None:
    def lines(names: list[str], groups: dict[str, str], width: int = 80, room: int = 8) -> list[str]:
        return [row.plain for row in rows(dict.fromkeys(names, Cell.DONE), groups, width, room)]

    names = [f"n{number:02d}" for number in range(1, 41)]
    assert lines(names[:20], {}) == [f"n[01-16]  {'+' * 16}", "n[17-20]  ++++"]
    groups = {name: "left" if index < 18 else "right" for index, name in enumerate(names)}
    assert lines(names, groups) == [f"left   {'+' * 18}", f"right  {'+' * 22}"]
    assert lines([f"n{number}.r{rack}" for rack in "12" for number in (1, 2)], {}) == ["n[1-2].r1  ++", "n[1-2].r2  ++"]
    assert lines(["r1n1", "r1n2", "r2n1", "r2n2"], dict.fromkeys(names, "all")) == ["r1n[1-2]  ++", "r2n[1-2]  ++"]
    assert lines([f"10.0.0.{number}" for number in range(4)], {}) == ["10.0.0.[0-3]  ++++"]
    assert lines([], {}) == []
    tight = lines(names, groups, width=31, room=4)
    assert tight == ["n[01-16]  ++++++++", "n[17-32]  ++++++++", "n[33-40]  ++++", "one cell: 2 nodes, the worst"]
    cells = dict.fromkeys(names, Cell.DONE) | {"n02": Cell.FAILED}
    assert next(row.plain for row in rows(cells, {}, 31, 4)) == "n[01-16]  F+++++++", "the worst of two"
    assert [row.plain for row in legend(cells, 80)] == ["F 1 failed   + 39 done   ", "failed: n02"]


def test_a_cell_follows_its_node(tmp_path: Path) -> None:
    directory, notes, record = begun(tmp_path)
    drift = Finding(name="memlock", node="a", verdict=Verdict.DRIFT)
    parts = {"a": (Verdict.DRIFT, "examined"), "b": (Verdict.OK, "examined"), "c": (Verdict.FAIL, "excluded")}
    parts |= {"d": (Verdict.UNKNOWN, "unreached"), "e": (Verdict.WARN, "examined")}
    record.nodes = [RunNode(name=name, verdict=verdict, part=part) for name, (verdict, part) in parts.items()]  # type: ignore[arg-type]
    directory.save(record)

    def cells() -> str:
        return "".join(cell.value[0] for cell in picture_of(directory).nodes.values())

    assert cells() == "D.F?."
    notes.again("a", ["memlock"], [drift])
    assert cells() == "D.F?."
    notes.again("a", ["memlock"], [drift.model_copy(update={"verdict": Verdict.OK})])
    assert cells() == "..F?."
    notes.plan("each/a", small(1))
    assert cells() == "T.F?."
    notes.taking("each/a")(Event("end", "completed: every rank exited with 0"))
    assert cells() == "+.F?."
    notes.plan("together", small(3))
    assert cells() == "TTF?T"
    notes.taking("together")(Event("failure", "no iteration within 600 s"))
    assert cells() == "TTF?T", "a hang is no node's"
    notes.taking("together")(Event("end", "failed: no iteration"))
    assert cells() == "SSF?S"
    notes.note("gate", "fail loss: rises", job="each/e", node="e", verdict=Verdict.FAIL)
    notes.note("gate", "ok ran", job="each/b", node="b", verdict=Verdict.OK)
    assert cells() == "SSF?F"
    notes.close()


def test_what_is_said_of_nodes_and_gates_is_bounded() -> None:
    picture = Picture()
    at = "2026-11-23T00:00:00Z"
    for number in range(9000):
        picture.take(Note(at=at, kind="decision", text="x", node=f"n{number}"))  # type: ignore[arg-type]
        picture.take(Note(at=at, kind="gate", text=f"fail g{number}", job=f"j{number}", verdict=Verdict.FAIL))  # type: ignore[arg-type]
    assert len(picture.nodes) == len(picture.gates) == 8192 and len(picture.events) == 40
    began = time.process_time()
    shown(picture, 80, 24)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("fault", ["gpu_hang", "rank_stops", "none"])
def test_the_demo_is_watched_as_a_run_is(tmp_path: Path, fault: str) -> None:
    """The failed node, and no other, has the cell of one that failed, also where a hang was seen at another node."""
    known = fault in faults()
    demo = Demo(Scenario.of(8, [fault] if known else [], 1), tmp_path, 1)
    demo.examine()
    directory = RunDirectory(tmp_path / demo.train().run_id)
    picture = picture_of(directory)
    failed = {name for name, cell in picture.nodes.items() if cell is Cell.FAILED}
    assert failed == (set(demo.scenario.placed[fault]) if known and faults()[fault].named else set())
    if not known:
        assert set(picture.nodes.values()) == {Cell.DONE} and picture.verdict is Verdict.OK
    text = shown(picture, 80, 24)
    assert text[0].startswith("run ") and "SIMULATED.py, for 0:0" in text[0]
    assert [row for row in text if row.startswith("gates: ")]
