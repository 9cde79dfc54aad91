"""One JSON document, indented by one."""

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

from shakedown.report.formats import (
    Calibrated,
    Compared,
    Desired,
    Findings,
    InService,
    Judged,
    Plans,
    Reliable,
    Remembered,
    Run,
    SiteLayer,
    Waivers,
    shows,
)
from shakedown.state.findings import Verdict


def _text(document: Any) -> str:
    """Return a document as pydantic writes it, with the models in it: a rack's findings are many."""
    return to_json(document, indent=1).decode()


@shows(Findings)
def findings(document: Findings) -> Iterator[str]:
    counts = {verdict: sum(finding.verdict == verdict for finding in document.findings) for verdict in Verdict}
    whole = {"verdict": document.verdict, "nodes": document.nodes, "counts": counts, "findings": document.findings}
    yield _text({**whole, **({"plan": document.plan} if document.plan else {})})


@shows(Judged)
def judged(document: Judged) -> Iterator[str]:
    whole = {
        "verdict": document.verdict,
        "gates": document.gates,
        "recorded": document.recorded,
        "notes": document.notes,
        "diagnosis": document.diagnosis,
    }
    yield _text(whole)


@shows(Run)
def run(document: Run) -> Iterator[str]:
    yield document.record.model_dump_json(indent=1)


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = {path: {"value": value, "layer": layer} for path, (value, layer) in document.values.items()}
    yield _text({"host": document.host, "desired": rows})


@shows(Plans)
def plans(document: Plans) -> Iterator[str]:
    """One plan by itself where it is the only one and over all nodes, as it was before a run could have several."""
    from shakedown.desired.models import TOGETHER  # 100 ms of models, which few documents need

    if document.plans and set(document.plans) != {TOGETHER}:
        yield _text(document.plans)
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
    yield _text(whole)


@shows(Remembered)
def remembered(document: Remembered) -> Iterator[str]:
    yield document.history.model_dump_json(indent=1)


@shows(Compared)
def compared(document: Compared) -> Iterator[str]:
    yield document.comparison.model_dump_json(indent=1)


@shows(Calibrated)
def calibrated(document: Calibrated) -> Iterator[str]:
    yield _text({"runs": document.runs, "baselines": document.rows})


@shows(Reliable)
def reliable(document: Reliable) -> Iterator[str]:
    yield document.answer.model_dump_json(indent=1)


@shows(Waivers)
def waivers(document: Waivers) -> Iterator[str]:
    yield _text({"waivers": document.rows})


@shows(InService)
def in_service(document: InService) -> Iterator[str]:
    board = document.board
    whole = {
        "verdict": board.verdict,
        "nodes": board.nodes,
        "marks": [str(mark) for mark in board.marks],
        "notes": board.notes,
    }
    yield _text(whole)
