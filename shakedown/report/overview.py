"""A document's summary for page, Markdown and CI formats: verdict, its reasons, the nodes, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shakedown.checks.examination import resting
from shakedown.common.lists import grouped
from shakedown.common.secrets import masked_model
from shakedown.common.text import counted, printable, some
from shakedown.evidence.diagnosis import words
from shakedown.gates.consequences import split
from shakedown.hosts import few, folded
from shakedown.report.causes import causes, fold_gates
from shakedown.report.failure import next_command, own_reason, sentence
from shakedown.report.formats import Findings, Judged, Remembered, Run
from shakedown.report.screen import command_after
from shakedown.report.terminal import value_text
from shakedown.state.findings import Finding, Verdict

if TYPE_CHECKING:
    from shakedown.evidence.diagnosis.model import Diagnosis, Sign
    from shakedown.gates import Gate, Recorded
    from shakedown.ledger.history import History, Seen
    from shakedown.runs.directory import JobRecord, RunNode, RunRecord
    from shakedown.runs.isolation import Isolation, Result
    from shakedown.trials.models import TrialsRecord

WORDS = {
    Verdict.OK: "Passed",
    Verdict.WARN: "Passed",
    Verdict.DRIFT: "Drifted",
    Verdict.FAIL: "Failed",
    Verdict.UNKNOWN: "Unknown",
}
NAMED = 4  # gates of a sentence that are named; the others are a number
TEXT = 2000  # characters of one text of a node that are shown


@dataclass(frozen=True)
class Action:
    """Something that is not as it should be: what, on which nodes, and what to do."""

    verdict: Verdict
    what: str
    nodes: tuple[str, ...]  # none: the job over all nodes
    remedy: str = ""
    evidence: str = ""
    brief: str = ""  # the same in a headline
    command: str = ""  # to be run then
    note: str = ""  # how it is fixed, in a word or two
    details: str = ""  # where it was read
    follows: tuple[str, ...] = ()  # findings that it brings about
    repeats: bool = False  # a finding or the diagnosis names the same nodes


@dataclass(frozen=True)
class Overview:
    """A document, ready to be shown."""

    title: str
    verdict: Verdict
    sentence: str
    headline: words.Headline | None = None  # what matters most, with its node
    besides: str = ""  # what the sentence has more than that
    inventory: str = ""
    started: str = ""
    finished: str = ""
    names: Sequence[str] = ()  # of the nodes, in inventory order
    groups: Mapping[str, str] = field(default_factory=dict)  # node -> its group in the inventory, as a rack
    nodes: Sequence[RunNode] = ()
    findings: Sequence[Finding] = ()
    gates: Sequence[Gate] = ()
    recorded: Sequence[Recorded] = ()
    jobs: Sequence[JobRecord] = ()
    notes: Sequence[str] = ()
    actions: Sequence[Action] = ()  # the worst first
    following: Sequence[Gate] = ()  # gates that did not pass because the job had ended early
    directory: Path | None = None  # of the run, where its logs are
    links: str = ""  # in front of their paths
    signs: Sequence[Sign] = ()  # lines of logs that a diagnosis rests on
    trials: TrialsRecord | None = None
    history: History | None = None
    fleet: Sequence[Sequence[Seen]] = ()  # of a ledger: what its newest runs saw of each node
    isolation: Isolation | None = None  # the search as data
    secrets: Collection[str] = ()  # values that no line of a log may show


def overview(document: Findings | Judged | Run | Remembered) -> Overview:
    """Sum up a document."""
    if isinstance(document, Remembered):
        return _of_ledger(document)
    if isinstance(document, Findings):
        return _of_findings(document)
    return _of_judged(document) if isinstance(document, Judged) else _of_run(document)


def _of_findings(document: Findings) -> Overview:
    names = list(dict.fromkeys(finding.node for finding in document.findings))
    parts = list(_differing(document.findings, document.nodes))
    if not parts and document.verdict != Verdict.OK:
        parts = ["fewer nodes answered than were expected" if document.findings else "nothing was examined"]
    well = f"{_all(document.nodes)} in the desired state, {counted(len(document.findings), 'finding')}"
    actions = tuple(_of_causes(document.findings, document.inventory))
    return Overview(
        title="Drift check",
        verdict=document.verdict,
        sentence=_sentence(document.verdict, parts, well),
        headline=_headline(None, actions),
        besides="; ".join(parts),
        inventory=printable(document.inventory),
        finished=document.at,
        names=names,
        groups=document.groups,
        findings=document.findings,
        notes=_rests(document.findings),
        actions=actions,
    )


def _rests(findings: Sequence[Finding]) -> list[str]:
    return [resting(findings)] if any(finding.waiver for finding in findings) else []


def _of_ledger(document: Remembered) -> Overview:
    """Sum up a history: the verdict is the last run's."""
    runs = document.history.runs
    last = next((Verdict(run.verdict) for run in runs if run.verdict in set(Verdict)), Verdict.UNKNOWN)
    passed = sum(run.verdict == Verdict.OK for run in runs)
    parts = [f"{passed} of {counted(len(runs), 'run')} passed"] if runs else ["the ledger has no such run"]
    words = f"the last of them, on {runs[0].at.astimezone():%Y-%m-%d %H:%M %Z}" if runs else ""
    return Overview(
        title="Ledger",
        verdict=last,
        sentence=f"{WORDS[last]}: {'; '.join(filter(None, [words, *parts]))}.",
        started=runs[-1].at.isoformat() if runs else "",
        finished=runs[0].at.isoformat() if runs else "",
        names=[seen[0].node for seen in document.fleet],
        groups={seen[0].node: seen[0].inventory for seen in document.fleet},
        history=document.history,
        fleet=document.fleet,
    )


