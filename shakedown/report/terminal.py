"""Terminal text: the verdict first, then the nodes that differ and in what, then what to do.

Colour helps and is never the only sign. What is fine is a count, not a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shakedown.desired.sizes import format_size
from shakedown.findings import Finding, Verdict

if TYPE_CHECKING:  # a drift check shows findings only
    from shakedown.runs import RunRecord
    from shakedown.smoke.figures import Figures
    from shakedown.smoke.gates import Gate

COLOURS = {Verdict.OK: "green", Verdict.DRIFT: "yellow", Verdict.FAIL: "red", Verdict.UNKNOWN: "magenta"}


def console(stderr: bool = False) -> Console:
    """A console that folds lines for a terminal and leaves them whole for a pipe, where grep reads them."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def verdict_text(verdict: Verdict) -> str:
    """A verdict with its colour."""
    return f"[{COLOURS[verdict]}]{verdict.value}[/]"


def value_text(value: Any, unit: str | None = None) -> str:
    """A wanted or actual value on one line, with its unit."""
    if value is None:
        return "-"
    if unit == "bytes" and isinstance(value, int | float) and value >= 2**20:
        return f"{format_size(value)}B"  # but an MTU of 9000 stays one
    if unit:
        return f"{value_text(value)} {unit}"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={value_text(item)}" for key, item in value.items())
    if isinstance(value, Sequence):
        return " ".join(value_text(item) for item in value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def findings_table(findings: Sequence[Finding], show_ok: bool = False) -> Table | None:
    """The findings that differ (or all), node by node; None when there is nothing to show."""
    shown = [finding for finding in findings if show_ok or finding.verdict != Verdict.OK]
    if not shown:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("node", "finding", "verdict", "wanted", "actual", "remedy"):
        table.add_column(column, overflow="fold")
    for finding in shown:
        pending = f" ({finding.pending})" if finding.pending else ""
        table.add_row(
            escape(finding.node),
            escape(finding.name),
            verdict_text(finding.verdict) + pending,
            escape(value_text(finding.wanted, finding.unit)),
            escape(_actual(finding)),
            escape(_remedy(finding)),
        )
    return table


def _actual(finding: Finding) -> str:
    text = value_text(finding.actual, finding.unit)
    if finding.persisted is not None and finding.persisted != finding.actual:
        text += f" (next boot: {value_text(finding.persisted, finding.unit)})"
    elif finding.verdict == Verdict.DRIFT and finding.actual == finding.wanted:
        text += " (not kept for the next boot)"
    if finding.verdict != Verdict.OK and finding.evidence:
        text += f" [{finding.evidence}]"
    return text


def _remedy(finding: Finding) -> str:
    if finding.verdict == Verdict.OK or finding.remedy is None:
        return ""
    risk = "" if finding.remedy.risk == "safe" else f" ({finding.remedy.risk})"
    return f"{finding.remedy.text}{risk}"


def findings_summary(findings: Sequence[Finding], nodes: int) -> str:
    """One line: how many nodes and findings, and of which verdicts."""
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in Verdict}
    parts = [f"{count} {verdict_text(verdict)}" for verdict, count in counts.items() if count]
    return f"{nodes} node{'s' if nodes != 1 else ''}, {len(findings)} findings: {', '.join(parts) or 'none'}"


def gates_table(gates: Sequence[Gate]) -> Table:
    """Every gate with what it wanted and what it saw."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("gate", "verdict", "wanted", "actual", "evidence"):
        table.add_column(column, overflow="fold")
    for gate in gates:
        evidence = gate.evidence + (f" -> {gate.remedy}" if gate.remedy and gate.verdict != Verdict.OK else "")
        table.add_row(
            gate.name,
            verdict_text(gate.verdict),
            escape(value_text(gate.wanted, gate.unit)),
            escape(value_text(gate.actual, gate.unit)),
            escape(evidence),
        )
    return table


def figures_table(figures: Figures, expect: Mapping[str, float]) -> Table:
    """The measured figures: the median of the steady iterations, and whether anybody expected one."""
    from shakedown.smoke.figures import METRICS

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("figure", "median", "mean", "unit", "judged"):
        table.add_column(column)
    for name, metric in METRICS.items():
        figure = figures.get(name)
        median, mean = (f"{figure.value:.6g}", f"{figure.mean:.6g}") if figure else ("-", "-")
        judged = f"{metric.direction} {expect[name]:g}" if name in expect else "no: nothing is expected of it"
        table.add_row(name, median, mean, metric.unit, judged)
    return table


def report(record: RunRecord) -> Iterator[Any]:
    """A whole run, from the top: the verdict, the nodes, what differs, the gates."""
    end = record.finished_at or "not finished"
    yield f"{verdict_text(record.verdict)}  run {record.run_id}  {record.started_at} to {end}  {record.inventory}"
    nodes = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("node", "verdict", "part", "rank", "exit", "changed"):
        nodes.add_column(column, overflow="fold")
    for node in record.nodes:
        part = f"{node.part}: {node.why}" if node.why else node.part
        rank = "-" if node.node_rank is None else str(node.node_rank)
        code = "-" if node.exit_code is None else str(node.exit_code)
        nodes.add_row(node.name, verdict_text(node.verdict), part, rank, code, ", ".join(node.changes) or "nothing")
    yield nodes
    yield from (escape(f"{node.name}: {note}") for node in record.nodes for note in node.notes)
    findings = findings_table(record.findings)
    if findings is not None:
        yield findings
    yield findings_summary(record.findings, len(record.nodes))
    if record.gates:
        yield gates_table(record.gates)
    if record.figures and record.plan:
        yield figures_table(record.figures, record.plan.expect)
