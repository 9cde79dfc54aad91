"""Markdown, for a ticket or a chat: short enough to be read there, everything else is in the run directory."""

import re
from collections.abc import Iterator, Sequence

from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.stragglers.model import lines as straggler_lines
from shakedown.hosts import folded
from shakedown.logs.metrics import METRICS
from shakedown.report import own_times
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.overview import Overview, overview
from shakedown.report.terminal import value_text
from shakedown.runs.records import JobRecord
from shakedown.state.findings import Verdict

ROWS = 50  # of one table: a ticket is read by people
TEXT = 300  # characters of one cell
_MARKS = re.compile(r"([\\`*_\[\]<>|~#&])")


def markdown(document: Findings | Judged | Run) -> str:
    """Return a document as one text."""
    return "\n".join(_lines(overview(document)))


def _lines(shown: Overview) -> Iterator[str]:
    yield f"**{words(shown.sentence)}**"
    yield ""
    when = " to ".join(filter(None, (shown.started, shown.finished)))
    yield " · ".join(filter(None, (words(shown.title), shown.inventory and code(shown.inventory), words(when))))
    if shown.actions:
        rows = [
            (
                action.verdict,
                code(action.what),
                code(folded(action.nodes)) if action.nodes else "",
                code(action.evidence) if action.evidence else "",
                words(action.remedy),
            )
            for action in shown.actions
        ]
        yield from table(("verdict", "what", "nodes", "seen", "what to do"), rows)
    held = [gate for gate in shown.gates if gate.verdict == Verdict.OK]
    if held:
        yield ""
        yield f"{counted(len(held), 'gate')} of {len(shown.gates)} held."
    figures = [row for job in shown.jobs if job.figures and job.plan for row in _figures(job)]
    if figures:
        yield from table(("job", "figure", "mean", "unit", "expected"), figures)
    yield from _own_times(shown)
    for figure in shown.recorded:
        yield f"\nRecorded, not judged: {words(figure.name)} {value_text(figure.value)} {words(figure.unit)}"
    yield from (f"\n{words(note)}" for note in shown.notes[:ROWS])


def _own_times(shown: Overview) -> Iterator[str]:
    """Nodes beside each other, where anything of it is not as usual."""
    for job in shown.jobs:
        lines = list(straggler_lines(job.stragglers)) if job.stragglers else []
        yield from (f"\n{words(job.node or 'all nodes together')}: {words(line)}" for line in lines)
        rows = own_times.rows(job.stragglers) if job.stragglers and lines else []
        if rows:
            cells = [(level, code(node), *map(words, rest)) for level, node, *rest in rows]
            yield from table(own_times.HEADER, cells)


def _figures(job: JobRecord) -> Iterator[tuple[str, ...]]:
    assert job.figures and job.plan
    for name, metric in METRICS.items():
        figure = job.figures.get(name)
        if figure is not None:
            bound = job.plan.expect.get(name)
            expected = "" if bound is None else f"{metric.direction} {decimal(bound)}"
            yield code(job.name), name, decimal(figure.mean), metric.unit, expected


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    yield from (f"| {' | '.join(row)} |" for row in rows[:ROWS])
    if len(rows) > ROWS:
        yield f"\n{counted(len(rows) - ROWS, 'more row')} not shown here."


def code(text: str) -> str:
    """Return a text of others as a code span, in which nothing is markup and nobody is mentioned: between more
    backticks than it has in a row, a pipe escaped as tables want it."""
    text = printable(text, TEXT).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text.strip() else ""


def words(text: str) -> str:
    """Return a text of ours that may hold words of others: without markup."""
    return _MARKS.sub(r"\\\1", printable(text, TEXT))
