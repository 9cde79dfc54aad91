"""Markdown: a document for a ticket or a chat, and the ticket to a vendor about one node. The texts are templates,
`document.jinja` and `ticket.jinja`."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.diagnosis.words import evidence
from shakedown.evidence.stragglers.model import OWN_TIMES_HEADER, own_times_rows
from shakedown.evidence.stragglers.model import lines as straggler_lines
from shakedown.hosts import folded
from shakedown.logs.metrics import METRICS
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.overview import overview
from shakedown.report.terminal import value_text
from shakedown.runs.directory import RunRecord
from shakedown.service.marks import step_line
from shakedown.service.model import Step
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable

ROWS = 50  # of one table: a ticket is read by people
LINES = 20  # of evidence, of findings and of earlier repairs
TEXT = 300  # characters of one cell
_MARKS = re.compile(r"([\\`*_\[\]<>|~#&]|:(?=//)|(?<=www)\.)", re.I)  # of an address too: it would become a link
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def markdown(document: Findings | Judged | Run) -> str:
    """Return a document as one text."""
    shown = overview(document)
    measured = [(job, job.figures, job.plan) for job in shown.jobs if job.figures and job.plan]
    compared = [(job.node, job.stragglers) for job in shown.jobs if job.stragglers]
    return _rendered(
        "document.jinja",
        shown=shown,
        held=sum(gate.verdict == Verdict.OK for gate in shown.gates),
        figures=[
            {"job": job.name, "name": name, "figure": figure, "metric": metric, "bound": plan.expect.get(name)}
            for job, figures, plan in measured
            for name, metric in METRICS.items()
            if (figure := figures.get(name))
        ],
        own_times=[(node, list(straggler_lines(found)), own_times_rows(found)) for node, found in compared],
    )


def code(text: str) -> str:
    """Return foreign text as a code span without markup or mentions: between more backticks than it has in a row."""
    text = printable(text, TEXT).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text.strip() else ""


def words(text: str) -> str:
    """Return a text of ours that may hold words of others: without markup, links or mentions."""
    return _MENTION.sub("`@`", _MARKS.sub(r"\\\1", printable(text, TEXT)))


def candidates(record: RunRecord) -> list[str]:
    """Return the nodes that a run names, by its diagnosis, else its search's suspects, else its failures."""
    found = record.diagnosis
    if found is not None and found.origin:
        return list(found.origin)
    result = record.isolation.result if record.isolation else None
    suspects = [node for suspect in result.suspects for node in suspect.nodes] if result else []
    return list(dict.fromkeys(suspects)) or [node.name for node in record.nodes if node.verdict == Verdict.FAIL]


def text_of(record: RunRecord, node: str, state: NodeState | None, steps: Sequence[Step] = ()) -> str:
    """Return the ticket of a node. `state`: as the node was before the run; `steps`: earlier repairs, by the ledger."""
    found = record.diagnosis
    named = found is not None and node in found.origin
    wrong = [finding for finding in record.findings if finding.node == node and not finding.verdict.passes]
    signs = found.evidence if found else ()
    own = [sign for sign in signs if sign.node == node]
    others = [sign for sign in signs if sign.node != node]
    quoted = " ".join([*(sign.text for sign in signs), *(value_text(finding.actual) for finding in wrong)])
    trainings = record.isolation.trainings if record.isolation else []
    ticket = _rendered(
        "ticket.jinja",
        record=record,
        node=node,
        state=state,
        named=named,
        cause=found.cause if found and named else wrong[0].name if wrong else "fails in training",
        parts=list(_parts(state, quoted)) if state else [],
        signs=[*own, *others[:2]] if named else [],
        wrong=wrong,
        changes=[part.changes for part in record.nodes if part.name == node and part.changes],
        trained=[training.outcome for training in trainings if node in training.group.nodes],
        steps=steps,
    )
    return ticket + "\n"


def _parts(state: NodeState, quoted: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU and NIC; bold is what the evidence names by its PCI address or name."""

    def part(kind: str, *names: str) -> str:
        return f"**{kind}**" if any(re.search(rf"\b{re.escape(name)}\b", quoted) for name in names) else kind

    for gpu in [] if is_unreadable(state.gpus) else state.gpus:
        yield part("GPU", gpu.bdf), code(gpu.bdf), *map(_value, (gpu.model, gpu.serial, gpu.driver, gpu.firmware))
    for nic in [] if is_unreadable(state.rdma) else state.rdma:
        readings = map(_value, (nic.guid, nic.driver, nic.firmware))
        yield part("NIC", nic.name, str(nic.bdf)), _value(nic.bdf), code(nic.name), *readings


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{words(block)} {_value(version)}" for block, version in value.items())
    return "unknown" if value is None or is_unreadable(value) else words(printable(str(value), 200))


def _rendered(name: str, **values: Any) -> str:
    return _environment().get_template(name).render(**values).rstrip("\n")


@cache
def _environment() -> Environment:
    loader = PackageLoader("shakedown.report", "")
    made = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals |= {"most": ROWS, "lines": LINES, "own_times_header": OWN_TIMES_HEADER}
    made.filters |= {"code": code, "words": words, "reading": _value, "value": value_text, "evidence": evidence}
    made.filters |= {"counted": counted, "decimal": decimal, "folded": folded, "step_line": step_line}
    return made
