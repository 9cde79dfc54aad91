"""Who a run names, and who it has seen to be well under load. Pure: out of the run's record.

Only what names a node speaks against it: a finding of its own, a diagnosis that is certain and rests on the node's own
failure, a trial, a search. Having taken part in a job that failed is nothing. What is said by comparing nodes can rest
on other nodes' words: it is told, and takes nobody out of service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from shakedown.common.one_line import line
from shakedown.common.text import in_unit
from shakedown.desired.models import TOGETHER
from shakedown.runs.records import RunRecord
from shakedown.service.ladder import ladder
from shakedown.service.model import Accusation, Proof
from shakedown.state.findings import Finding, Verdict, worst
from shakedown.trials.models import AGAIN, NODES, PAIRS

SEARCH = "search"  # a search for bad nodes, as an accusation's name
LINK = "link"  # between two nodes of which nobody can say which it is
SMOKE = "smoke"
_BY_OTHERS = "hang"  # a sign of a standstill: what the records of all ranks say of one
_COMPARED = "fleet"  # findings that come from a look at the nodes side by side
_TRIALS = (NODES, PAIRS, AGAIN)
_MOST = 50  # findings of one node that speak against it, the worst


def accusations(record: RunRecord) -> list[Accusation]:
    """What the run says against its nodes."""
    known = {node.name for node in record.nodes}
    every = (*_diagnosed(record), *_searched(record), *_judged(record), *_found(record.findings))
    return [each for each in every if each.node in known and ladder().accuses(each)]


def of_findings(findings: Iterable[Finding], at: int) -> list[Accusation]:
    """What an examination says that is no run's, taken at this time (seconds since 1970 UTC)."""
    return [each.model_copy(update={"at": at}) for each in _found(findings) if ladder().accuses(each)]


def _found(findings: Iterable[Finding]) -> Iterator[Accusation]:
    counts: Counter[str] = Counter()
    for finding in sorted(findings, key=lambda finding: -finding.verdict.severity):
        if finding.verdict.passes or counts[finding.node] >= _MOST:
            continue
        counts[finding.node] += 1
        unread = finding.verdict == Verdict.UNKNOWN
        compared = finding.name.partition(".")[0] == _COMPARED
        yield Accusation(
            node=finding.node,
            source="unread" if unread else "finding",
            name=finding.name,
            what=_what(finding),
            drift=finding.verdict == Verdict.DRIFT,
            drains=finding.verdict == Verdict.FAIL and not compared,
        )


def _what(finding: Finding) -> str:
    if finding.verdict == Verdict.UNKNOWN:
        return line(f"could not be read: {finding.evidence or finding.actual}")
    pending = f" ({finding.pending})" if finding.pending else ""
    actual, wanted = (in_unit(str(each), finding.unit or "").rstrip() for each in (finding.actual, finding.wanted))
    return line(f"{actual} where {wanted} is wanted{pending}")


def _diagnosed(record: RunRecord) -> Iterator[Accusation]:
    """A diagnosis that is certain, of a node that shows the failure itself: no other node's word is enough."""
    found = record.diagnosis
    if found is None or found.confidence != "certain":
        return
    own = [sign for sign in found.evidence if sign.role != "echo" and not sign.blames and sign.name != _BY_OTHERS]
    shown = {sign.node for sign in own}
    for node in found.origin:
        if node in shown:
            yield Accusation(node=node, source="diagnosis", name=found.name, what=line(found.cause), drains=True)


def _searched(record: RunRecord) -> Iterator[Accusation]:
    result = record.isolation.result if record.isolation else None
    if result is None or result.systemic:
        return
    for suspect in result.suspects:
        alone = suspect.kind == "node" and len(suspect.nodes) == 1
        text = line(f"{suspect}: {suspect.why}" if suspect.why else str(suspect))
        for node in suspect.nodes:
            yield Accusation(node=node, source="isolation", name=SEARCH if alone else LINK, what=text, drains=alone)


def _judged(record: RunRecord) -> Iterator[Accusation]:
    """Gates that name a node: of trials, and of jobs that it had for itself, but those that somebody stopped."""
    of_nobody = {job.name for job in record.jobs if ladder().is_of_nobody(job.ended_by)}
    for gate in record.gates:
        if gate.node is None or gate.verdict != Verdict.FAIL:
            continue
        trial = gate.job in _TRIALS
        if gate.job in of_nobody and not trial:
            continue
        text = line(gate.evidence or f"{gate.actual} where {gate.wanted} is wanted")
        yield Accusation(node=gate.node, source="trial" if trial else "gate", name=gate.name, what=text, drains=trial)


def proofs(record: RunRecord, said: Iterable[Accusation] | None = None) -> list[Proof]:
    """What each node has passed under load; nothing of one that is not in its desired state, that the run names, or
    that it could not judge, and nothing of a run that has no end. `said`: its accusations, from who has them."""
    if record.finished_at is None:
        return []
    named = {each.node for each in (accusations(record) if said is None else said)}
    fit = [node.name for node in record.nodes if node.verdict == Verdict.OK and node.name not in named]
    return [proof for node in fit for proof in _passed(record, node)]


def _passed(record: RunRecord, node: str) -> Iterator[Proof]:
    found: dict[str, int] = {}
    for load, others in (*_trained(record, node), *_measured(record, node)):
        found[load] = max(others, found.get(load, 0))
    yield from (Proof(node=node, load=load, others=others) for load, others in found.items())


def _trained(record: RunRecord, node: str) -> Iterator[tuple[str, int]]:
    for job in record.jobs:
        its: list[Verdict] = [gate.verdict for gate in record.gates if gate.job == job.name]
        nodes = [each.name for each in job.plan.nodes] if job.plan else []
        if node in nodes and not job.trials and job.benchmark is None and worst(its) == Verdict.OK:
            yield SMOKE, len(nodes) - 1 if job.name == TOGETHER else 0


def _measured(record: RunRecord, node: str) -> Iterator[tuple[str, int]]:
    trials = record.trials
    if trials is None:
        return
    if node not in trials.incomplete.get(NODES, {}):
        for name in trials.asked:
            its = [each.standing for each in trials.judged if each.trial == name and each.node == node]
            if name != PAIRS and its and set(its) <= {"ok", "notice"}:
                yield name, 0
    unsure = any(node in trials.incomplete.get(kind, {}) for kind in (PAIRS, AGAIN))
    read = [each for each in trials.matrices if each.median is not None]
    if PAIRS in trials.asked and node in trials.places and read and not unsure:
        cells = [cell for each in trials.matrices for cell in (*each.missing, *each.slow)]
        named = [name for each in trials.matrices for found in each.named for name in found.nodes]
        if node not in named and not any(node in cell for cell in cells):
            yield PAIRS, len(trials.places) - 1
