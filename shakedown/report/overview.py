"""What a document comes to, in the order in which a person asks: the verdict in one sentence, what stands behind it,
on which nodes, and what to do. The page, Markdown and the CI's formats are written from it, so that they agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shakedown.checks.examination import resting
from shakedown.common.secrets import masked_model
from shakedown.common.text import counted, printable
from shakedown.evidence.diagnosis import words
from shakedown.hosts import folded
from shakedown.report.fold import fold_gates
from shakedown.report.formats import Findings, Judged, Remembered, Run
from shakedown.report.terminal import shown_values
from shakedown.state.findings import Finding, Verdict

if TYPE_CHECKING:
    from shakedown.evidence.diagnosis.model import Diagnosis, Sign
    from shakedown.gates import Gate, Recorded
    from shakedown.ledger.history import History
    from shakedown.runs.isolation import Isolation, Result
    from shakedown.runs.records import JobRecord, RunNode
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


@dataclass(frozen=True)
class Overview:
    """A document, ready to be shown."""

    title: str
    verdict: Verdict
    sentence: str
    inventory: str = ""
    started: str = ""
    finished: str = ""
    names: Sequence[str] = ()  # of the nodes, in inventory order
    nodes: Sequence[RunNode] = ()
    findings: Sequence[Finding] = ()
    gates: Sequence[Gate] = ()
    recorded: Sequence[Recorded] = ()
    jobs: Sequence[JobRecord] = ()
    notes: Sequence[str] = ()
    actions: Sequence[Action] = field(default=())
    directory: Path | None = None  # of the run, where its logs are
    links: str = ""  # in front of their paths
    signs: Sequence[Sign] = ()  # lines of logs that a diagnosis rests on
    trials: TrialsRecord | None = None
    history: History | None = None
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
    return Overview(
        title="Drift check",
        verdict=document.verdict,
        sentence=_sentence(document.verdict, parts, well),
        inventory=printable(document.inventory),
        finished=document.at,
        names=names,
        findings=document.findings,
        notes=_rests(document.findings),
        actions=tuple(_of_findings_actions(document.findings)),
    )


def _rests(findings: Sequence[Finding]) -> list[str]:
    return [resting(findings)] if any(finding.waiver for finding in findings) else []


def _of_ledger(document: Remembered) -> Overview:
    """Sum up a history: the verdict is the last run's."""
    runs = document.history.runs
    last = next((Verdict(run.verdict) for run in runs if run.verdict in set(Verdict)), Verdict.UNKNOWN)
    passed = sum(run.verdict == Verdict.OK for run in runs)
    parts = [f"{passed} of {counted(len(runs), 'run')} passed"] if runs else ["the ledger has no such run"]
    words = f"the last of them, on {runs[0].at:%Y-%m-%d %H:%M} UTC" if runs else ""
    return Overview(
        title="Ledger",
        verdict=last,
        sentence=f"{WORDS[last]}: {'; '.join(filter(None, [words, *parts]))}.",
        started=runs[-1].at.isoformat() if runs else "",
        finished=runs[0].at.isoformat() if runs else "",
        history=document.history,
    )


def _of_judged(document: Judged) -> Overview:
    parts = [*_began(document.diagnosis), *_not_held(document.gates)]
    return Overview(
        title="Judgement of logs",
        verdict=document.verdict,
        sentence=_sentence(document.verdict, parts, f"{_gates(len(document.gates))} held"),
        gates=document.gates,
        recorded=document.recorded,
        notes=[printable(note, TEXT) for note in document.notes],
        actions=(*_diagnosed(document.diagnosis), *_of_gates(document.gates)),
    )