def _of_judged(document: Judged) -> Overview:
    besides = list(_not_held(document.gates))
    parts = [*_began(document.diagnosis), *besides]
    own, following = split(document.gates, document.diagnosis)
    actions = _worst_first([*_diagnosed(document.diagnosis), *_of_gates(own)])
    return Overview(
        title="Judgement of logs",
        verdict=document.verdict,
        sentence=_sentence(document.verdict, parts, f"{_gates(len(document.gates))} held"),
        headline=_headline(document.diagnosis, actions),
        besides="; ".join(besides),
        gates=document.gates,
        recorded=document.recorded,
        notes=[printable(note, TEXT) for note in document.notes],
        actions=actions,
        following=following,
    )


def _of_run(document: Run) -> Overview:
    record = document.record
    if record.kind == "drift":
        return _of_drift(document)
    gates = [masked_model(gate, more=document.secrets) for gate in record.gates]  # they quote logs
    own, following = split(gates, record.diagnosis)
    parts = list(_not_held(gates))
    for part in ("excluded", "unreached"):
        lost = [node.name for node in record.nodes if node.part == part]
        if lost:
            parts.append(f"{counted(len(lost), 'node')} {'was' if len(lost) == 1 else 'were'} {part}")
    broken = [node for node in record.nodes if node.failed and node.part not in ("excluded", "unreached")]
    if broken:
        parts.append(f"{counted(len(broken), 'node')} failed")
    parts += _differing(record.findings, len(record.nodes))
    besides = "; ".join(parts)
    parts = [*_began(record.diagnosis), *parts]
    searched = record.isolation and masked_model(record.isolation, more=document.secrets)
    result = searched.result if searched else None
    if result is not None and result.verdict != Verdict.OK:
        parts.insert(0, f"the search for bad nodes: {printable(result.conclusion, TEXT).rstrip('.')}")
    if record.rolling is not None and not record.rolling.complete:
        parts.insert(0, printable(record.rolling.words(), TEXT))
    if record.finished_at is None:
        parts.insert(0, "the run is still at work, or was killed")
    elif record.ended_by:
        parts.insert(0, f"it was ended by {printable(record.ended_by, TEXT).rstrip('.')}")
    elif not parts:
        parts = ["it was ended before all was judged"]
    held = f"; {_gates(len(record.gates))} held" if record.gates else "; no job was asked for"
    if result is not None and not record.gates:
        held = f"; {printable(result.conclusion, TEXT).rstrip('.')}"
    well = f"{_all(len(record.nodes))} in the desired state{held}"
    named = [*_suspects(result), *_diagnosed(record.diagnosis, record), *_of_nodes(record)]
    actions = _worst_first([*named, *_of_gates(own), *_of_causes(record.findings, record.inventory)])
    return Overview(
        title=f"Run {printable(record.run_id)}",
        verdict=record.verdict,
        sentence=_sentence(record.verdict, parts, well),
        headline=_headline(record.diagnosis, actions, result) if record.finished_at and not record.ended_by else None,
        besides=besides,
        inventory=printable(record.inventory),
        started=record.started_at,
        finished=record.finished_at or "",
        names=[node.name for node in record.nodes],
        groups={node.name: node.group for node in record.nodes},
        nodes=record.nodes,
        findings=record.findings,
        gates=gates,
        jobs=record.jobs,
        notes=[
            *_rests(record.findings),
            *(printable(f"{node.name}: {note}", TEXT) for node in record.nodes for note in node.notes),
        ],
        actions=actions,
        following=following,
        directory=document.directory,
        links=document.links,
        signs=record.diagnosis.evidence if record.diagnosis else (),
        trials=record.trials,
        isolation=searched,
        secrets=document.secrets,
    )


