"""Metrics of several inventories, checks and runs in one textfile folder, read by Debian's node_exporter."""

from __future__ import annotations

import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shakedown.checks.waivers import first_to_end
from shakedown.common.prometheus_names import COMMON, LABELS, NAMES
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.gates import Gate
from shakedown.ledger.entry import seconds
from shakedown.report.formats import Findings, Judged, Run, text_of
from shakedown.runs.directory import RunNode, RunRecord
from shakedown.runs.isolation import Isolation, Problem, Result, Suspect
from shakedown.state.findings import Finding, Remedy, Verdict
from tests import forks
from tests.monitoring import duplicates, node_exporter, scraped, series
from tests.reports import a_run, drifted
from tests.states import desired

SITE = """
odd = {"gpu": "cpu", "system": {"disk_free": {"/": "900T"}}, "waivers": {"room": {
    "finding": "disk_free", "hosts": ["@local"], "reason": "r", "owner": "anna", "until": "%s"}}}
rack = (["@local"], odd)
"""


def labels(text: str, name: str) -> list[dict[str, str]]:
    return [dict(found) for metric, found in series(text) if metric == name]


def test_every_metric_names_inventory_and_source() -> None:
    assert set(LABELS) == set(NAMES) and all(
        found[:2] == COMMON == ("inventory", "source") for found in LABELS.values()
    )


