"""Prometheus' text format, for node_exporter's textfile collector. Names, units and labels: docs/reports.md."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from shakedown.common.prometheus_names import FIGURES, LABELS, LONGEST, NAMES, inventory_label
from shakedown.common.text import printable
from shakedown.desired.models import TOGETHER
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.overview import Action, Overview, overview
from shakedown.report.page.squares import moment
from shakedown.service import evidence
from shakedown.state.findings import Verdict, worst

COUNTED = (Verdict.OK, Verdict.WARN, Verdict.DRIFT, Verdict.FAIL, Verdict.UNKNOWN)


class _Gauges:
    """The metrics of one document, each made when it has a first value."""

    def __init__(self, inventory: str, source: str) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self._common = (printable(inventory_label(inventory), LONGEST), source)
        self._known: dict[str, Gauge] = {}

    def set(self, name: str, value: float, *values: str) -> None:
        """Set one series. `values`: of the labels beside the common ones, in the order of LABELS."""
        if name not in self._known:
            self._known[name] = Gauge(name, NAMES[name], LABELS[name], registry=self.registry)
        self._known[name].labels(*self._common, *(printable(text, LONGEST) for text in values)).set(value)

    def text(self) -> str:
        return generate_latest(self.registry).decode("utf-8").rstrip("\n")


def metrics(document: Findings | Judged | Run) -> str:
    """Return the metrics of a document."""
    shown = overview(document)
    kind = document.record.kind if isinstance(document, Run) else "judge"
    gauges = _Gauges(shown.inventory, document.source if isinstance(document, Findings) else kind)
    for verdict in (Verdict.OK, Verdict.DRIFT, Verdict.FAIL, Verdict.UNKNOWN):
        gauges.set("shakedown_verdict", shown.verdict == verdict, verdict.value)
    directory = None if isinstance(document, Judged) else document.directory
    run_id = document.record.run_id if isinstance(document, Run) else directory.name if directory else ""
    if run_id:
        gauges.set("shakedown_run_info", 1, run_id, str(directory.absolute()) if directory else "")
    if at := moment(shown.finished):
        gauges.set("shakedown_finished_timestamp_seconds", at.timestamp())
    examined = {"examined": document.nodes} if isinstance(document, Findings) else None
    parts = examined or Counter(node.part for node in shown.nodes)
    for part, count in parts.items():
        gauges.set("shakedown_nodes", count, part)
    counts = Counter((finding.node, finding.verdict) for finding in shown.findings)
    for name, part, verdict in _nodes(shown, counts):
        gauges.set("shakedown_node_verdict", 1, name, shown.groups.get(name, ""), part, verdict.value)
    for node in shown.names:
        for verdict in COUNTED:
            gauges.set("shakedown_findings", counts[node, verdict], node, verdict.value)
    for finding in shown.findings:
        if finding.verdict != Verdict.OK:
            gauges.set("shakedown_finding_not_ok", 1, finding.node, finding.name, finding.verdict.value)
    _set_causes(gauges, document, shown)
    for gate in shown.gates:
        gauges.set("shakedown_gate_verdict", 1, gate.job, gate.name, gate.verdict.value)
    _set_figures(gauges, shown)
    return gauges.text()


def _nodes(shown: Overview, counts: Mapping[tuple[str, Verdict], int]) -> Iterator[tuple[str, str, Verdict]]:
    """Yield each node with its part and verdict: that of a run, or the worst of its findings."""
    for run in shown.nodes:
        yield run.name, "stopped" if run.stopped else str(run.part), run.verdict
    for node in () if shown.nodes else shown.names:
        yield node, "examined", worst([verdict for verdict in COUNTED if counts[node, verdict]])


def _set_causes(gauges: _Gauges, document: Findings | Judged | Run, shown: Overview) -> None:
    """Set the causes of all nodes, and the suspects: the nodes that incidents take out of service."""
    record = document.record if isinstance(document, Run) else None
    diagnosis = record.diagnosis if record else document.diagnosis if isinstance(document, Judged) else None
    found = evidence.incidents(record) if record else evidence.from_findings(shown.findings, 0)
    suspects = {incident.node for incident in found if incident.drains or incident.source == "isolation"}
    if isinstance(document, Judged) and diagnosis and diagnosis.confidence == "certain":
        suspects |= set(diagnosis.origin)
    causes: dict[tuple[str, str], Action] = {}
    for action in shown.actions:
        if not action.verdict.passes:
            cause = diagnosis.name if diagnosis and action.what == "diagnosis" else action.what
            causes.update({(node, cause): action for node in action.nodes if (node, cause) not in causes})
    for (node, cause), action in causes.items():
        gauges.set("shakedown_cause_info", 1, node, cause, action.verdict.value, action.remedy)
        if node in suspects and (action.verdict == Verdict.FAIL or action.follows):
            gauges.set("shakedown_suspect", 1, node, cause)
    if isinstance(document, Findings):
        for name, waiver in document.waivers.items():
            last = datetime.fromisoformat(waiver.until).replace(tzinfo=UTC) + timedelta(days=1)
            gauges.set("shakedown_waiver_end_timestamp_seconds", last.timestamp(), name, waiver.owner)


def _set_figures(gauges: _Gauges, shown: Overview) -> None:
    for job in shown.jobs:
        for metric, known in FIGURES.items():
            figure = job.figures.get(metric) if job.figures else None
            if figure is not None:
                recipe = job.plan.recipe if job.plan else ""
                gauges.set(known["name"], figure.mean * known["factor"], job.name, recipe)
    for recorded in shown.recorded:
        if recorded.name in FIGURES and recorded.value is not None:
            known = FIGURES[recorded.name]
            gauges.set(known["name"], recorded.value * known["factor"], TOGETHER, "")
