"""What came of a run on a terminal: its gates, its figures, its nodes, and the whole of it."""

import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.constrain import Constrain
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.diagnosis.words import grounds, headline
from shakedown.evidence.diagnosis.words import lines as diagnosis_lines
from shakedown.evidence.stragglers.model import lines as straggler_lines
from shakedown.gates import Gate
from shakedown.gates import verdict as verdict_of
from shakedown.gates.baselines.model import Baseline
from shakedown.hosts import few, folded, named
from shakedown.isolation import tree
from shakedown.logs.figures import Figures
from shakedown.logs.metrics import METRICS
from shakedown.report import failure, screen, telemetry, trials
from shakedown.report.causes import FoldedGate, causes, fold_gates
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.summary import LINES, fitted, summary_lines
from shakedown.report.terminal import COLOURS, Line, safe, table, value_text, verdict_text
from shakedown.report.trials import of_trials
from shakedown.runs.directory import JobRecord, RunNode, RunRecord
from shakedown.state.findings import Verdict, worst

END = 9  # lines of an end below findings on the same screen, at least
CUT = 60  # characters of the evidence of a gate that passed
_SEEN = 24  # characters of what a gate that passed has seen
_WHY = 60  # characters of the causes why nodes did not take part
_ABSENT = 32  # columns of the nodes that did not take part
FEW = 8
"""Nodes that had a job of their own and are shown each by itself, with its figures beside the others'."""


def shown(document: Judged | Run) -> Iterator[RenderableType]:
    """Yield what a run, or a log, came to."""
    if isinstance(document, Run):
        parts = report(document.record, document.show_all, document.directory, document.seen)
    else:
        parts = judged(document)
    for part in parts:
        made = Text.from_markup(part) if isinstance(part, str) else part  # a text alone would be written as it stands
        yield made if document.show_all else constrained(made)


def constrained(part: Any) -> Any:
    """Return a table in the columns of a screen, in a pipe too; another part as it is."""
    return Constrain(part, screen.COLUMNS) if isinstance(part, Table) else part


def _fixed(lines: Iterable[str]) -> Iterator[Text]:
    """Yield lines as they are: those of a screen fit, and the place of a report is never broken."""
    return (Text(line, no_wrap=True) for line in lines)


def judgement(
    gates: Sequence[Gate], jobs: Sequence[JobRecord] = (), show_all: bool = False, folded_when_ok: bool = True
) -> Iterator[Any]:
    """Yield a run's gates and its jobs' figures; single-node jobs have a line each, and their gates that failed, or all
    with `show_all`. Gates that all passed are a sentence, or (not `folded_when_ok`) a table."""
    measured = [gate for gate in gates if of_trials(gate) and (show_all or gate.verdict != Verdict.OK)]
    if measured:
        yield gates_table(measured, show_all)
    gates = trials.of_training(gates)
    several = len({gate.node for gate in gates if gate.node is not None}) > 1
    if several:
        yield nodes_table(gates, jobs, show_all)
    shown = [gate for gate in gates if show_all or not several or gate.node is None or gate.verdict != Verdict.OK]
    if folded_when_ok and not show_all and shown and all(gate.verdict == Verdict.OK for gate in shown):
        yield from map(escape, passed(shown))
    elif shown:
        yield gates_table(shown, show_all)
    for job in jobs:
        if job.iterations and job.figures and job.plan and not (several and job.node):
            yield figures_table(job.figures, job.plan.expect, job.node, job.baselines)
            if job.telemetry:
                made = telemetry.table(job.telemetry)
                yield from [made] if made else []
                yield from (safe(line) for line in telemetry.lines(job.telemetry))
        if job.stragglers is not None:
            yield from (safe(line) for line in straggler_lines(job.stragglers))