def test_two_inventories_in_one_folder_lose_no_series(tmp_path: Path) -> None:
    """Two sites with an inventories/rack.py each, the same node in both; a check, the agents' and a run of each."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    until = f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%d}"
    for site in ("a", "b"):
        (tmp_path / site / "inventories").mkdir(parents=True)
        (tmp_path / site / "inventories" / "rack.py").write_text(SITE % until)
        for name, words in {"drift": [], "agents": ["--from-agents"]}.items():
            words = ["drift", "inventories/rack.py", *words, "--output", folder / f"{site}-{name}.prom"]
            place = tmp_path / site
            done = forks.called("shakedown", *words, cwd=place, SHAKEDOWN_RUNS=str(place / "runs"))
            assert done.returncode in (0, 3, 4), done.stderr
        (kept,) = [path for path in (tmp_path / site / "runs").iterdir() if path.is_dir()]
        text = (folder / f"{site}-drift.prom").read_text()
        assert [entry["report"] for entry in labels(text, "shakedown_run_info")] == [str(kept)]
        assert [entry["waiver"] for entry in labels(text, "shakedown_waiver_end_timestamp_seconds")] == ["room"]
        run = a_run(tmp_path / site)
        run.record.inventory = str(tmp_path / site / "inventories" / "rack.py")
        (folder / f"{site}-run.prom").write_text(text_of(run, "prometheus"))
    written = [entry for path in folder.glob("*.prom") for entry in series(path.read_text("utf-8"))]
    assert duplicates(folder) == []
    with node_exporter(folder, tmp_path / "log") as address:
        shown = Counter(entry for entry in series(scraped(address)) if entry[0].startswith("shakedown_"))
    assert shown == Counter(written) and "node_textfile_scrape_error 0" in scraped_error(tmp_path, folder)
    assert "collected before" not in (tmp_path / "log").read_text()
    promtool = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert promtool.returncode == 0, promtool.stderr


def scraped_error(tmp_path: Path, folder: Path) -> str:
    with node_exporter(folder, tmp_path / "log2") as address:
        return scraped(address)


def test_the_duplicate_check_sees_what_node_exporter_drops(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.prom").write_text(text_of(drifted(), "prometheus"))
    assert len(duplicates(tmp_path)) > 10


def a_record(**parts: object) -> Run:
    nodes = [RunNode(name=name, group="rack1", verdict=Verdict.OK, part="trained") for name in ("node1", "node2")]
    whole = {"run_id": "r1", "started_at": "2026-11-23T04:00:00+00:00", "inventory": "rack.py", "desired_digest": "0"}
    return Run(RunRecord.model_validate({**whole, "nodes": nodes, "verdict": Verdict.FAIL, **parts}))


def test_a_time_without_a_zone_is_utc_as_in_the_ledger() -> None:
    (line,) = [
        line
        for line in text_of(a_record(finished_at="2026-11-23T05:00:00"), "prometheus").splitlines()
        if line.startswith("shakedown_finished_timestamp_seconds")
    ]
    assert float(line.split()[-1]) == seconds("2026-11-23T05:00:00")


def suspects(document: Run | Findings | Judged) -> set[tuple[str, str]]:
    text = text_of(document, "prometheus")
    found = [(entry["node"], entry["cause"]) for entry in labels(text, "shakedown_suspect")]
    about = {(entry["node"], entry["cause"]): entry for entry in labels(text, "shakedown_cause_info")}
    assert set(found) <= set(about) and len(about) == len(labels(text, "shakedown_cause_info")), "each has one remedy"
    assert not found or about[found[0]]["remedy"]
    return set(found)


def test_suspects_are_the_nodes_that_findings_a_diagnosis_a_search_or_a_trial_name() -> None:
    gpus = Finding(
        name="gpu_count", node="node1", verdict=Verdict.FAIL, wanted=8, actual=7, remedy=Remedy(text="reseat the GPU")
    )
    thp = Finding(name="thp", node="node2", verdict=Verdict.DRIFT, wanted="never", actual="always")
    beside = Finding(name="fleet.bios", node="node2", verdict=Verdict.FAIL, wanted="1", actual="2")
    unread = Finding(name="rocm", node="node2", verdict=Verdict.UNKNOWN)
    found = [gpus, thp, beside, unread]
    assert suspects(Findings(Verdict.FAIL, 2, found, inventory="rack.py")) == {("node1", "gpu_count")}
    assert suspects(a_record(findings=found)) == {("node1", "gpu_count")}
    text = text_of(Findings(Verdict.FAIL, 2, found, inventory="rack.py"), "prometheus")
    causes = {(entry["node"], entry["cause"], entry["verdict"]) for entry in labels(text, "shakedown_cause_info")}
    assert causes == {
        ("node1", "gpu_count", "fail"),
        ("node2", "fleet.bios", "fail"),
        ("node2", "rocm", "unknown"),
        ("node2", "thp", "drift"),
    }
    verdicts = {entry["node"]: entry["verdict"] for entry in labels(text, "shakedown_node_verdict")}
    assert verdicts == {"node1": "fail", "node2": "fail"}

    sign = Sign(node="node2", name="gpu_hang", role="origin", text="hang")
    parts = {"name": "gpu_hang", "cause": "a GPU hung", "remedy": "Reset it.", "why": "only", "origin": ("node2",)}
    sure = Diagnosis.model_validate({**parts, "confidence": "certain", "evidence": (sign,)})
    likely = sure.model_copy(update={"confidence": "likely"})
    assert (
        suspects(a_record(diagnosis=sure)) == {("node2", "gpu_hang")} and suspects(a_record(diagnosis=likely)) == set()
    )
    assert suspects(Judged(Verdict.FAIL, [], diagnosis=sure)) == {("node2", "gpu_hang")}

    pair = Suspect(kind="link", nodes=("node1", "node2"), trainings=("1.1",), probability=0.9)
    end = Result(suspects=[pair], conclusion="one")
    search = Isolation(problem=Problem(nodes=["node1", "node2"]), result=end)
    assert suspects(a_record(isolation=search)) == {("node1", "suspect link"), ("node2", "suspect link")}
    shared = Isolation(problem=Problem(nodes=["node1", "node2"]), result=end.model_copy(update={"systemic": True}))
    assert suspects(a_record(isolation=shared)) == set()

    trial = Gate(name="gemm", verdict=Verdict.FAIL, node="node1", job="trials", evidence="0.5", remedy="Swap it.")
    assert suspects(a_record(gates=[trial])) == {("node1", "gemm")}
    assert suspects(a_record(gates=[trial.model_copy(update={"job": "together"})])) == set()


def test_of_waivers_with_one_name_the_first_to_end_counts() -> None:
    def state(days: int) -> object:
        until = f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}"
        waiver = {"finding": "disk_free", "hosts": ["n1"], "reason": "r", "owner": "o", "until": until}
        return desired(waivers={"room": waiver})

    (waiver,) = first_to_end([state(5), state(3), state(8)]).values()  # type: ignore[list-item]
    assert waiver.until == f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%d}"


@pytest.mark.parametrize("name", ["{end},n%s", "n%s,{end}"])
def test_long_names_of_inventories_differ_wherever_they_do(name: str) -> None:
    """Of hosts that are named on the command line; longer than a path can be."""
    names = [(name % ",n".join(map(str, range(2000)))).format(end=end) for end in "ab"]
    texts = [text_of(Findings(Verdict.OK, 0, [], inventory=inventory), "prometheus") for inventory in names]
    assert len({labels(text, "shakedown_verdict")[0]["inventory"] for text in texts}) == 2
