"""Reports for people and programs: what they say, and that no text of others is more than text in any of them."""

from __future__ import annotations

import re
import stat
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from shakedown.cli import main
from shakedown.desired.models import DesiredState
from shakedown.findings import Verdict
from shakedown.report.files import FILES, write_reports, write_to
from shakedown.report.formats import Findings, Judged, Run, text_of
from shakedown.report.formats.prometheus import NAMES
from shakedown.report.overview import overview
from shakedown.runs import RunDirectory
from shakedown.smoke.gates import Gate
from shakedown.text import printable
from tests.reports import HOSTILE, a_run, drifted, finding, hostile, many

ALL = sorted(FILES)


def cases(text: str) -> dict[tuple[str, str], list[str]]:
    root = ElementTree.fromstring(text)
    return {
        (case.get("classname", ""), case.get("name", "")): [each.tag for each in case] for case in root.iter("testcase")
    }


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text + "\n")
        for sample in family.samples
    }


def test_the_sentence_says_what_is_wrong_and_of_how_many() -> None:
    assert overview(drifted()).sentence == "Unknown: 1 node with what could not be read; 1 node with what has drifted."
    well = Findings(Verdict.OK, 2, [finding("a", "x"), finding("b", "x")])
    assert overview(well).sentence == "Passed: all 2 nodes are in the desired state, 2 findings."
    few = Findings(Verdict.FAIL, 2, [finding("a", "x")])
    assert overview(few).sentence == "Failed: fewer nodes answered than were expected."
    bad = [Gate(name=f"g{number}", verdict=Verdict.FAIL) for number in range(6)]
    said = overview(Judged(Verdict.FAIL, bad)).sentence
    assert said == "Failed: 6 of 6 gates did not hold (g0, g1, g2, g3 and 2 more)."


