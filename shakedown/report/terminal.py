"""Terminal text: the verdict first, then the nodes that differ and in what, then what to do.

Colour helps and is never the only sign. What is fine is a count, not a list.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shakedown.common.text import counted, in_unit, printable
from shakedown.desired.sizes import format_size
from shakedown.hosts import folded, named
from shakedown.report.fold import FoldedGate, fold, fold_gates, passing
from shakedown.state.findings import Finding, Verdict

if TYPE_CHECKING:  # a drift check shows findings only
    from shakedown.gates import Gate
    from shakedown.gates.baselines.model import Baseline
    from shakedown.logs.figures import Figures
    from shakedown.runs.records import JobRecord, RunNode, RunRecord

CELL = 2000
"""Characters of one text of a node that are shown; JSON has the whole."""
WIDEST = 10_000
"""Characters of a line that goes into a pipe."""
FEW = 8
"""Nodes that had a job of their own and are shown each by itself, with its figures beside the others'."""
NARROWEST = 40
"""And of a line anywhere: a table is no use on less."""
COLOURS = {
    Verdict.OK: "green",
    Verdict.WARN: "cyan",
    Verdict.DRIFT: "yellow",
    Verdict.FAIL: "red",
    Verdict.UNKNOWN: "magenta",
}


def console(stderr: bool = False) -> Console:
    """Return a console that folds lines for a terminal, or where $COLUMNS says how wide it is, and leaves them whole
    for a pipe, where grep reads them."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns[:6]) > 0:
        made.width = max(int(columns[:6]), NARROWEST)
    elif not made.is_terminal:
        made.width = WIDEST
    return made


def table(*columns: str) -> Table:
    """Return an empty table: no lines, a blank between two columns, and long words broken where it would not fit."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict with its colour."""
    return f"[{COLOURS[verdict]}]{verdict.value}[/]"


def value_text(value: Any, unit: str | None = None, digits: int = 6) -> str:
    """Return a wanted or actual value on one line, with its unit; `digits` that count of a float."""
    if value is None:
        return "-"
    if unit == "bytes" and isinstance(value, int | float) and value >= 2**20:
        return f"{format_size(value)}B"  # but an MTU of 9000 stays one
    if unit:
        text = value_text(value, None, digits)
        return in_unit(text, unit) if any(map(str.isdigit, text)) else text  # "unlimited" has no unit
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


def findings_table(findings: Sequence[Finding], show_all: bool = False) -> Table | None:
    """Return the findings that differ, those that are the same on several nodes in one row; or (`show_all`) each
    finding of each node. None when there is nothing to show."""
    if show_all:
        shown = [(safe(finding.node), finding) for finding in findings]
    else:
        folds = fold(finding for finding in findings if finding.verdict != Verdict.OK)
        shown = [(safe(one.where), one.finding) for one in folds]
    if not shown:
        return None
    made = table("node", "finding", "verdict", "wanted", "actual", "remedy")
    for where, finding in shown:
        pending = f" ({finding.pending})" if finding.pending else ""
        wanted, actual = shown_values(finding)
        made.add_row(
            where,
            safe(finding.name),
            verdict_text(finding.verdict) + pending,
            *(safe(text) for text in (wanted, actual + _evidence(finding), _remedy(finding))),
        )
    return made


def nodes_that_pass(findings: Sequence[Finding]) -> str:
    """Of several nodes, those of which nothing is to be said: "node[001-127,129]: ok"; else nothing."""
    several = len({finding.node for finding in findings}) > 1
    nodes = passing(findings) if several else []
    return f"{safe(folded(nodes))}: {verdict_text(Verdict.OK)}" if nodes else ""


def safe(text: str) -> str:
    """Return a text that came from outside, for rich: one line of printable characters, and no markup."""
    return escape(printable(text, CELL))


def shown_values(finding: Finding) -> tuple[str, str]:
    """Return what was wanted and what is. Of a finding that is not ok the two differ: values that look alike once they
    are rounded are shown whole, and where only the next boot would be wrong it is named."""
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
    """Return a finding that is not ok on one line of plain text: what was wanted, what is, where that was seen, what to
    do."""
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
    """How many nodes and findings, and of which verdicts; before it, a line of the nodes that are as they should be."""
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in Verdict}
    parts = [f"{count} {verdict_text(verdict)}" for verdict, count in counts.items() if count]
    passing_nodes = nodes_that_pass(findings)
    before = f"{passing_nodes}\n" if passing_nodes else ""
    return f"{before}{counted(nodes, 'node')}, {counted(len(findings), 'finding')}: {', '.join(parts) or 'none'}"