def passed(gates: Sequence[Gate]) -> list[str]:
    """Return gates that passed as a sentence: each with what was seen."""
    seen = []
    for gate in gates:
        actual = printable(value_text(gate.actual, gate.unit))
        seen.append(f"{gate.name} {actual}" if gate.actual is not None and len(actual) <= _SEEN else gate.name)
    text = f"gates: {len(gates)} of {len(gates)} passed: {', '.join(map(printable, seen))}"
    return textwrap.wrap(text, screen.COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def nodes_table(gates: Sequence[Gate], jobs: Sequence[JobRecord], show_all: bool = False) -> Table:
    """Return the result of each single-node job beside the others' median; of many nodes (unless `show_all`) equal
    results are one row."""

    own = {job.node: job.figures for job in jobs if job.node is not None}
    found = {
        metric: {node: figure.value for node, figures in own.items() if figures and (figure := figures.get(metric))}
        for metric in METRICS
    }
    columns = {metric: f"{metric} [{METRICS[metric].unit}]" for metric, values in found.items() if values}
    made = table("single node", "verdict", "gates", *map(safe, columns.values()))
    of_node = grouped((gate.node, gate) for gate in gates if gate.node is not None)
    rows: dict[tuple[str, ...], list[str]] = {}
    for node, node_gates in of_node.items():
        wrong = [gate.name for gate in node_gates if not gate.verdict.passes]
        count = f"{len(node_gates) - len(wrong)} of {len(node_gates)} ok"
        count += f", not {', '.join(wrong)}" if wrong else ""
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
        return f"{decimal(median)} ({decimal(low)} on {safe(lowest)} to {decimal(high)} on {safe(highest)})"
    others = [value for name, value in values.items() if name != nodes[0]]
    own = decimal(measured[0][0])
    return f"{own} (others {decimal(statistics.median(others))})" if others else own


def outcome(verdict: Verdict) -> str:
    """Return a job's result in capitals and its colour; with unknown gates it neither passed nor failed."""
    word = "PASSED" if verdict.passes else "UNKNOWN" if verdict == Verdict.UNKNOWN else "FAILED"
    return f"[{COLOURS[verdict]}]{word}[/]"


def closing(gates: Sequence[Gate], alone: str = "each node alone") -> Iterator[str]:
    """Yield what a run came to, in a line for the nodes' own jobs (`alone`) and one for the job over all of them."""

    nodes = grouped((gate.node, gate) for gate in gates if gate.node is not None)
    bad = [node for node, own in nodes.items() if verdict_of(own) != Verdict.OK]
    if nodes:
        verdict = outcome(verdict_of(gate for gate in gates if gate.node is not None))
        names = f", not {safe(named(bad))}" if bad else ""
        yield f"{alone}: {verdict}, {len(nodes) - len(bad)} of {len(nodes)} passed{names}"
    together = [gate for gate in gates if gate.node is None]
    if together or not nodes:
        passed = sum(gate.verdict.passes for gate in together)
        yield f"smoke run: {outcome(verdict_of(together))}, {passed} of {counted(len(together), 'gate')} passed"


def gates_table(gates: Sequence[Gate], show_all: bool = False) -> Table:
    """Return every gate, wanted and seen; unless `show_all`, equal gates of several nodes' own jobs are one row."""
    own = any(gate.node is not None for gate in gates)
    made = table(*(["single node"] if own else []), "gate", "verdict", "wanted", "actual", "evidence")
    short = not show_all and all(gate.verdict.passes for gate in gates)
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
            safe(textwrap.shorten(evidence, CUT, placeholder=" ...") if short else evidence),
        )
    return made


def figures_table(
    figures: Figures,
    expect: Mapping[str, float],
    node: str | None = None,
    baselines: Mapping[str, Baseline] | None = None,
) -> Table:
    """Return the measured figures of one `node` or all: steady medians, their bounds, and earlier runs if requested."""

    known = baselines or {}
    first = "figure" if node is None else safe(f"figure of {node} alone")
    made = table(first, "median", "mean", "unit", "judged", *(["earlier runs"] if known else []))
    for name, metric in METRICS.items():
        figure = figures.get(name)
        median, mean = (decimal(figure.value), decimal(figure.mean)) if figure else ("-", "-")
        judged = f"{metric.direction} {decimal(expect[name])}" if name in expect else "no: nothing is expected of it"
        earlier = [safe(str(known[name])) if name in known else "-"] if known else []
        made.add_row(name, median, mean, metric.unit, judged, *earlier)
    return made


