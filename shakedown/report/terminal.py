"""Terminal text: the verdict first, then the nodes that differ and in what, then what to do.

Colour helps and is never the only sign. What is fine is a count, not a list.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shakedown.desired.sizes import format_size
from shakedown.findings import Finding, Verdict
from shakedown.text import printable

if TYPE_CHECKING:  # a drift check shows findings only
    from shakedown.runs import JobRecord, RunRecord
    from shakedown.smoke.figures import Figures
    from shakedown.smoke.gates import Gate

CELL = 2000
"""Characters of one text of a node that are shown; JSON has the whole."""
COLOURS = {
    Verdict.OK: "green",
    Verdict.WARN: "cyan",
    Verdict.DRIFT: "yellow",
    Verdict.FAIL: "red",
    Verdict.UNKNOWN: "magenta",
}


def console(stderr: bool = False) -> Console:
    """A console that folds lines for a terminal and leaves them whole for a pipe, where grep reads them."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def verdict_text(verdict: Verdict) -> str:
    """A verdict with its colour."""
    return f"[{COLOURS[verdict]}]{verdict.value}[/]"


def value_text(value: Any, unit: str | None = None, digits: int = 6) -> str:
    """A wanted or actual value on one line, with its unit; `digits` that count of a float."""
    if value is None:
        return "-"
    if unit == "bytes" and isinstance(value, int | float) and value >= 2**20:
        return f"{format_size(value)}B"  # but an MTU of 9000 stays one
    if unit:
        text = value_text(value, None, digits)
        return f"{text} {unit}" if any(map(str.isdigit, text)) else text  # "unlimited" has no unit
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={value_text(item, None, digits)}" for key, item in value.items())
    if isinstance(value, Sequence):
        return " ".join(value_text(item, None, digits) for item in value) or "none"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
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
        wanted, actual = shown_values(finding)
        table.add_row(
            safe(finding.node),
            safe(finding.name),
            verdict_text(finding.verdict) + pending,
            *(safe(text) for text in (wanted, actual + _evidence(finding), _remedy(finding))),
        )
    return table


def safe(text: str) -> str:
    """A text that came from outside, for rich: one line of printable characters, and no markup."""
    return escape(printable(text, CELL))


def shown_values(finding: Finding) -> tuple[str, str]:
    """What was wanted and what is. Of a finding that is not ok the two differ: values that look alike once they are
    rounded are shown whole, and where only the next boot would be wrong it is named."""
    if finding.verdict == Verdict.OK:
        return value_text(finding.wanted, finding.unit), value_text(finding.actual, finding.unit)
    wanted, actual = (value_text(value, finding.unit, digits=12) for value in (finding.wanted, finding.actual))
    if _alike(finding.wanted, finding.actual) or (wanted == actual and str(finding.wanted) != str(finding.actual)):
        wanted, actual = str(finding.wanted), str(finding.actual)
    if finding.persisted is not None and str(finding.persisted) != str(finding.actual):
        actual += f" (next boot: {value_text(finding.persisted, finding.unit)})"
    return wanted, actual


def _alike(one: Any, other: Any) -> bool:
    """Whether two different sizes are so near that rounding would hide or blur which is larger."""
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and 0 < abs(one - other) <= abs(one) / 100


def finding_line(finding: Finding, verdict: str | None = None) -> str:
    """A finding that is not ok on one line of plain text: what was wanted, what is, where that was seen, what to do."""
    wanted, actual = shown_values(finding)
    pending = f" ({finding.pending})" if finding.pending and verdict is None else ""
    remedy = _remedy(finding)
    text = f"{finding.name}: {verdict or finding.verdict}{pending}: wanted {wanted}, actual {actual}"
    return printable(f"{text}{_evidence(finding)}{' -> ' if remedy else ''}{remedy}", 2 * CELL)


def _evidence(finding: Finding) -> str:
    return f" [{finding.evidence}]" if finding.verdict != Verdict.OK and finding.evidence else ""


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


def judgement(gates: Sequence[Gate], jobs: Sequence[JobRecord] = ()) -> Iterator[Any]:
    """The gates of a run and the figures of its jobs: where several nodes had jobs of their own, a line for each of
    them, and of their gates those that did not pass."""
    several = len({gate.node for gate in gates if gate.node is not None}) > 1
    if several:
        yield nodes_table(gates, jobs)
    shown = [gate for gate in gates if not several or gate.node is None or gate.verdict != Verdict.OK]
    if shown:
        yield gates_table(shown)
    for job in jobs:
        if job.iterations and job.figures and job.plan and not (several and job.node):
            yield figures_table(job.figures, job.plan.expect, job.node)


