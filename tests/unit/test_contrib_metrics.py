"""The dashboard and the alert rules of contrib/, by promtool and by a Prometheus that scraped our files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shakedown.common.prometheus_names import LABELS, NAMES
from shakedown.desired.models import Agent, Waiver
from shakedown.gates import Gate
from shakedown.node.agent.run import VERDICTS, metrics
from shakedown.report.formats import Findings, text_of
from shakedown.state.findings import Finding, Remedy, Verdict
from tests.monitoring import Prometheus, node_exporter, prometheus
from tests.reports import a_run

CONTRIB = Path(__file__).parents[2] / "contrib"
RULES = CONTRIB / "prometheus" / "shakedown.rules.yml"
TESTS = CONTRIB / "prometheus" / "shakedown.rules.test.yml"
DASHBOARD = CONTRIB / "grafana" / "shakedown.json"


def promtool(*words: str | Path) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def test_the_alert_rules_hold_and_each_is_tried() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", RULES)
    promtool("test", "rules", TESTS)
    tried = {
        case["alertname"]
        for test in yaml.safe_load(TESTS.read_text("utf-8"))["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tried == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_carries_node_cause_remedy_and_the_report_s_place(rule: dict[str, Any]) -> None:
    assert {"summary", "node", "cause", "remedy", "report"} <= set(rule["annotations"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    if "group_left (report)" in rule["expr"]:
        dropped = {label for label, value in rule["labels"].items() if value == ""}
        assert dropped == {"report", "remedy"}, "each check has another report: it would be another alert"


def test_an_agent_is_silent_when_its_verdict_is_stale() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "ShakedownAgentSilent"]
    assert rule["expr"].endswith(f"> {Agent().stale_s}")


def queries() -> list[str]:
    """Every query of the dashboard, with all values of its variables."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return [re.sub(r"\$\w+", ".*", expression) for expression in found]


def test_the_dashboard_is_what_its_script_writes() -> None:
    script = DASHBOARD.with_name("dashboard.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert DASHBOARD.read_text("utf-8") == done.stdout
    document = json.loads(done.stdout)
    assert [panel["title"] for panel in document["panels"] if panel["type"] == "row"] == [
        "Fleet",
        "Rack",
        "Node",
        "Run",
    ]
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    cells = [
        (x, y)
        for panel in document["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) == 23, "no panel is over another"


def test_rules_and_dashboard_name_only_metrics_and_labels_that_are_written() -> None:
    for expression in [*queries(), *(rule["expr"] for rule in rules())]:
        for name, braces in re.findall(r"\b(shakedown_\w+)(?:\{([^}]*)\})?", expression):
            assert name in NAMES
            assert set(re.findall(r"(\w+)[!=]", braces)) <= set(LABELS[name]), expression
    shown = " ".join(queries())
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", shown)] == []


def test_the_sample_configuration_keeps_every_metric_that_a_rule_rests_on() -> None:
    """node_exporter's own metrics of its textfile folder too: without them two alerts could never come."""
    (scrape,) = yaml.safe_load((CONTRIB / "prometheus/scrape.yml").read_text("utf-8"))["scrape_configs"]
    (keep,) = scrape["metric_relabel_configs"]
    assert (keep["action"], keep["source_labels"]) == ("keep", ["__name__"])
    named = {name for rule in rules() for name in re.findall(r"\b(?:shakedown|node)_\w*_\w+", rule["expr"])}
    assert "node_textfile_scrape_error" in named and len(named) > 5
    assert {name for name in named if not re.fullmatch(keep["regex"], name)} == set()


@contextmanager
def a_site(tmp_path: Path) -> Iterator[Prometheus]:
    """A check, a run and an agent of a site, in the textfile folder of a node_exporter that a Prometheus scrapes."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    gpus = Finding(
        name="gpu_count", node="node1", verdict=Verdict.FAIL, wanted=8, actual=7, remedy=Remedy(text="reseat the GPU")
    )
    thp = Finding(name="thp", node="node2", verdict=Verdict.DRIFT, wanted="never", actual="always")
    until = f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%d}"
    waiver = Waiver(finding="rdma_rate", hosts=["node1"], reason="r", owner="anna", until=until)
    check = Findings(
        Verdict.FAIL,
        2,
        [gpus, thp],
        inventory="rack.py",
        at=datetime.now(UTC).isoformat(),
        groups={"node1": "rack1", "node2": "rack1"},
        waivers={"rail": waiver},
        directory=tmp_path / "runs" / "check1",
    )
    (folder / "shakedown-check.prom").write_text(text_of(check, "prometheus"))
    run = a_run(tmp_path)
    figures = run.record.jobs[0].figures
    assert figures
    tokens = figures.model_copy(update={"tokens_per_gpu": figures.throughput_per_gpu})
    run.record.jobs[0] = run.record.jobs[0].model_copy(update={"figures": tokens})
    run.record.gates.append(Gate(name="scaling", verdict=Verdict.FAIL, job="together"))
    (folder / "shakedown-run.prom").write_text(text_of(run, "prometheus"))
    known = {name: {"help": NAMES[name], "labels": LABELS[name]} for name in LABELS}
    counts = {word: int(word == "ok") for word in VERDICTS}
    told = {"node": "node2", "inventory": "rack.py", "verdict": "ok", "at": datetime.now(UTC).timestamp(), "why": ""}
    told |= {"counts": counts, "findings": [{"name": "thp", "verdict": "ok"}], "desired": "a", "program": "b"}
    (folder / "shakedown-agent.prom").write_text(metrics(told, known))
    with (
        node_exporter(folder, tmp_path / "exporter.log") as exporter,
        prometheus(tmp_path, exporter, {"rule_files": [str(RULES)]}) as server,
    ):
        assert server.until('up == 1 and on () shakedown_verdict{source="run"}')
        yield server


def test_every_query_has_series_and_the_alerts_come(tmp_path: Path) -> None:
    with a_site(tmp_path) as server:
        assert [expression for expression in queries() if not server.query(expression)] == []
        found = {
            name: server.until(f'ALERTS{{alertname="{name}"}}')
            for name in ("ShakedownSuspect", "ShakedownDrift", "ShakedownWaiverEnds")
        }
        about = {alert["labels"]["alertname"]: alert["annotations"] for alert in server.alerts()}
    assert all(found.values())
    assert found["ShakedownSuspect"][0]["metric"]["node"] == "node1"
    assert about["ShakedownSuspect"] == {
        "summary": "node1: gpu_count (fail, rack.py)",
        "node": "node1",
        "cause": "gpu_count",
        "remedy": "Reseat the GPU.",
        "report": str(tmp_path / "runs" / "check1"),
    }
