"""What cheaper evidence says against nodes, from an examination and from a run that failed: it names nobody, and has
them tried first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shakedown.common.text import printable
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.stragglers import words
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.odd import odd
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.runs.directory import RunRecord
from shakedown.runs.isolation import Hint
from shakedown.state.findings import Finding, Verdict
from shakedown.trials.models import TrialsRecord

# How many times likelier each is of a bad node: guesses, deliberately low. A hint that is wrong costs a small group.
_ODDS_FINDING = {Verdict.FAIL: 20.0, Verdict.UNKNOWN: 5.0, Verdict.DRIFT: 3.0, Verdict.WARN: 2.0}
_ODDS_GATE = 10.0
_ODDS_ORIGIN = {"certain": 40.0, "likely": 20.0, "undecided": 5.0}
_ODDS_AMONG = 4.0
_ODDS_STRAGGLER = {"fail": 30.0, "warn": 10.0, "undecided": 5.0, "notice": 2.0}
_ODDS_TRIAL = {"named": 30.0, "undecided": 5.0}
_ODDS_TELEMETRY = 8.0
_FIRST = 20.0  # the node that was first to fail: often the one that noticed


def of_findings(findings: Iterable[Finding]) -> Iterator[Hint]:
    """From findings that differ. What all nodes have in common says nothing of one."""
    wrong = [finding for finding in findings if finding.verdict != Verdict.OK]
    nodes = {finding.node for finding in wrong}
    for finding in wrong:
        if len(nodes) > 1 and nodes <= {each.node for each in wrong if each.name == finding.name}:
            continue
        text = f"{finding.actual}" if finding.actual is not None else finding.evidence
        yield _hint(finding.node, f"finding {finding.name}", text, _ODDS_FINDING[finding.verdict])


def of_run(record: RunRecord, stopped: Sequence[tuple[str, str]] = ()) -> Iterator[Hint]:
    """From a run: the findings of then, gates that failed for one node, trials, the diagnosis, stragglers, samples, and
    who failed first (`stopped`: node and why)."""
    yield from of_findings(record.findings)
    if record.trials is not None:
        yield from of_trials(record.trials)
    if record.diagnosis is not None:
        yield from of_diagnosis(record.diagnosis)
    for job in record.jobs:
        if job.stragglers is not None:
            yield from of_stragglers(job.stragglers)
        yield from of_telemetry(job.telemetry)
    for gate in record.gates:
        if gate.node is not None and gate.verdict == Verdict.FAIL:
            yield _hint(gate.node, f"gate {gate.name}", gate.evidence, _ODDS_GATE)
    for node, why in stopped:
        yield _hint(node, "first failure", why, _FIRST)


def of_diagnosis(diagnosis: Diagnosis) -> Iterator[Hint]:
    """Where a failure began, as far as its signs tell; the nodes that come into question where they do not."""
    for node in diagnosis.origin:
        yield _hint(node, "diagnosis", diagnosis.why, _ODDS_ORIGIN[diagnosis.confidence])
    for node in diagnosis.among:
        yield _hint(node, "diagnosis", f"one of {len(diagnosis.among)}: {diagnosis.why}", _ODDS_AMONG)


def of_stragglers(stragglers: Stragglers) -> Iterator[Hint]:
    """Nodes whose ranks needed longer than others for the same work."""
    for each in stragglers.slow:
        yield _hint(each.node, "straggler", words.sentence(each), _ODDS_STRAGGLER[each.level])


def of_telemetry(telemetry: Mapping[str, NodeTelemetry]) -> Iterator[Hint]:
    """Nodes whose samples stand apart from those of their peers in a job: clocks, throttling, errors, pressure."""
    for each in odd(telemetry):
        yield _hint(each.node, "telemetry", str(each), _ODDS_TELEMETRY)


def of_trials(trials: TrialsRecord) -> Iterator[Hint]:
    """Parts that stood out of the fleet, and nodes and links that the rounds of pairs named."""
    for judged in trials.judged:
        if judged.standing in _ODDS_TRIAL:
            source = f"trial {judged.trial}.{judged.figure}"
            yield _hint(judged.node, source, f"{judged.part}: {judged.why}", _ODDS_TRIAL[judged.standing])
    for matrix in trials.matrices:
        for named in matrix.named:
            odds = _ODDS_TRIAL["named"] if len(named.nodes) == 1 else _ODDS_AMONG
            for node in named.nodes if named.kind != "unnamed" else ():
                yield _hint(node, f"trial {matrix.trial}.{named.figure}", named.evidence, odds)


def strongest(hints: Iterable[Hint], nodes: Sequence[str]) -> list[Hint]:
    """One hint for each node, the strongest: they are seldom independent. Where most nodes have one, they tell nothing
    and there is none."""
    found: dict[str, Hint] = {}
    for hint in hints:
        if hint.node in nodes and (hint.node not in found or hint.odds > found[hint.node].odds):
            found[hint.node] = hint
    return list(found.values()) if 3 * len(found) <= len(nodes) else []


def _hint(node: str, source: str, text: str, odds: float) -> Hint:
    return Hint(node=node, source=printable(source, 100), text=printable(text, 300), odds=odds)