def nodes_table(gates: Sequence[Gate], jobs: Sequence[JobRecord]) -> Table:
    """What each node came to by itself: its verdict, its gates, and its figures beside the median of the others'."""
    from shakedown.smoke.figures import METRICS
    from shakedown.smoke.gates import verdict as verdict_of

    own = {job.node: job.figures for job in jobs if job.node is not None}
    found = {
        metric: {node: figure.value for node, figures in own.items() if figures and (figure := figures.get(metric))}
        for metric in METRICS
    }
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    columns = [f"{metric} [{METRICS[metric].unit}]" for metric, values in found.items() if values]
    for column in ("by itself", "verdict", "gates", *columns):
        table.add_column(safe(column), overflow="fold")
    for node in dict.fromkeys(gate.node for gate in gates if gate.node is not None):
        its = [gate for gate in gates if gate.node == node]
        wrong = [gate.name for gate in its if gate.verdict != Verdict.OK]
        cells = [_beside_others(node, values) for values in found.values() if values]
        count = f"{len(its) - len(wrong)} of {len(its)} ok" + (f", not {', '.join(wrong)}" if wrong else "")
        table.add_row(safe(node), verdict_text(verdict_of(its)), safe(count), *cells)
    return table


def _beside_others(node: str, values: Mapping[str, float]) -> str:
    """A node's figure, and what the others have: for information, since nobody has said how near it must be."""
    others = [value for name, value in values.items() if name != node]
    own = f"{values[node]:.6g}" if node in values else "-"
    return f"{own} (others {statistics.median(others):.6g})" if others else own


def closing(gates: Sequence[Gate]) -> Iterator[str]:
    """What a run came to, in a line for the nodes' own jobs and one for the job over all of them."""
    from shakedown.smoke.gates import verdict as verdict_of

    nodes = list(dict.fromkeys(gate.node for gate in gates if gate.node is not None))
    bad = [node for node in nodes if verdict_of(gate for gate in gates if gate.node == node) != Verdict.OK]
    if nodes:
        verdict = "[red]FAILED[/]" if bad else "[green]PASSED[/]"
        names = f", not {safe(', '.join(bad))}" if bad else ""
        yield f"each node by itself: {verdict}, {len(nodes) - len(bad)} of {len(nodes)} passed{names}"
    together = [gate for gate in gates if gate.node is None]
    if together or not nodes:
        verdict = "[green]PASSED[/]" if verdict_of(together) == Verdict.OK else "[red]FAILED[/]"
        yield f"smoke run: {verdict}, {len(together)} gates"


def gates_table(gates: Sequence[Gate]) -> Table:
    """Every gate with what it wanted and what it saw."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    own = any(gate.node is not None for gate in gates)
    for column in (*(["by itself"] if own else []), "gate", "verdict", "wanted", "actual", "evidence"):
        table.add_column(column, overflow="fold")
    for gate in gates:
        evidence = gate.evidence + (f" -> {gate.remedy}" if gate.remedy and gate.verdict != Verdict.OK else "")
        table.add_row(
            *([safe(gate.node or "")] if own else []),
            safe(gate.name),
            verdict_text(gate.verdict),
            safe(value_text(gate.wanted, gate.unit)),
            safe(value_text(gate.actual, gate.unit)),
            safe(evidence),
        )
    return table


def figures_table(figures: Figures, expect: Mapping[str, float], node: str | None = None) -> Table:
    """The measured figures, of a `node` by itself or of all: the median of the steady iterations, and whether anybody
    expected one."""
    from shakedown.smoke.figures import METRICS

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    first = "figure" if node is None else safe(f"figure of {node} by itself")
    for column in (first, "median", "mean", "unit", "judged"):
        table.add_column(column)
    for name, metric in METRICS.items():
        figure = figures.get(name)
        median, mean = (f"{figure.value:.6g}", f"{figure.mean:.6g}") if figure else ("-", "-")
        judged = f"{metric.direction} {expect[name]:g}" if name in expect else "no: nothing is expected of it"
        table.add_row(name, median, mean, metric.unit, judged)
    return table


def report(record: RunRecord) -> Iterator[Any]:
    """A whole run, from the top: the verdict, the nodes, what differs, the gates."""
    span = f"{record.started_at} to {record.finished_at or 'not finished'}"
    yield f"{verdict_text(record.verdict)}  run {safe(record.run_id)}  {safe(span)}  {safe(record.inventory)}"
    nodes = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("node", "verdict", "part", "rank", "exit", "changed"):
        nodes.add_column(column, overflow="fold")
    for node in record.nodes:
        part = f"{node.part}: {node.why}" if node.why else node.part
        rank = "-" if node.node_rank is None else str(node.node_rank)
        code = "-" if node.exit_code is None else str(node.exit_code)
        changed = safe(", ".join(node.changes) or "nothing")
        nodes.add_row(safe(node.name), verdict_text(node.verdict), safe(part), rank, code, changed)
    yield nodes
    yield from (safe(f"{node.name}: {note}") for node in record.nodes for note in node.notes)
    findings = findings_table(record.findings)
    if findings is not None:
        yield findings
    yield findings_summary(record.findings, len(record.nodes))
    yield from judgement(record.gates, record.jobs)
