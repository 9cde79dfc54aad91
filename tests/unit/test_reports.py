"""Reports for people and programs: what they say, and that no text of others is more than text in any of them."""

from __future__ import annotations

import json
import os
import re
import stat
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from shakedown.cli import main
from shakedown.common.prometheus_names import COMMON, NAMES
from shakedown.common.text import printable
from shakedown.desired.models import DesiredState
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.evidence.results import NodeClock, Timing
from shakedown.evidence.stragglers.judge import Layout, judged
from shakedown.evidence.stragglers.model import Limits, Measured, Window
from shakedown.evidence.telemetry import SAMPLES
from shakedown.evidence.telemetry.samples import read as read_samples
from shakedown.evidence.telemetry.summary import summary
from shakedown.gates import Gate
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import Earlier, Past
from shakedown.report import markdown
from shakedown.report.files import FILES, write_reports, write_to
from shakedown.report.formats import Findings, Judged, Run, text_of
from shakedown.report.overview import overview
from shakedown.runs.directory import RunDirectory
from shakedown.runs.judging import judge_run
from shakedown.state.findings import Verdict
from tests import forks
from tests.reports import HOSTILE, a_full_run, a_run, drifted, finding, hostile, keep, many

ALL = sorted(FILES)


def cases(text: str) -> dict[tuple[str, str], list[str]]:
    root = ElementTree.fromstring(text)
    return {
        (case.get("classname", ""), case.get("name", "")): [each.tag for each in case] for case in root.iter("testcase")
    }


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The name and the labels' values, less the common ones, in the order of the labels' names -> the value."""
    return {
        (sample.name, *(value for label, value in sample.labels.items() if label not in COMMON)): sample.value
        for family in text_string_to_metric_families(text + "\n")
        for sample in family.samples
    }


def test_the_sentence_says_what_is_wrong_and_of_how_many() -> None:
    assert overview(drifted()).sentence == "Unknown: 1 of 4 nodes could not be read in full; 1 of 4 nodes has drifted."
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
    run.record.ended_by, run.record.verdict = "KubernetesError: no kubeconfig.", Verdict.FAIL
    assert overview(run).sentence == "Failed: it was ended by KubernetesError: no kubeconfig."
    run.record.ended_by = ""
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
        figures.throughput_per_gpu.mean * 1e12
    )
    assert found["shakedown_iteration_seconds", "together", "gpt-small"] == pytest.approx(
        figures.elapsed_time_per_iteration.mean / 1e3
    )
    assert found["shakedown_verdict", "ok"] == 1 and found["shakedown_verdict", "fail"] == 0
    drift = samples(text_of(drifted(), "prometheus"))
    assert drift["shakedown_findings", "node03", "drift"] == 1 and drift["shakedown_findings", "node01", "drift"] == 0
    assert drift["shakedown_finding_not_ok", "numa_balancing", "node04", "unknown"] == 1
    assert {name for name, *_ in [*found, *drift]} <= set(NAMES)
    for text, source in ((text_of(run, "prometheus"), "run"), (text_of(drifted(), "prometheus"), "drift")):
        rows = [line for line in text.splitlines() if not line.startswith("#")]
        assert rows and all('inventory="rack.py"' in row and f'source="{source}"' in row for row in rows)


@pytest.mark.parametrize("form", [form for form in ALL if form != "acceptance"])  # of runs alone: test_page.py
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


@pytest.mark.parametrize(
    "text", ["https://evil.example/x", "HTTP://e.example", "www.evil.example", "@all", "x (@team)"]
)
def test_what_others_say_is_no_link_and_calls_nobody(text: str) -> None:
    """A serial number in a ticket, as GitHub, GitLab and chats read it."""
    shown = re.sub(r"`[^`]*`", "", markdown.words(text))
    assert not re.search(r"(?<!\\)://|www\.|@\w", shown, re.I), shown
    assert markdown.words("root@node01: 1@2") == "root@node01: 1@2"


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_holds_no_character_that_a_terminal_obeys_or_hides(form: str) -> None:
    text = text_of(hostile(), form)
    assert text.isascii() and "\\u202e" in text and "\x1b" not in text


def test_of_512_nodes_the_few_that_differ_stand_out() -> None:
    """The other day, on which each differs in its own way, is looked at in Chromium."""
    good = text_of(many(alike=True), "html")
    assert len(good.encode()) < 100_000
    assert "node[001-005,007-176,178-347,349-512].rack7.example.org" in good
    assert "more findings are not" not in good and "data:image" not in good


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
    with (tmp_path / "redirected").open("w") as file:  # what /dev/stdout leads to
        done = CliRunner().invoke(main, ["report", "latest", "--output", f"/proc/self/fd/{file.fileno()}"])
    assert (done.exit_code, done.output) == (0, "") and (tmp_path / "redirected").stat().st_size
    refused = CliRunner().invoke(main, ["report", "latest", "--output", "/proc/self/x"])
    assert refused.exit_code == 2 and "nothing can be written in /proc/" in refused.output
    full = CliRunner().invoke(main, ["report", "latest", "--output", "/dev/full"])
    said = "could not be written" if os.access("/dev", os.W_OK) else "nothing can be written in /dev"
    assert full.exit_code == 2 and said in full.output


def test_the_suffix_of_the_output_chooses_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path / "runs")
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))

    def written(name: str, *options: str) -> str:
        done = CliRunner().invoke(main, ["report", "latest", "--output", str(tmp_path / name), *options])
        return (tmp_path / name).read_text() if done.exit_code == 0 else done.output

    assert written("a.HTML").startswith("<!doctype html>") and "<testsuites" in written("a.xml")
    assert written("a.html", "--format", "json").startswith("{")
    assert written("plain") == written("a.txt") == written("a.csv", "--format", "table")
    for unknown in ("b.csv", "b.jsonl"):  # .jsonl is a format, and not of this command
        assert "--format, or one of .txt, .html, .json," in " ".join(written(unknown).split())
        assert not (tmp_path / unknown).exists()


@pytest.mark.parametrize("command", ["drift", "run", "calibrate", "judge", "report"])
def test_every_command_refuses_a_suffix_before_it_does_anything(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [command, str(tmp_path / "nothing"), "--output", str(tmp_path / "x.doc")])
    assert done.exit_code == 2 and "no format has the suffix '.doc'" in " ".join(done.output.split())


def test_earlier_runs_and_their_band_stand_beside_the_figures(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in range(1, 13)]
    figures = run.record.jobs[0].figures
    assert figures and figures.throughput_per_gpu and run.directory
    now = figures.throughput_per_gpu.value
    values = {"throughput_per_gpu": now * 2}
    known = [Earlier(run_id=str(at), at=at, figures=values, epoch="a") for at in days]
    past = Past.of(known, "a", judge=True)
    directory = RunDirectory(run.directory)
    evidence = {name: kept.model_copy(update={"past": past}) for name, kept in directory.load_evidence().items()}
    run.record.jobs[0].baselines = {"throughput_per_gpu": compare(past, "throughput_per_gpu", now, "at least")}
    run.record.gates = judge_run(directory, run.record, evidence)
    directory.save(run.record, evidence)
    text = text_of(run, "html")
    found = re.search(r'alt="(earlier runs: throughput_per_gpu [^"]*)"', text)
    assert found and "12 runs from" in found[1] and f"this one {now:.6g}; " in found[1]
    assert "at least" in found[1], "the bound of the baseline"
    assert "baseline.throughput_per_gpu" in text


def test_a_ledger_s_weeks_are_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "runs")
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    assert CliRunner().invoke(main, ["ledger", "add", run.record.run_id]).exit_code == 0
    done = CliRunner().invoke(main, ["report", "--ledger", "--format", "html"])
    assert done.exit_code == 0, done.output
    assert "Passed: the last of them, on 2026-11-23 04:00 UTC; 1 of 1 run passed." in done.output
    assert run.record.run_id in done.output and "gpt-small, 1 node: 1 run" in done.output
    assert CliRunner().invoke(main, ["report", "--ledger", "--format", "junit"]).exit_code == 2
    assert CliRunner().invoke(main, ["report", "x", "--ledger"]).exit_code == 2
    latest = CliRunner().invoke(main, ["report"])
    assert latest.exit_code == 0 and run.record.run_id in latest.output, "the latest run without an argument"


def test_what_a_node_did_while_the_job_ran_is_drawn_with_the_failure(tmp_path: Path) -> None:
    line = "Traceback (most recent call last):\n  File x\nRuntimeError: HIP error: an illegal memory access"
    run = a_run(tmp_path, line=line)
    assert run.directory
    directory = RunDirectory(run.directory)
    begin = {"kind": "begin", "schema": 1, "t": 100.0, "wall": 1.0, "boot_id": "b", "interval_s": 1.0, "cpus": 2}
    channels = ["gpu/0000:05:00.0/power_w", "gpu/0000:06:00.0/power_w"]
    rows = [{"t": 100.0 + second, "v": [700.0, 500.0]} for second in range(1, 10)]
    end = {"kind": "end", "t": 110.0, "why": "stopped", "samples": 9, "thinned": 0, "interval_s": 1.0, "cpu_s": 0.01}
    lines = [json.dumps(each) for each in ({**begin, "channels": channels}, *rows, end)]
    kept = keep(directory, "node01", "\n".join(lines).encode(), "telemetry.jsonl").model_copy(update={"name": SAMPLES})
    timing = Timing(started_at=1000.0, finished_at=1010.0, iterations=[(1, 1004.0)])
    timing.clocks["node01"] = NodeClock(offset_s=900.0, uncertainty_s=0.01)
    evidence = directory.load_evidence()
    for each in evidence.values():
        each.logs["node01"].append(kept)
        each.timing = timing
    series = read_samples([(run.directory / kept.path).read_bytes()])
    run.record.jobs[0].telemetry = {"node01": summary(series, None, None)}
    sign = Sign(
        node="node01", name="hip_error", role="origin", text="HIP error", at=datetime.fromtimestamp(1006, UTC),
        file="logs/node01/leader.log", line_number=3,
    )  # fmt: skip
    run.record.diagnosis = Diagnosis(
        name="hip_error", cause="a GPU failed", remedy="swap it", confidence="certain", origin=("node01",), why="first",
        evidence=(sign,),
    )  # fmt: skip
    directory.save(run.record, evidence)
    text = text_of(run, "html")
    found = re.search(r'alt="(GPU power[^"]*)"', text)
    assert found and found[1] == "GPU power [W] over time: node01 600 to 600; hip_error on node01 at 6 s"
    assert "it began on node01 (certain: a GPU failed)" in text
    assert 'href="#log-diagnosis-node01-3"' in text and 'id="log-diagnosis-node01-3" class="bad"' in text


def test_trials_show_what_is_odd_and_every_pair(tmp_path: Path) -> None:
    text = text_of(a_full_run(tmp_path), "html")
    assert "half of its peers" in text
    cells = re.findall(r'<td data-label="(lowest|median|highest)" class="number">([^<]*)<', text)
    assert cells[-3:] == [("lowest", "50"), ("median", "75"), ("highest", "100")]
    assert "slow in every repetition: node02 to node01" in text


def test_nodes_stand_beside_each_other_by_their_own_times(tmp_path: Path) -> None:
    run = a_full_run(tmp_path)
    own = {f"node{number:02d}": 40.0 if number == 3 else 20.0 for number in (1, 2, 3)} | {HOSTILE: 21.0}
    measured = {
        name: Measured(own=tuple(Window(rank=rank, first=at, last=at, own=ms) for at in range(1, 9)))
        for rank, (name, ms) in enumerate(own.items())
    }
    layout = Layout({name: range(rank, rank + 1) for rank, name in enumerate(own)})
    run.record.jobs[-1].stragglers = judged(measured, layout, Limits())
    page, ticket = text_of(run, "html"), text_of(run, "markdown")
    assert re.search(r'fail</span></td><th scope="row" class="mono">node03</th>.*?\+100.0%', page)
    assert page.count('href="#own-times"') == 1 and "<script>alert" not in page
    assert "| fail | `node03` | all | +100.0% |" in ticket and "straggler (fail)" in ticket
    assert ticket.index("`node03` | all") < ticket.index("`node01` | all"), "the slowest first"


def test_a_search_for_bad_nodes_is_a_tree_and_its_suspects_come_first(tmp_path: Path) -> None:
    shown = overview(run := a_full_run(tmp_path))
    assert shown.sentence.startswith("Failed: the search for bad nodes: node02 is suspect; 2 of 13 gates did not hold")
    assert (shown.actions[0].what, shown.actions[0].nodes) == ("suspect node", ("node02",))
    text = text_of(run, "html")
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert re.search(r"1\.1</span>.*?<ul><li>.*?2\.1</span>", text, re.DOTALL), "a part stands below its group"


def test_run_writes_its_report_where_it_is_asked_to(tmp_path: Path) -> None:
    """A dry run keeps nothing: its report is of the findings."""
    site = 'nodes = (["@local"], {"gpu": "cpu", "tuning": {"numa_balancing": None}})\n'
    (tmp_path / "site.py").write_text(site)
    done = forks.called("shakedown", "run", "site.py", "--dry", "--no-smoke", "--format", "json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["nodes"] == 1
    assert done.returncode == Verdict(document["verdict"]).exit_code, done.stderr
    assert "verdict: " in done.stderr and sorted(path.name for path in tmp_path.iterdir()) == ["site.py"]