def _of_drift(document: Run) -> Overview:
    """Sum up a drift check that was kept: the same as one that is shown at once, and with what became of its nodes."""
    record = document.record
    at = record.finished_at or record.started_at
    found = Findings(record.verdict, len(record.nodes), record.findings, inventory=record.inventory, at=at)
    shown = _of_findings(found)
    groups = {node.name: node.group for node in record.nodes}
    return replace(shown, nodes=record.nodes, names=list(groups), groups=groups)


def _headline(
    diagnosis: Diagnosis | None, actions: Sequence[Action], search: Result | None = None
) -> words.Headline | None:
    """Return what matters most: a search's suspects, the diagnosis, or the worst action; None where all is well."""
    if search is not None and search.suspects:
        suspects = printable(few(map(str, search.suspects)))
        return words.Headline(suspects, "suspect of the search for bad nodes", printable(search.conclusion, TEXT))
    if diagnosis is not None:
        return words.parts(diagnosis)
    first = next((action for action in actions if not action.verdict.passes), None)
    if first is None:
        return None
    what = printable(f"{first.what}: {first.brief or first.evidence}", 300)
    return words.Headline(printable(few(first.nodes)), what)


def _worst_first(actions: Iterable[Action]) -> tuple[Action, ...]:
    return tuple(sorted(actions, key=lambda action: (-action.verdict.severity, action.verdict == Verdict.WARN)))


def _diagnosed(diagnosis: Diagnosis | None, record: RunRecord | None = None) -> Iterator[Action]:
    if diagnosis is None:
        return
    signs = [words.evidence(sign) for sign in diagnosis.evidence[: words.SHOWN]]
    evidence = "; ".join(signs or [words.headline(diagnosis)])
    remedy = printable(sentence(diagnosis.remedy), TEXT)
    nodes = diagnosis.origin or diagnosis.among or diagnosis.common
    command = next_command(record) if record else ""
    yield Action(Verdict.FAIL, "diagnosis", nodes, remedy, printable(evidence, TEXT), command=command)


