"""One JSON document, indented by one, in ASCII: a terminal obeys no character of a node, and none is hidden."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic_core import to_json

from shakedown.desired.cvs.document import Kind
from shakedown.report import formats
from shakedown.report.formats import Findings, SiteLayer, shows
from shakedown.state.findings import Verdict


def _findings(document: Findings) -> dict[str, Any]:
    verdicts = [finding.verdict for finding in document.findings]
    counts = {verdict: verdicts.count(verdict) for verdict in Verdict}
    whole = {"verdict": document.verdict, "nodes": document.nodes, "counts": counts, "findings": document.findings}
    return {**whole, **({"plan": document.plan} if document.plan else {})}


def _layer(document: SiteLayer) -> dict[str, Any]:
    imported = document.imported
    return {
        "layer": imported.values,
        "open": [{"path": item.path, "value": item.value, "expected": item.expected} for item in imported.open],
        **{
            kind: [{"path": item.path, "value": item.value, "why": item.why} for item in imported.of_kind(kind)]
            for kind in get_args(Kind)
        },
    }


def _desired(document: formats.Desired) -> dict[str, Any]:
    rows = {path: {"value": value, "layer": layer} for path, (value, layer) in document.values.items()}
    return {"host": document.host, "desired": rows}


def _service(document: formats.InService) -> dict[str, Any]:
    board = document.board
    marks = [str(mark) for mark in board.marks]
    return {"verdict": board.verdict, "nodes": board.nodes, "marks": marks, "notes": board.notes}


def _judged(document: formats.Judged) -> dict[str, Any]:
    return {name: getattr(document, name) for name in ("verdict", "gates", "recorded", "notes", "diagnosis")}


def _plans(document: formats.Plans) -> Any:
    lacking = {
        name: {"problems": [line.strip() for line in text.splitlines()[1:]] or [text]}
        for name, text in document.problems.items()
    }
    jobs = {**document.plans, **lacking}
    return jobs["together"] if {*jobs} == {"together"} else jobs


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    Findings: _findings,
    formats.Judged: _judged,
    formats.Desired: _desired,
    SiteLayer: _layer,
    formats.Calibrated: lambda document: {"runs": document.runs, "baselines": document.rows},
    formats.Waivers: lambda document: {"waivers": document.rows},
    formats.InService: _service,
    formats.Run: lambda document: document.record,
    formats.Remembered: lambda document: document.history,
    formats.Compared: lambda document: document.comparison,
    formats.Reliable: lambda document: document.answer,
    formats.Plans: _plans,
}


def _content(document: Any) -> Iterator[str]:
    """Yield a document as pydantic writes it, with the models in it: a rack's findings are many."""
    yield to_json(_CONTENTS[type(document)](document), indent=1, ensure_ascii=True).decode()


for kind in _CONTENTS:
    shows(kind)(_content)


def lines(document: Findings) -> Iterator[str]:
    """Yield one JSON object on each line, for programs that read line by line."""
    yield from (finding.model_dump_json(ensure_ascii=True) for finding in document.findings)
