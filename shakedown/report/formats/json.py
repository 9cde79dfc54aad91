"""One JSON document, indented by one."""

import json
from collections.abc import Iterator

from shakedown.report.formats import (
    Calibrated,
    Compared,
    Desired,
    Findings,
    InService,
    Judged,
    Plans,
    Remembered,
    Run,
    SiteLayer,
    shows,
)
from shakedown.state.findings import Verdict


@shows(Findings)
def findings(document: Findings) -> Iterator[str]:
    rows = [finding.model_dump(mode="json") for finding in document.findings]
    counts = {verdict: sum(finding.verdict == verdict for finding in document.findings) for verdict in Verdict}
    yield json.dumps(
        {"verdict": document.verdict, "nodes": document.nodes, "counts": counts, "findings": rows}, indent=1
    )


@shows(Judged)
def judged(document: Judged) -> Iterator[str]:
    whole = {
        "verdict": document.verdict,
        "gates": [gate.model_dump(mode="json") for gate in document.gates],
        "recorded": [figure.model_dump(mode="json") for figure in document.recorded],
        "notes": list(document.notes),
        "diagnosis": document.diagnosis.model_dump(mode="json") if document.diagnosis else None,
    }
    yield json.dumps(whole, indent=1)


@shows(Run)
def run(document: Run) -> Iterator[str]:
    yield document.record.model_dump_json(indent=1)


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = {path: {"value": value, "layer": layer} for path, (value, layer) in document.values.items()}
    yield json.dumps({"host": document.host, "desired": rows}, indent=1)


@shows(Plans)
def plans(document: Plans) -> Iterator[str]:
    """One plan by itself where it is the only one and over all nodes, as it was before a run could have several."""
    from shakedown.desired.models import TOGETHER  # 100 ms of models, which few documents need

    if document.plans and set(document.plans) != {TOGETHER}:
        rows = {name: plan.model_dump(mode="json") for name, plan in document.plans.items()}
        yield json.dumps(rows, indent=1)
    else:
        yield from (plan.model_dump_json(indent=1) for plan in document.plans.values())


@shows(SiteLayer)
def layer(document: SiteLayer) -> Iterator[str]:
    """Yield the layer, what is open in it, and the remarks."""
    imported = document.imported
    remarks = {"derived": imported.derived, "refused": imported.refused, "flagged": imported.flagged}
    whole = {
        "layer": imported.values,
        "open": [{"path": item.path, "value": item.value, "expected": item.expected} for item in imported.open],
        **{
            kind: [{"path": item.path, "value": item.value, "why": item.why} for item in found]
            for kind, found in remarks.items()
        },
    }
    yield json.dumps(whole, indent=1)


@shows(Remembered)
def remembered(document: Remembered) -> Iterator[str]:
    yield document.history.model_dump_json(indent=1)


@shows(Compared)
def compared(document: Compared) -> Iterator[str]:
    yield document.comparison.model_dump_json(indent=1)


@shows(Calibrated)
def calibrated(document: Calibrated) -> Iterator[str]:
    rows = [row.model_dump(mode="json") for row in document.rows]
    yield json.dumps({"runs": list(document.runs), "baselines": rows}, indent=1)


@shows(InService)
def in_service(document: InService) -> Iterator[str]:
    board = document.board
    whole = {
        "verdict": board.verdict,
        "nodes": [node.model_dump(mode="json") for node in board.nodes],
        "marks": [str(mark) for mark in board.marks],
        "notes": list(board.notes),
    }
    yield json.dumps(whole, indent=1)
