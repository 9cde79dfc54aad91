"""Prometheus' text format, for node_exporter's textfile collector. Names, units and labels: docs/reports.md."""

from collections import Counter
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from shakedown.common.prometheus_names import FIGURES, LABELS, NAMES
from shakedown.common.text import printable
from shakedown.desired.models import TOGETHER
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.overview import Overview, overview
from shakedown.state.findings import Verdict

LABEL = 200  # characters of a label's value
COUNTED = (Verdict.OK, Verdict.WARN, Verdict.DRIFT, Verdict.FAIL, Verdict.UNKNOWN)


class _Gauges:
    """The metrics of one document, each made when it has a first value."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self._known: dict[str, Gauge] = {}

    def set(self, name: str, value: float, **labels: str) -> None:
        if name not in self._known:
            self._known[name] = Gauge(name, NAMES[name], LABELS[name], registry=self.registry)
        self._known[name].labels(**{label: printable(text, LABEL) for label, text in labels.items()}).set(value)

    def text(self) -> str:
        return generate_latest(self.registry).decode("utf-8").rstrip("\n")


def metrics(document: Findings | Judged | Run) -> str:
    """Return the metrics of a document."""
    shown = overview(document)
    gauges = _Gauges()
    for verdict in (Verdict.OK, Verdict.DRIFT, Verdict.FAIL, Verdict.UNKNOWN):
        gauges.set("shakedown_verdict", shown.verdict == verdict, inventory=shown.inventory, verdict=verdict.value)
    if shown.started:
        run_id = shown.title.removeprefix("Run ")
        gauges.set("shakedown_run_info", 1, inventory=shown.inventory, run_id=run_id)
    if shown.finished and (at := _seconds(shown.finished)) is not None:
        gauges.set("shakedown_finished_timestamp_seconds", at, inventory=shown.inventory)
    examined = {"examined": document.nodes} if isinstance(document, Findings) else None
    parts = examined or Counter(node.part for node in shown.nodes)
    for part, count in parts.items():
        gauges.set("shakedown_nodes", count, part=part)
    for run in shown.nodes:
        part = "stopped" if run.stopped else run.part
        gauges.set("shakedown_node_verdict", 1, node=run.name, part=part, verdict=run.verdict.value)
    counts = Counter((finding.node, finding.verdict) for finding in shown.findings)
    for node in shown.names:
        for verdict in COUNTED:
            gauges.set("shakedown_findings", counts[node, verdict], node=node, verdict=verdict.value)
    for finding in shown.findings:
        if finding.verdict != Verdict.OK:
            labels = {"node": finding.node, "finding": finding.name, "verdict": finding.verdict.value}
            gauges.set("shakedown_finding_not_ok", 1, **labels)
    for gate in shown.gates:
        gauges.set("shakedown_gate_verdict", 1, job=gate.job, gate=gate.name, verdict=gate.verdict.value)
    _set_figures(gauges, shown)
    return gauges.text()


def _set_figures(gauges: _Gauges, shown: Overview) -> None:
    for job in shown.jobs:
        for metric, (name, _doc, factor) in FIGURES.items():
            figure = job.figures.get(metric) if job.figures else None
            if figure is not None:
                recipe = job.plan.recipe if job.plan else ""
                gauges.set(name, figure.value * factor, job=job.name, recipe=recipe)
    for recorded in shown.recorded:
        if recorded.name in FIGURES and recorded.value is not None:
            name, _doc, factor = FIGURES[recorded.name]
            gauges.set(name, recorded.value * factor, job=TOGETHER, recipe="")


def _seconds(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).astimezone(UTC).timestamp()
    except ValueError:  # a record from elsewhere
        return None