def test_a_run_that_nobody_finished_is_told_as_one(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert overview(run).sentence.startswith("Passed: the node is in the desired state; all ")
    run.record.finished_at, run.record.verdict = None, Verdict.UNKNOWN
    assert overview(run).sentence == "Unknown: the run is still at work, or was killed."


def test_a_ci_never_sees_a_pass_where_there_is_none() -> None:
    found = cases(text_of(drifted(), "junit"))
    assert found["node03", "thp"] == ["failure"] and found["node04", "numa_balancing"] == ["error"]
    assert found["node01", "thp"] == []
    assert found["Drift check", "verdict"] == ["error"]
    root = ElementTree.fromstring(text_of(drifted(), "junit"))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("13", "1", "2")
    few = cases(text_of(Findings(Verdict.FAIL, 2, [finding("a", "x")]), "junit"))
    assert few["Drift check", "verdict"] == ["failure"], "though every finding is ok"


def test_metrics_are_in_base_units_and_named_in_one_place(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    found = samples(text_of(run, "prometheus"))
    figures = run.record.jobs[0].figures
    assert figures and figures.throughput_per_gpu and figures.elapsed_time_per_iteration
    assert found["shakedown_throughput_flops_per_gpu", "together", "gpt-small"] == pytest.approx(
        figures.throughput_per_gpu.value * 1e12
    )
    assert found["shakedown_iteration_seconds", "together", "gpt-small"] == pytest.approx(
        figures.elapsed_time_per_iteration.value / 1e3
    )
    assert found["shakedown_verdict", "rack.py", "ok"] == 1 and found["shakedown_verdict", "rack.py", "fail"] == 0
    drift = samples(text_of(drifted(), "prometheus"))
    assert drift["shakedown_findings", "node03", "drift"] == 1 and drift["shakedown_findings", "node01", "drift"] == 0
    assert drift["shakedown_finding_not_ok", "numa_balancing", "node04", "unknown"] == 1
    assert {name for name, *_ in [*found, *drift]} <= set(NAMES)


@pytest.mark.parametrize("form", ALL)
def test_what_others_say_is_text_in_every_format(form: str) -> None:
    text = text_of(hostile(), form)
    assert "\x1b" not in text and "\u202e" not in text
    if form == "junit":
        assert (printable(HOSTILE), printable(HOSTILE)) in cases(text)
    elif form == "prometheus":
        assert samples(text)["shakedown_finding_not_ok", printable(HOSTILE), printable(HOSTILE), "fail"] == 1
    elif form == "markdown":
        rows = [line for line in text.splitlines() if line.startswith("| fail")]
        outside = re.sub(r"(`+)[^`].*?[^`]\1(?!`)", "", rows[0].replace("\\`", ""))
        assert not re.search(r"(?<!\\)[<\[*]", outside), outside
        assert len(re.findall(r"(?<!\\)\|", rows[0])) == 6, "a pipe ends no cell"
    else:
        assert "<script>alert" not in text and text.count("<script") == 2


def test_many_nodes_that_differ_stay_a_page_of_few_megabytes() -> None:
    """30,720 findings, 12,000 of them different from each other: counted, not all listed."""
    worst, good = text_of(many(), "html"), text_of(many(alike=True), "html")
    assert len(worst.encode()) < 5_000_000 and worst.count("<t") < 30_000
    assert "more findings are not on this page" in worst and "data:image/svg+xml" in worst
    assert len(good.encode()) < 100_000
    assert "node[001-005,007-176,178-347,349-512].rack7.example.org" in good
    assert "more findings are not" not in good


def test_a_page_shows_the_line_that_failed_and_leads_to_the_log(tmp_path: Path) -> None:
    line = "RuntimeError: HIP error: out of memory <b>x</b> wandb=https://me:secret@host/"
    run = a_run(tmp_path, nodes=2, line=f"Traceback (most recent call last):\n  File x\n{line}")
    text = text_of(run, "html")
    assert '<a href="logs/node02/leader.log">' in text
    assert re.search(r'<tr id="log-together-node02-\d+" class="bad">', text)
    assert "out of memory &lt;b&gt;x&lt;/b&gt;" in text and "me:secret" not in text
    assert "What to do" in text and text.index("<h1") < text.index("What to do") < text.index('id="logs"')


def test_a_record_from_elsewhere_leads_nobody_out(tmp_path: Path) -> None:
    run = a_run(tmp_path, "nan_loss.log")
    (tmp_path / "outside").write_text("root:x\n")
    run.record.jobs[0].logs["node01"] = ["../../outside"]
    text = text_of(run, "html")
    assert "root:x" not in text and "outside" not in text


def test_reports_of_a_run_are_its_owner_s_alone_and_one_that_fails_is_told(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert run.directory
    (run.directory / ".junit.xml.part").mkdir()
    (run.directory / ".junit.xml.part" / "x").touch()
    said = list(write_reports(RunDirectory(run.directory), run, [*ALL, "html"]))
    assert len(said) == 1 and "junit.xml: this report could not be written" in said[0]
    written = [run.directory / FILES[form] for form in ALL if form != "junit"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


def test_every_report_that_can_be_asked_for_has_a_file() -> None:
    asked = DesiredState.model_json_schema()["properties"]["reports"]["items"]["enum"]
    assert sorted(asked) == ALL


def test_a_file_that_is_there_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "metrics.prom"
    write_to(target, drifted(), "prometheus")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    target.chmod(0o644)
    (tmp_path / "link").symlink_to(target)
    write_to(tmp_path / "link", drifted(), "json")
    assert stat.S_IMODE(target.stat().st_mode) == 0o644 and (tmp_path / "link").is_symlink()
    assert target.read_text().startswith("{") and sorted(p.name for p in tmp_path.iterdir()) == ["link", "metrics.prom"]


def test_a_report_goes_where_output_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "runs")
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    out = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", "latest", "--format", "html", "--output", str(out)])
    assert (done.exit_code, done.output) == (0, "")
    assert run.directory and str(run.directory) not in text_of(Run(run.record, directory=run.directory), "html")
    assert out.read_text().startswith("<!doctype html>")
    gone = CliRunner().invoke(main, ["report", "latest", "--output", str(tmp_path / "no" / "x")])
    assert gone.exit_code == 2 and "there is no folder" in gone.output
    full = CliRunner().invoke(main, ["report", "latest", "--output", "/proc/self/x"])
    assert full.exit_code == 2 and "could not be written" in full.output
