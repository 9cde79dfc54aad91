"""Markdown: a document for a ticket or a chat, and the ticket to a vendor about one node."""

import re
from collections.abc import Iterator, Sequence

from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.diagnosis.words import evidence
from shakedown.evidence.stragglers import model
from shakedown.evidence.stragglers.model import lines as straggler_lines
from shakedown.hosts import folded
from shakedown.logs.metrics import METRICS
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.overview import Overview, overview
from shakedown.report.terminal import value_text
from shakedown.runs.directory import JobRecord, RunRecord
from shakedown.service.marks import step_line
from shakedown.service.model import Step
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable

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
        rows = model.own_times_rows(job.stragglers) if job.stragglers and lines else []
        if rows:
            cells = [(level, code(node), *map(words, rest)) for level, node, *rest in rows]
            yield from table(model.OWN_TIMES_HEADER, cells)


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
    """Return foreign text as a code span without markup or mentions: between more backticks than it has in a row."""
    text = printable(text, TEXT).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text.strip() else ""


def words(text: str) -> str:
    """Return a text of ours that may hold words of others: without markup."""
    return _MARKS.sub(r"\\\1", printable(text, TEXT))


LINES = 20  # of evidence, of findings and of earlier repairs


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
    return "\n".join(_ticket_lines(record, node, state, steps)) + "\n"


def _ticket_lines(record: RunRecord, node: str, state: NodeState | None, steps: Sequence[Step]) -> Iterator[str]:
    found, named = record.diagnosis, record.diagnosis is not None and node in record.diagnosis.origin
    wrong = [finding for finding in record.findings if finding.node == node and not finding.verdict.passes]
    cause = found.cause if found and named else wrong[0].name if wrong else "fails in training"
    yield f"# {words(node)}: {words(cause)}"
    yield ""
    mark = "SIMULATED run" if record.simulated else "Run"
    yield f"{mark} {code(record.run_id)}, {words(record.started_at)} to {words(record.finished_at or 'unfinished')}."
    if found and named:
        yield f"The failure began on this node ({found.confidence}: {words(found.why)})."
    yield from _section("The node", list(_machine(state)) if state else ["It was not reached: its parts are unknown."])
    quoted = " ".join(
        [*(sign.text for sign in (found.evidence if found else ())), *(value_text(f.actual) for f in wrong)]
    )
    yield from _section("Its parts", list(_parts(state, quoted)) if state else [])
    if found and named:
        others = [sign for sign in found.evidence if sign.node != node]
        signs = [*(sign for sign in found.evidence if sign.node == node), *others[:2]]
        yield from _section("What was seen", [f"- {code(evidence(sign))}" for sign in signs])
    rows = []
    for finding in wrong[:LINES]:
        seen = words(f"{value_text(finding.actual)}, wanted {value_text(finding.wanted)}")
        rows.append(f"- {code(finding.name)}: {seen}{f' ({words(finding.evidence)})' if finding.evidence else ''}")
    yield from _section("Findings", rows)
    repairs = [f"- {words(step_line(step))}" for step in steps[-LINES:]]
    yield from _section("What was tried", [*_tried(record, node), *repairs])


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _machine(state: NodeState) -> Iterator[str]:
    system = state.system
    values = {
        "machine": system.product,
        "serial number of the board": system.board_serial,
        "BIOS": system.bios_version,
        "operating system": f"{system.os_name}, kernel {system.kernel}",
        "CPU": state.cpu.model,
        "ROCm": state.rocm_version,
    }
    yield from (f"- {name}: {_value(value)}" for name, value in values.items())


def _parts(state: NodeState, quoted: str) -> Iterator[str]:
    """Yield a row for each GPU and NIC; bold is what the evidence names by its PCI address or name."""

    def part(kind: str, *names: str) -> str:
        return f"**{kind}**" if any(re.search(rf"\b{re.escape(name)}\b", quoted) for name in names) else kind

    gpus = [] if is_unreadable(state.gpus) else state.gpus
    rdma = [] if is_unreadable(state.rdma) else state.rdma
    rows = [
        (part("GPU", gpu.bdf), code(gpu.bdf), *map(_value, (gpu.model, gpu.serial, gpu.driver, gpu.firmware)))
        for gpu in gpus
    ]
    for nic in rdma:
        place = part("NIC", nic.name, str(nic.bdf)), _value(nic.bdf), code(nic.name)
        rows.append((*place, *map(_value, (nic.guid, nic.driver, nic.firmware))))
    if rows:
        yield from list(table(("part", "PCI address", "name", "serial number or GUID", "driver", "firmware"), rows))[1:]


def _tried(record: RunRecord, node: str) -> Iterator[str]:
    for own in (part for part in record.nodes if part.name == node):
        if own.changes:
            yield f"- settings that the run changed: {words(', '.join(own.changes))}"
    trainings = record.isolation.trainings if record.isolation else []
    trained = [training for training in trainings if node in training.group.nodes]
    if trained:
        failed = sum(training.outcome == "fail" for training in trained)
        yield f"- a search for bad nodes trained it {len(trained)} times in groups: {failed} failed"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{words(block)} {_value(version)}" for block, version in value.items())
    return "unknown" if value is None or is_unreadable(value) else words(printable(str(value), 200))