def judgement(gates: Sequence[Gate], jobs: Sequence[JobRecord] = (), show_all: bool = False) -> Iterator[Any]:
    """Yield the gates of a run and the figures of its jobs: where several nodes had jobs of their own, a line for each
    of them, and of their gates those that did not pass; or (`show_all`) each gate of each node."""
    from shakedown.report.trials import of_trials

    measured = [gate for gate in gates if of_trials(gate) and (show_all or gate.verdict != Verdict.OK)]
    if measured:
        yield gates_table(measured, show_all)
    gates = [gate for gate in gates if not of_trials(gate)]
    several = len({gate.node for gate in gates if gate.node is not None}) > 1
    if several:
        yield nodes_table(gates, jobs, show_all)
    shown = [gate for gate in gates if show_all or not several or gate.node is None or gate.verdict != Verdict.OK]
    if shown:
        yield gates_table(shown, show_all)
    for job in jobs:
        if job.iterations and job.figures and job.plan and not (several and job.node):
            yield figures_table(job.figures, job.plan.expect, job.node, job.baselines)
            if job.telemetry:
                from shakedown.report import telemetry

                made = telemetry.table(job.telemetry)
                yield from [made] if made else []
                yield from (safe(line) for line in telemetry.lines(job.telemetry))
        if job.stragglers is not None:
            from shakedown.evidence.stragglers import words

            yield from (safe(line) for line in words.lines(job.stragglers))


def nodes_table(gates: Sequence[Gate], jobs: Sequence[JobRecord], show_all: bool = False) -> Table:
    """Return what each node came to by itself: its verdict, its gates, and its figures beside the median of the
    others'. Of more than a few nodes (unless `show_all`) those that came to the same are one row, with their figures'
    span."""
    from shakedown.gates import verdict as verdict_of
    from shakedown.logs.metrics import METRICS

    own = {job.node: job.figures for job in jobs if job.node is not None}
    found = {
        metric: {node: figure.value for node, figures in own.items() if figures and (figure := figures.get(metric))}
        for metric in METRICS
    }
    columns = {metric: f"{metric} [{METRICS[metric].unit}]" for metric, values in found.items() if values}
    made = table("by itself", "verdict", "gates", *map(safe, columns.values()))
    of_node: dict[str, list[Gate]] = {}
    for gate in gates:
        if gate.node is not None:
            of_node.setdefault(gate.node, []).append(gate)
    rows: dict[tuple[str, ...], list[str]] = {}
    for node, node_gates in of_node.items():
        wrong = [gate.name for gate in node_gates if not gate.verdict.passes]
        count = f"{len(node_gates) - len(wrong)} of {len(node_gates)} ok" + (
            f", not {', '.join(wrong)}" if wrong else ""
        )
        own_row = "" if len(of_node) > FEW and not show_all else node
        rows.setdefault((verdict_text(verdict_of(node_gates)), safe(count), own_row), []).append(node)
    for (verdict, count, _), nodes in rows.items():
        cells = [_beside_others(nodes, found[metric]) for metric in columns]
        made.add_row(safe(folded(nodes)), verdict, count, *cells)
    return made


def _beside_others(nodes: Sequence[str], values: Mapping[str, float]) -> str:
    """Return a node's figure, and what the others have, for information, since nobody has said how near it must be; of
    several nodes the median, and the lowest and the highest with their nodes."""
    measured = sorted((values[node], node) for node in nodes if node in values)
    if not measured:
        return "-"
    if len(nodes) > 1:
        (low, lowest), (high, highest) = measured[0], measured[-1]
        median = statistics.median(value for value, _ in measured)
        return f"{median:.6g} ({low:.6g} on {safe(lowest)} to {high:.6g} on {safe(highest)})"
    others = [value for name, value in values.items() if name != nodes[0]]
    own = f"{measured[0][0]:.6g}"
    return f"{own} (others {statistics.median(others):.6g})" if others else own


def outcome(verdict: Verdict) -> str:
    """Return what a job has come to, in capitals and its colour: it neither passed nor failed where something is not
    known."""
    word = "PASSED" if verdict.passes else "UNKNOWN" if verdict == Verdict.UNKNOWN else "FAILED"
    return f"[{COLOURS[verdict]}]{word}[/]"


def closing(gates: Sequence[Gate]) -> Iterator[str]:
    """Yield what a run came to, in a line for the nodes' own jobs and one for the job over all of them."""
    from shakedown.gates import verdict as verdict_of

    nodes = list(dict.fromkeys(gate.node for gate in gates if gate.node is not None))
    bad = [node for node in nodes if verdict_of(gate for gate in gates if gate.node == node) != Verdict.OK]
    if nodes:
        verdict = outcome(verdict_of(gate for gate in gates if gate.node is not None))
        names = f", not {safe(named(bad))}" if bad else ""
        yield f"each node by itself: {verdict}, {len(nodes) - len(bad)} of {len(nodes)} passed{names}"
    together = [gate for gate in gates if gate.node is None]
    if together or not nodes:
        yield f"smoke run: {outcome(verdict_of(together))}, {counted(len(together), 'gate')}"