def _suspects(search: Result | None) -> Iterator[Action]:
    for suspect in search.suspects if search else ():
        evidence = f"failed in {', '.join(suspect.trainings)}{f': {suspect.why}' if suspect.why else ''}"
        remedy = "Take the node out of the inventory, and measure it alone: shakedown trials."
        if suspect.kind != "node":
            evidence = f"{suspect} {evidence}"
            remedy = (
                "Look at the cables, ports and switches between them, and measure them: shakedown trials --only pairs."
            )
        yield Action(Verdict.FAIL, f"suspect {suspect.kind}", suspect.nodes, remedy, printable(evidence, TEXT))
    undecided = search.undecided if search else {}
    for why, nodes in grouped((why, node) for node, why in undecided.items()).items():
        yield Action(Verdict.UNKNOWN, "undecided", tuple(nodes), "", printable(why, TEXT))


def _began(diagnosis: Diagnosis | None) -> Iterator[str]:
    if diagnosis is not None and diagnosis.origin:
        yield f"it began on {folded(diagnosis.origin)} ({diagnosis.confidence}: {printable(diagnosis.cause, 120)})"
    elif diagnosis is not None and diagnosis.common:
        yield f"{len(diagnosis.common)} of {diagnosis.nodes} nodes share a fault: {printable(diagnosis.cause, 120)}"


def _sentence(verdict: Verdict, parts: Sequence[str], well: str) -> str:
    return f"{WORDS[verdict]}: {well if verdict == Verdict.OK else '; '.join(parts)}."


def _all(nodes: int) -> str:
    return "the node is" if nodes == 1 else f"all {nodes} nodes are"


def _gates(count: int) -> str:
    return "the gate" if count == 1 else f"all {count} gates"


def _not_held(gates: Sequence[Gate]) -> Iterator[str]:
    bad = [gate for gate in gates if not gate.verdict.passes]
    if bad:
        names = some(list(dict.fromkeys(gate.name for gate in bad)), NAMED)
        yield f"{len(bad)} of {counted(len(gates), 'gate')} did not hold ({names})"


def _differing(findings: Sequence[Finding], total: int) -> Iterator[str]:
    for verdict, text in (
        (Verdict.FAIL, "{} faults that need a person"),
        (Verdict.UNKNOWN, "could not be read in full"),
        (Verdict.DRIFT, "{} drifted"),
    ):
        nodes = {finding.node for finding in findings if finding.verdict == verdict}
        if nodes:
            have = text.format("has" if len(nodes) == 1 else "have")
            yield f"{len(nodes)} of {counted(total, 'node')} {have}"


def _of_nodes(record: RunRecord) -> Iterator[Action]:
    wrong = {finding.node for finding in record.findings if not finding.verdict.passes}
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for node in record.nodes:
        lost = node.part in ("excluded", "unreached")
        repeats = node.name in wrong if lost else not own_reason(node.why, record.diagnosis)
        if node.failed or node.undecided:
            kind = "undecided" if node.undecided else str(node.part) if lost else "failed"
            alike.setdefault((kind, node.why, repeats), []).append(node.name)
    for (what, why, repeats), names in alike.items():
        verdict = Verdict.UNKNOWN if what == "undecided" else Verdict.FAIL
        yield Action(verdict, what, tuple(names), evidence=printable(why, TEXT), repeats=repeats)


def _of_gates(gates: Sequence[Gate]) -> Iterator[Action]:
    for alike in fold_gates(gate for gate in gates if gate.verdict != Verdict.OK):
        gate = alike.gate
        remedy, evidence = (printable(text, TEXT) for text in (sentence(gate.remedy or ""), gate.evidence))
        wanted = evidence.partition(": ")[0]
        brief = f"{value_text(gate.actual, gate.unit)}, {wanted}" if wanted.startswith("wanted ") else ""
        yield Action(gate.verdict, gate.name, alike.nodes, remedy, evidence, brief)


def _of_causes(findings: Sequence[Finding], inventory: str) -> Iterator[Action]:
    for cause in causes(findings):
        yield Action(
            cause.verdict,
            cause.name,
            cause.nodes,
            printable(cause.remedy, TEXT),
            cause.text,
            command=command_after(cause, inventory) if cause.person else "",
            note=cause.note,
            details=printable(cause.finding.evidence, TEXT),
            follows=cause.follows,
        )
