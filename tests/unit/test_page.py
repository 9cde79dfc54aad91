"""The page's parts: times with their zone, figures at the top, squares, the headline, and the fleet of a ledger."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shakedown.common.text import decimal
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.gates import Gate
from shakedown.ledger.history import fleet
from shakedown.ledger.store import open_ledger
from shakedown.report.formats import Findings, Judged, Remembered, Run, text_of
from shakedown.report.overview import overview
from shakedown.report.page import rows, squares
from shakedown.report.page.squares import tiles
from shakedown.runs.directory import STATEMENT, RunDirectory, RunNode
from shakedown.state.findings import Finding, Remedy, Verdict
from shakedown.state.node import Unreadable
from tests.reports import a_failed_run, a_full_run, a_rack, a_run, a_run_for_acceptance, drifted, finding
from tests.states import healthy


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1370.0, 3, "1370"),
        (1372.4, 3, "1370"),
        (12345678.9, 6, "12345700"),
        (0.00001234, 3, "0.0000123"),
        (12.5, 6, "12.5"),
        (0.0, 6, "0"),
        (1e300, 3, "1·10³⁰⁰"),
        (float("nan"), 6, "nan"),
        (float("-inf"), 6, "-inf"),
        (None, 6, "-"),
    ],
)
def test_numbers_have_no_exponent(value: float | None, digits: int, text: str) -> None:
    assert decimal(value, digits) == text


def test_a_page_has_no_number_with_an_exponent(tmp_path: Path) -> None:
    run = a_full_run(tmp_path)
    (job,) = run.record.jobs
    assert job.plan and job.figures and job.figures.throughput_per_gpu
    figures = job.figures.throughput_per_gpu.model_copy(
        update={"value": 13_700_000.0, "mean": 1.37e7, "spread": 1373.0}
    )
    job.figures = job.figures.model_copy(update={"throughput_per_gpu": figures})
    job.plan = job.plan.model_copy(update={"expect": {"throughput_per_gpu": 1.2e7}})
    wide = Finding(name="x", node="node01", verdict=Verdict.FAIL, wanted=1.5e7, actual=2.5e-7, unit="s", evidence="e")
    run.record.findings.append(wide)
    text = re.sub(r"data:image[^\"]*|sha256-[A-Za-z0-9+/=]*", "", text_of(run, "html").partition('id="logs"')[0])
    assert not re.search(r"\d[eE][+-]\d", text)
    assert "13700000" in text and "at least 12000000" in text and "1370" in text


def test_times_are_those_of_the_site_with_their_zone(berlin: None, tmp_path: Path) -> None:
    text = text_of(a_run(tmp_path), "html")
    assert '<time datetime="2026-11-23T05:00:00+01:00">2026-11-23 05:00:00 CET</time>' in text
    assert "CEST" in squares.local("2026-07-01T12:00:00+00:00")
    assert squares.local("<b>") == "&lt;b&gt;" and "14:00:00 CEST" in squares.local("2026-07-01T12:00:00")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("2026-11-23T04:09:12+00:00", "9 min 12 s"),
        ("2026-11-23T04:00:00+00:00", "0 s"),
        ("2026-11-24T06:00:30+00:00", "1 d 2 h"),
        ("2026-11-23T03:00:00+00:00", ""),
        ("", ""),
    ],
)
def test_a_span_is_two_units(last: str, words: str) -> None:
    assert squares.span("2026-11-23T04:00:00+00:00", last) == words


def test_the_figures_at_the_top(tmp_path: Path) -> None:
    run = a_run(tmp_path, nodes=3)
    record = run.record
    record.findings += [finding(node.name, "gpu_count", actual=8) for node in record.nodes]
    record.findings += [finding(node.name, "rocm_version", actual="6.4.1") for node in record.nodes[:2]]
    record.findings.append(finding("node03", "rocm_version", Verdict.FAIL, "6.3.0"))
    record.nodes[0] = RunNode(name="node01", verdict=Verdict.FAIL, part="excluded", why="failed: gpu_count")
    record.nodes[1] = RunNode(name="node02", verdict=Verdict.OK, part="trained", stopped=True, why="stopped")
    (job,) = record.jobs
    assert job.plan and job.figures and job.figures.throughput_per_gpu
    expected = job.figures.throughput_per_gpu.mean * 2
    job.plan = job.plan.model_copy(
        update={"expect": {"throughput_per_gpu": expected}, "gpus": ["mi300x"], "image": "rocm/x@sha256:" + "5" * 64}
    )
    shown = overview(run)
    made = {tile.label: tile for tile in tiles(shown, squares.squares(shown, {}))}
    assert list(made) == ["Nodes passed", "Throughput", "Duration", "GPUs", "Image", "ROCm"]
    assert (made["Nodes passed"].value, made["Nodes passed"].note) == ("1 of 3", "1 excluded, 1 stopped")
    assert made["Throughput"].unit == "TFLOP/s/GPU" and made["Throughput"].note.endswith(": 50%")
    assert (made["Duration"].value, made["GPUs"].value) == ("10 min", "24 MI300X")
    assert (made["Image"].value, made["Image"].note) == ("rocm/x", "sha256:555555555555")
    assert (made["ROCm"].value, made["ROCm"].note) == ("6.4.1, 6.3.0", "2 versions")


def test_racks_are_the_inventory_s_and_the_worst_comes_first() -> None:
    document = a_rack()
    half = {found.node: "rack8" if found.node > "node128" else "rack7" for found in document.findings}
    shown = overview(Findings(document.verdict, 512, document.findings, groups=half))
    first, second = squares.racks(squares.squares(shown, {"node129.rack7": ("c1", "gpu_count")}), shown.groups)
    assert (first.name, first.words) == ("rack8", "385 nodes: 382 ok, 2 unknown, 1 fail")
    assert second.name == "rack7" and second.squares[16].word == "drift"
    assert (first.squares[1].label, first.squares[1].link) == ("129", "c1")


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["node1.rack7", "node2.rack7"], ["1", "2"]),
        (["10.0.0.17", "10.0.0.18"], ["17", "18"]),
        (["10.0.0.17"], ["17"]),
        (["10.0.1.17", "10.0.2.17"], ["1.17", "2.17"]),
        (["10.100.1.17", "10.200.1.17"], ["", ""]),
        (["fd00::1a", "fd00::2:ab"], ["1a", "ab"]),
        (["fd00::1:1", "fd00::2:1"], ["1:1", "2:1"]),
        (["gpu-red.rack7", "gpu-rose.rack7"], ["red", "rose"]),
        (["node01a-ib", "node01b-ib", "node02a-ib"], ["01a", "01b", "02a"]),
        (["node1", "node11"], ["1", "11"]),
        (["head", "gpu-a"], ["head", "gpu-a"]),
        (["a", "aa"], ["a", "aa"]),
    ],
)
def test_a_square_has_the_number_that_tells_its_node_from_others(names: list[str], labels: list[str]) -> None:
    (rack,) = squares.racks([squares.Square(name, Verdict.OK, "ok") for name in names], {})
    assert [square.label for square in rack.squares] == labels


def test_what_did_not_run_to_its_end_is_neither_passed_nor_failed(tmp_path: Path) -> None:
    run = a_failed_run(tmp_path)
    run.record.nodes[0] = RunNode(name="node01", verdict=Verdict.OK, part="trained", stopped=True, why="stopped")
    run.record.nodes[1] = RunNode(name="node02", verdict=Verdict.OK, part="excluded", why="a suspect")
    made = squares.squares(overview(run), {})
    assert [(square.verdict, square.word) for square in made[:2]] == [(None, "stopped"), (None, "excluded")]


def test_a_suspect_of_a_search_is_the_headline_and_a_bad_square(tmp_path: Path) -> None:
    shown = overview(a_full_run(tmp_path))
    assert shown.headline and (shown.headline.where, shown.headline.sure) == ("node02", "node02 is suspect.")
    assert squares.squares(shown, {})[1].word == "suspect"


def test_the_headline_is_the_diagnosis_or_the_worst_cause(tmp_path: Path) -> None:
    text = text_of(a_rack(), "html")
    assert re.search(r"<h1[^>]*>.*Failed: <span[^>]*>node129.rack7</span>: gpu_count: 7 of 8", text)
    found = Diagnosis(
        name="x", cause="a GPU <died>", remedy="swap it", confidence="certain", origin=("node01",), why="w"
    )
    text = text_of(Judged(Verdict.FAIL, [Gate(name="g", verdict=Verdict.FAIL)], diagnosis=found), "html")
    assert re.search(
        r"<h1[^>]*>.*<span[^>]*>node01</span>: a GPU &lt;died&gt;</h1>\n<p class=\"sure\">certain: w</p>", text
    )
    well = text_of(Findings(Verdict.OK, 1, [finding("a", "x")]), "html")
    assert "Passed: the node is in the desired state" in well and 'class="sure"' not in well


def test_a_gate_in_the_headline_has_its_value_and_unit() -> None:
    gate = Gate(
        name="throughput_per_gpu", verdict=Verdict.FAIL, wanted=580.0, actual=373.62, unit="TFLOP/s/GPU",
        evidence="wanted at least 580 TFLOP/s/GPU: mean of 17 steady iterations", remedy="look at the clocks",
    )  # fmt: skip
    headline = overview(Judged(Verdict.FAIL, [gate])).headline
    assert headline and headline.what == "throughput_per_gpu: 373.62 TFLOP/s/GPU, wanted at least 580 TFLOP/s/GPU"


def test_what_only_follows_is_folded(tmp_path: Path) -> None:
    ended = Gate(name="exit_codes", verdict=Verdict.FAIL, job="together")
    echo = Gate(name="iterations_complete", verdict=Verdict.FAIL, job="together")
    shown = overview(Judged(Verdict.FAIL, [ended, echo]))
    assert [action.what for action in shown.actions] == ["exit_codes"] and list(shown.following) == [echo]
    text = text_of(Judged(Verdict.FAIL, [ended, echo]), "html")
    assert "<summary>1 gate did not pass because the job had ended early</summary>" in text


def test_causes_are_cards_with_what_follows_from_them() -> None:
    found = [
        Finding(name="gpu_count", node="n1", verdict=Verdict.FAIL, wanted=8, actual=7, remedy=Remedy(text="reseat it")),
        Finding(name="kfd_topology", node="n1", verdict=Verdict.FAIL, wanted=8, actual=7, evidence="<x>"),
    ]
    text = text_of(Findings(Verdict.FAIL, 1, found, inventory="rack.py"), "html")
    assert text.count('<li id="c') == 1 and "1 check that follows" in text and "kfd_topology" in text
    assert "Reseat it." in text and "shakedown run rack.py --limit n1" in text


def test_each_plot_has_what_is_expected_or_says_that_nothing_is(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (job,) = run.record.jobs
    assert job.plan
    job.plan = job.plan.model_copy(update={"expect": {"throughput_per_gpu": 400.0}})
    alts = re.findall(r'<img src="[^"]*" alt="([^"]* by iteration;[^"]*)"', text_of(run, "html"))
    assert "has to fall from its start" in alts[0]
    assert any("expected at least 400" in alt for alt in alts)
    assert any(re.search(r"time of an iteration .*; at most \d+.*, from 400 TFLOP/s/GPU", alt) for alt in alts)
    job.plan = job.plan.model_copy(update={"expect": {}})
    assert "of which nothing is expected" in text_of(run, "html")


def test_the_fleet_is_each_node_s_newest_runs(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    for day, verdict in (("22", Verdict.FAIL), ("23", Verdict.OK)):
        run = a_run(tmp_path / day, nodes=2)
        assert run.directory
        run.record.run_id = f"202611{day}T040000-abcdef"
        run.record.started_at = f"2026-11-{day}T04:00:00+00:00"
        run.record.nodes[1].verdict, run.record.nodes[1].why = verdict, "" if verdict == "ok" else "<b>broken"
        ledger.add(RunDirectory(run.directory), run.record)
    one, two = fleet(ledger)
    assert [seen.verdict for seen in two] == [Verdict.OK, Verdict.FAIL] and one[0].inventory == "rack.py"
    assert [seen.run_id[:8] for seen in one] == ["20261123", "20261122"]
    text = text_of(Remembered(overview_history(ledger), [one, two]), "html")
    assert 'aria-label="node02: ok"' in text and "&lt;b&gt;broken" in text and "rack.py" in text
    assert 'href="#run-20261122T040000-abcdef"' in text and 'id="run-20261122T040000-abcdef"' in text


def test_a_node_that_failed_last_is_in_the_tile_of_a_ledger_whose_last_run_passed() -> None:
    shown = overview(Findings(Verdict.OK, 2, []))
    seen = [squares.Square("n1", Verdict.FAIL, "fail"), squares.Square("n2", Verdict.OK, "ok")]
    (tile,) = [tile for tile in tiles(shown, seen) if tile.label.startswith("Nodes")]
    assert (tile.value, tile.note, tile.verdict) == ("1 of 2", "1 fail", Verdict.FAIL)
    assert next(t.verdict for t in tiles(shown, seen[1:]) if t.label.startswith("Nodes")) is Verdict.OK


def overview_history(ledger: object) -> object:
    from shakedown.ledger.history import Asked, history

    return history(ledger, Asked())  # type: ignore[arg-type]


def test_a_page_of_a_run_is_bounded(tmp_path: Path) -> None:
    """2,500 nodes with long names, each of which failed in its own words and has a finding of its own."""
    run: Run = a_run(tmp_path)
    names = [f"{'n' * 40}{number:05d}.rack{number // 16}" for number in range(2_500)]
    run.record.nodes = [
        RunNode(
            name=name, group=name.partition(".")[2], verdict=Verdict.FAIL, part="trained", why=f"{name} {'x' * 200}"
        )
        for name in names
    ]
    run.record.findings = [
        finding(name, f"check{number % 900}", Verdict.FAIL, f"{number} {'y' * 100}")
        for number, name in enumerate(names)
    ]
    run.record.gates = [
        Gate(name=f"g{number}", verdict=Verdict.FAIL, node=name, job=f"each/{name}", evidence="z" * 300)
        for number, name in enumerate(names)
    ]
    text = text_of(run, "html")
    assert len(text.encode()) < 2_000_000 and text.count('class="fail"') > 2_500
    assert "more causes are not on this page" in text


@pytest.mark.parametrize(("nodes", "names", "searched"), [(12, 1, False), (13, 1, True), (2, 12, False), (2, 13, True)])
def test_a_page_of_more_than_a_person_looks_through_has_a_search(nodes: int, names: int, searched: bool) -> None:
    found = [
        finding(f"node{node:02}", f"setting_{name:02}", Verdict.DRIFT, f"value {name}")
        for node in range(nodes)
        for name in range(names)
    ]
    shown = text_of(Findings(Verdict.DRIFT, nodes, found, inventory="rack.py", at="2026-11-23T04:00:00+00:00"), "html")
    assert ("<form" in shown) == searched


def test_the_search_finds_places_by_steps() -> None:
    from shakedown.report.page.rows import Index

    index = Index([f"n{number}" for number in range(12)])
    assert index.of(["n3", "n4", "n5", "n9"]).places == "3-2,4"
    assert index.of([]).places == "" and index.of(["n0"]).places == "0"


def test_a_drift_check_has_its_own_figures() -> None:
    shown = overview(drifted())
    (tile,) = tiles(shown, squares.squares(shown, {}))
    assert (tile.label, tile.value) == ("Nodes in the desired state", "2 of 4")


def test_the_parts_of_an_acceptance_report_are_folded_by_node_and_model(tmp_path: Path) -> None:
    """At 64 nodes there were 1,150 rows; a serial number is still there, in a part of the page that opens."""
    run = a_run_for_acceptance(tmp_path)
    assert run.directory is not None
    first = run.record.nodes[0]
    run.record.nodes = [first.model_copy(update={"name": f"n{number}"}) for number in range(1, 65)]
    for number in range(1, 65):
        (run.directory / f"states/n{number}.json").write_text(healthy(number).model_dump_json())
    text = text_of(run, "acceptance")
    section = text[text.index('<section aria-labelledby="parts">') : text.index('<section aria-labelledby="tests">')]
    assert section.count("<tr>") < 64 + 12, "a row for each node, and one for each model"
    state = healthy(64)
    assert not isinstance(state.gpus, Unreadable) and not isinstance(state.rdma, Unreadable)
    count = len(state.gpus)
    model = state.gpus[0].model
    assert f'GPU</th><td data-label="model">{model}</td><td data-label="number">{64 * count}</td>' in section
    assert f"{count} × GPU {model}" in section and "64 of 64 nodes" in section
    inside = "".join(re.findall(r"<details>(.*?)</details>", section, re.DOTALL))
    for serial in (state.system.board_serial, *(gpu.serial for gpu in state.gpus), *(nic.guid for nic in state.rdma)):
        assert str(serial) in inside


def test_an_acceptance_report_names_parts_tests_limits_waivers_and_the_statement(tmp_path: Path) -> None:
    run = a_run_for_acceptance(tmp_path)
    assert run.directory is not None
    text = text_of(run, "acceptance")
    state = healthy(1)
    assert not isinstance(state.gpus, Unreadable) and not isinstance(state.rdma, Unreadable)
    for serial in (state.system.board_serial, *(gpu.serial for gpu in state.gpus), *(nic.guid for nic in state.rdma)):
        assert str(serial) in text
    assert "Failed: Failed" not in text and "Failed: " in text, "the word stands once in the headline"
    assert re.search(r"possible_throughput</th>.*?wanted\">at most [0-9.]+ TFLOP", text), "a bound is no goal"
    assert "SHA256:AAAABBBBCCCC" in text and "cable-7" in text and "no_failure_signature" in text
    assert text.count("not read") >= 2, "of the node whose state is not there"
    assert ">24 (1 an hour) errors<" in text and ">20 s<" in text and "memory.bandwidth" in text
    for slot, grown, verdict in ((1, 24, "warn"), (2, 51, "fail")):  # as the soak's gate
        row = re.search(rf"<tr[^>]*>(?:(?!</tr>).)*soak: 0000:0{slot}:00.0 correctable.*?</tr>", text, re.DOTALL)
        assert row and f">{grown} (" in row[0] and "50 in 24 h" in row[0] and f"{verdict}<" in row[0]
    assert "<script>" not in text and "shakedown verify" not in text and "No statement was" in text
    run.record.nonce = f"{run.record.run_id}.1"  # it is signed, after this page
    run.record.gates += [
        Gate(name="nothing_left", verdict=Verdict.OK, job=f"soak/{stage}-1") for stage in ("cpu", "all")
    ]
    text = text_of(run, "acceptance")
    assert "No statement was" not in text and "written before the run's statement" in text.replace("&#39;", "'")
    assert "all nodes, soak/cpu-1<" in text and "all nodes, soak/all-1<" in text and ">all nodes<" in text
    (run.directory / STATEMENT).write_text("{}")
    text = text_of(run, "acceptance")
    assert hashlib.sha256(b"{}").hexdigest() in text and f"shakedown verify {run.record.run_id} --key site.pub" in text


def test_the_grid_grows_with_the_nodes_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node has a failed finding with a name that no other has, as of a mount."""
    cells, of_cell = 0, rows._of

    def counted(verdicts: list[Verdict] | None) -> Verdict | None:
        nonlocal cells
        cells += 1
        return of_cell(verdicts)

    monkeypatch.setattr(rows, "_of", counted)
    seen = []
    for nodes in (400, 800, 1600):
        cells = 0
        names = [f"node{number}" for number in range(nodes)]
        found = [finding(name, f"disk_free./{name}", Verdict.FAIL) for name in names]
        grid = rows.of(overview(Findings(Verdict.FAIL, nodes, found)), rows.Index(names))
        assert grid is not None and grid.columns[-1] == f"{nodes - rows.COLUMNS + 1} others"
        seen.append(cells)
    assert seen[2] / seen[0] <= 4.5, seen


def test_a_node_whose_finding_has_no_column_of_its_own_is_not_ok_in_the_grid() -> None:
    names = [f"node{number}" for number in range(rows.COLUMNS + 1)]
    found = [finding(name, f"disk_free./{name}", Verdict.FAIL) for name in names]
    grid = rows.of(overview(Findings(Verdict.FAIL, len(names), found[: rows.COLUMNS])), rows.Index(names))
    assert grid is not None and "others" not in grid.columns[-1], "as many as fit"
    monkey = rows.of(overview(Findings(Verdict.FAIL, len(names), found)), rows.Index(names))
    assert monkey is not None and monkey.columns[-1] == "2 others" and len(monkey.columns) == rows.COLUMNS