def judged(document: Judged) -> Iterator[Any]:
    """Yield what `judge` came to: of gates that did not pass the end of a run on one screen, else a table of them, or
    (`show_all`) all of each."""
    found = document.diagnosis
    recorded = [
        f"recorded, not judged: {figure.name} {decimal(figure.value)} {figure.unit}"
        + (f" ({figure.why})" if figure.why else "")
        for figure in document.recorded
    ]
    if document.verdict.passes or document.show_all:
        yield from map(Line, diagnosis_lines(found))
        yield from judgement(document.gates, show_all=document.show_all, folded_when_ok=False)
        yield from map(safe, [*recorded, *document.notes])
        yield f"\n{verdict_text(document.verdict)}"
        return
    cause = headline(found) if found else failure.of_gates(document.gates, document.verdict)
    lines = [f"verdict: {document.verdict}{f': {cause}' if cause else ''}"]
    lines += [f"  {line}" for line in grounds(found, 1)] if found else []
    lines += [f"  next: {failure.sentence(printable(found.remedy))}"] if found and found.remedy else []
    lines += [line for gate in failure.gate_lines(document.gates, found) for line in gate]
    lines += [f"  {printable(line)}" for line in [*recorded, *document.notes]]
    yield from _fixed(fitted([*lines, "evidence: each gate with its figures: the same command with --all"]))


def report(record: RunRecord, show_all: bool = False, directory: Path | None = None, seen: int = 0) -> Iterator[Any]:
    """Yield a whole run: verdict, nodes, differences, gates; what several nodes share once, unless `show_all`. A job
    that failed ends on one screen. `seen`: lines above it, which have the findings already."""
    failed = record.diagnosis or any(not gate.verdict.passes for gate in record.gates)
    if record.kind == "drift" and not show_all:
        yield from _findings(record, show_all)
        return
    if failed and not show_all and record.trials is None:
        yield from _fixed(fitted(summary_lines(failure.of_run(record, directory)), most=max(LINES - seen, END)))
        return
    if record.jobs and not (record.verdict.passes or show_all or record.ended_by or record.isolation or record.trials):
        yield from [] if seen else _findings(record, show_all)
        yield from _fixed(fitted(_before_the_job(record, directory)))
        return
    apart = record.ended_by or record.rolling or record.isolation or record.trials or record.soak
    if record.kind == "run" and record.finished_at and not (record.jobs or record.verdict.passes or show_all or apart):
        end = list(fitted(summary_lines(failure.of_run(record, directory)), most=END))
        yield from [] if seen else _findings(record, show_all, LINES - len(end))
        yield from _fixed(end)
        return
    yield f"{verdict_text(record.verdict)}  run {safe(record.run_id)}  {safe(_span(record))}  {safe(record.inventory)}"
    if record.ended_by:
        yield safe(f"ended by {record.ended_by}")
    yield from map(Line, diagnosis_lines(record.diagnosis))
    if record.rolling is not None:
        yield safe(record.rolling.words())
    yield _run_nodes(record.nodes, show_all)
    notes = grouped(((note, show_all and node.name), node.name) for node in record.nodes for note in node.notes)
    yield from (safe(f"{folded(names)}: {note}") for (note, _), names in notes.items())
    yield from [] if seen and not show_all else _findings(record, show_all)
    if record.trials is not None:
        yield from trials.tables(record.trials)
    if record.gates or record.isolation is None:
        yield from judgement(record.gates, record.jobs, show_all)
    if record.isolation is not None:
        yield "\nsearch for bad nodes"
        yield from map(safe, tree.lines(record.isolation))


def _span(record: RunRecord) -> str:
    begin, end = record.started_at[:19].replace("T", " "), (record.finished_at or "")[:19].replace("T", " ")
    return f"{begin} to {end.removeprefix(begin[:11]) if end else 'not finished'} UTC"


def _before_the_job(record: RunRecord, directory: Path | None) -> Iterator[str]:
    """Yield the last lines of a run whose job passed, though nodes of it did not."""
    absent = [node.name for node in record.nodes if node.part in ("excluded", "unreached")]
    passed = f"the job passed {counted(len(record.gates), 'gate')}" if record.finished_at else "the run is not finished"
    found = causes(finding for finding in record.findings if finding.node in absent)
    why = printable(", ".join(dict.fromkeys(cause.name for cause in found if not cause.verdict.passes)), _WHY)
    left = f"{few(absent, _ABSENT)} did not take part{f' ({why})' if why else ''}; " if absent else ""
    yield f"verdict: {record.verdict}: {left}{passed}"
    yield failure.of_run(record, directory).report or "evidence: none was kept"


def _findings(record: RunRecord, show_all: bool, lines: int = Findings.lines) -> Iterator[Any]:
    verdict = worst([finding.verdict for finding in record.findings])
    found = Findings(verdict, len(record.nodes), record.findings, show_all, record.inventory, lines=lines)
    yield from screen.table(found)


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