def gates_table(gates: Sequence[Gate], show_all: bool = False) -> Table:
    """Every gate with what it wanted and what it saw; those to which several nodes' own jobs came alike in one row,
    unless `show_all`."""
    own = any(gate.node is not None for gate in gates)
    made = table(*(["by itself"] if own else []), "gate", "verdict", "wanted", "actual", "evidence")
    rows = [FoldedGate(gate, (gate.node,) if gate.node else ()) for gate in gates]
    for one in rows if show_all else fold_gates(gates):
        gate = one.gate
        evidence = gate.evidence + (f" -> {gate.remedy}" if gate.remedy and gate.verdict != Verdict.OK else "")
        made.add_row(
            *([safe(one.where)] if own else []),
            safe(gate.name),
            verdict_text(gate.verdict),
            safe(value_text(gate.wanted, gate.unit)),
            safe(value_text(gate.actual, gate.unit)),
            safe(evidence),
        )
    return made


def figures_table(
    figures: Figures,
    expect: Mapping[str, float],
    node: str | None = None,
    baselines: Mapping[str, Baseline] | None = None,
) -> Table:
    """Return the measured figures, of a `node` by itself or of all: the median of the steady iterations, whether
    anybody expected one, and what earlier runs say of it where they were asked."""
    from shakedown.logs.metrics import METRICS

    known = baselines or {}
    first = "figure" if node is None else safe(f"figure of {node} by itself")
    made = table(first, "median", "mean", "unit", "judged", *(["earlier runs"] if known else []))
    for name, metric in METRICS.items():
        figure = figures.get(name)
        median, mean = (f"{figure.value:.6g}", f"{figure.mean:.6g}") if figure else ("-", "-")
        judged = f"{metric.direction} {expect[name]:g}" if name in expect else "no: nothing is expected of it"
        earlier = [safe(str(known[name])) if name in known else "-"] if known else []
        made.add_row(name, median, mean, metric.unit, judged, *earlier)
    return made


def report(record: RunRecord, show_all: bool = False) -> Iterator[Any]:
    """Yield a whole run, from the top: the verdict, the nodes, what differs, the gates. What is the same of several
    nodes is said once; with `show_all` everything of each."""
    from shakedown.evidence.diagnosis import words

    span = f"{record.started_at} to {record.finished_at or 'not finished'}"
    yield f"{verdict_text(record.verdict)}  run {safe(record.run_id)}  {safe(span)}  {safe(record.inventory)}"
    if record.ended_by:
        yield safe(f"ended by {record.ended_by}")
    yield from (escape(line) for line in words.lines(record.diagnosis))
    if record.rolling is not None:
        yield safe(record.rolling.words())
    yield _run_nodes(record.nodes, show_all)
    notes: dict[tuple[str, str], list[str]] = {}
    for node in record.nodes:
        for note in node.notes:
            notes.setdefault((note, node.name if show_all else ""), []).append(node.name)
    yield from (safe(f"{folded(names)}: {note}") for (note, _), names in notes.items())
    findings = findings_table(record.findings, show_all)
    if findings is not None:
        yield findings
    yield findings_summary(record.findings, len(record.nodes))
    if record.trials is not None:
        from shakedown.report import trials

        yield from trials.tables(record.trials)
    if record.gates or record.isolation is None:
        yield from judgement(record.gates, record.jobs, show_all)
    if record.isolation is not None:
        from shakedown.isolation import tree

        yield "\nsearch for bad nodes"
        yield from map(safe, tree.lines(record.isolation))


def _run_nodes(nodes: Sequence[RunNode], show_all: bool) -> Table:
    """Return a run's nodes; those that came to the same are one row, with their ranks."""
    alike: dict[tuple[str, ...], list[RunNode]] = {}
    for node in nodes:
        part = f"{node.part}: {node.why}" if node.why else node.part
        code = "-" if node.exit_code is None else str(node.exit_code)
        content = (verdict_text(node.verdict), safe(part), code, safe(", ".join(node.changes) or "nothing"))
        alike.setdefault((*content, node.name if show_all else ""), []).append(node)
    made = table("node", "verdict", "part", "rank", "exit", "changed")
    for (verdict, part, code, changed, _), group in alike.items():
        ranks = folded(str(node.node_rank) for node in group if node.node_rank is not None).strip("[]") or "-"
        made.add_row(safe(folded(node.name for node in group)), verdict, part, ranks, code, changed)
    return made