def _of_run(document: Run) -> Overview:
    record = document.record
    if record.kind == "drift":
        return _of_drift(document)
    gates = [masked_model(gate, more=document.secrets) for gate in record.gates]  # they quote logs
    died_of = list(_diagnosed(record.diagnosis))
    parts = [*_began(record.diagnosis), *_not_held(gates)]
    for part in ("excluded", "unreached"):
        lost = [node.name for node in record.nodes if node.part == part]
        if lost:
            parts.append(f"{counted(len(lost), 'node')} {'was' if len(lost) == 1 else 'were'} {part}")
    broken = [node for node in record.nodes if node.failed and node.part not in ("excluded", "unreached")]
    if broken:
        parts.append(f"{counted(len(broken), 'node')} failed")
    parts += _differing(record.findings, len(record.nodes))
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
    return Overview(
        title=f"Run {printable(record.run_id)}",
        verdict=record.verdict,
        sentence=_sentence(record.verdict, parts, well),
        inventory=printable(record.inventory),
        started=record.started_at,
        finished=record.finished_at or "",
        names=[node.name for node in record.nodes],
        nodes=record.nodes,
        findings=record.findings,
        gates=gates,
        jobs=record.jobs,
        notes=[
            *_rests(record.findings),
            *(printable(f"{node.name}: {note}", TEXT) for node in record.nodes for note in node.notes),
        ],
        actions=(
            *_suspects(result),
            *died_of,
            *_of_nodes(record.nodes),
            *_of_gates(gates),
            *_of_findings_actions(record.findings),
        ),
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
    return replace(shown, nodes=record.nodes, names=[node.name for node in record.nodes])


def _diagnosed(diagnosis: Diagnosis | None) -> Iterator[Action]:
    """Yield what a job died of, as the first thing to look at."""
    if diagnosis is None:
        return
    signs = [words.evidence(sign) for sign in diagnosis.evidence[: words.SHOWN]]
    evidence = "; ".join([words.headline(diagnosis), *signs])
    remedy = printable(diagnosis.remedy, TEXT)
    nodes = diagnosis.origin or diagnosis.among or diagnosis.common
    yield Action(Verdict.FAIL, "diagnosis", nodes, remedy, printable(evidence, TEXT))


def _suspects(search: Result | None) -> Iterator[Action]:
    """Yield what a search for bad nodes came to."""
    for suspect in search.suspects if search else ():
        evidence = f"failed in {', '.join(suspect.trainings)}{f': {suspect.why}' if suspect.why else ''}"
        remedy = "take it out of the inventory, and measure it alone: shakedown trials"
        if suspect.kind != "node":
            evidence = f"{suspect} {evidence}"
            remedy = (
                "look at the cables, ports and switches between them, and measure it: shakedown trials --only pairs"
            )
        yield Action(Verdict.FAIL, f"suspect {suspect.kind}", suspect.nodes, remedy, printable(evidence, TEXT))
    undecided: dict[str, list[str]] = {}
    for node, why in (search.undecided if search else {}).items():
        undecided.setdefault(why, []).append(node)
    for why, nodes in undecided.items():
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
        names = list(dict.fromkeys(gate.name for gate in bad))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{len(bad)} of {counted(len(gates), 'gate')} did not hold ({', '.join(names[:NAMED])}{more})"


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


def _of_nodes(nodes: Sequence[RunNode]) -> Iterator[Action]:
    alike: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if node.failed:
            alike.setdefault((node.part, node.why), []).append(node.name)
    for (part, why), names in alike.items():
        what = part if part in ("excluded", "unreached") else "failed"
        yield Action(Verdict.FAIL, what, tuple(names), evidence=printable(why, TEXT))


def _of_gates(gates: Sequence[Gate]) -> Iterator[Action]:
    for alike in fold_gates(gate for gate in gates if gate.verdict != Verdict.OK):
        gate = alike.gate
        yield Action(
            gate.verdict,
            gate.name,
            alike.nodes,
            printable(gate.remedy or "", TEXT),
            printable(gate.evidence, TEXT),
        )


def _of_findings_actions(findings: Sequence[Finding]) -> Iterator[Action]:
    alike: dict[tuple[Verdict, str, str, str], list[Finding]] = {}
    for finding in findings:
        if finding.verdict != Verdict.OK:
            remedy = finding.remedy
            text = f"{remedy.text}{'' if remedy.risk == 'safe' else f' ({remedy.risk})'}" if remedy else ""
            alike.setdefault((finding.verdict, finding.name, text, finding.pending), []).append(finding)
    order = sorted(alike.items(), key=lambda item: (-item[0][0].severity, item[0][0] == Verdict.WARN))
    for (verdict, name, text, pending), group in order:
        nodes = tuple(dict.fromkeys(finding.node for finding in group))
        evidence = "; ".join([pending] if pending else _said(group))
        yield Action(verdict, name, nodes, printable(text, TEXT), printable(evidence, TEXT))


def _said(findings: Iterable[Finding]) -> list[str]:
    """Return what was wanted and what is, of findings that one remedy mends: the first few of those that differ in
    it."""
    values = (shown_values(finding) for finding in findings)
    differences = list(dict.fromkeys(f"wanted {wanted}, actual {actual}" for wanted, actual in values))
    return [
        *differences[:NAMED],
        *([f"and {counted(len(differences) - NAMED, 'other')}"] if len(differences) > NAMED else []),
    ]
