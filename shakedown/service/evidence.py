"""The incidents and the passed loads of nodes, from a run's record. Pure.

An incident names a node: a finding of the node, a certain diagnosis that rests on the node's own failure, a trial, a
search. Taking part in a failed job is no incident. A comparison of nodes can rest on other nodes' reports: it is shown,
and takes no node out of service.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from shakedown.common.text import in_unit, line
from shakedown.desired.models import TOGETHER
from shakedown.runs.records import RunRecord
from shakedown.service.model import Incident, PassedLoad, escalation
from shakedown.state.findings import Finding, Verdict, worst
from shakedown.trials.models import AGAIN, NODES, PAIRS
from shakedown.trials.soak import KIND

SEARCH = "search"  # a search for bad nodes, as an incident's name
LINK = "link"  # between two nodes, of which either may be at fault
SMOKE = "smoke"
_BY_OTHERS = "hang"  # a sign of a hang: it comes from the records of all ranks
_COMPARED = "fleet"  # findings from comparing nodes
_TRIALS = (NODES, PAIRS, AGAIN, KIND)
_MOST = 50  # incidents of one node from findings, the worst


def incidents(record: RunRecord) -> list[Incident]:
    """List the incidents of a run's nodes."""
    names = {node.name for node in record.nodes}
    every = (*_from_diagnosis(record), *_from_search(record), *_from_gates(record), *_from_findings(record.findings))
    return [incident for incident in every if incident.node in names and escalation().counts(incident)]


def from_findings(findings: Iterable[Finding], at: int) -> list[Incident]:
    """List the incidents of an examination outside a run, at this time (seconds since 1970 UTC)."""
    return [
        incident.model_copy(update={"at": at}) for incident in _from_findings(findings) if escalation().counts(incident)
    ]


def _from_findings(findings: Iterable[Finding]) -> Iterator[Incident]:
    counts: Counter[str] = Counter()
    for finding in sorted(findings, key=lambda finding: -finding.verdict.severity):
        if finding.verdict.passes or counts[finding.node] >= _MOST:
            continue
        counts[finding.node] += 1
        unread = finding.verdict == Verdict.UNKNOWN
        compared = finding.name.partition(".")[0] == _COMPARED
        yield Incident(
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
    actual, wanted = (in_unit(str(value), finding.unit or "").rstrip() for value in (finding.actual, finding.wanted))
    return line(f"{actual} where {wanted} is wanted{pending}")


def _from_diagnosis(record: RunRecord) -> Iterator[Incident]:
    """Take incidents from a certain diagnosis of nodes that show the failure themselves."""
    diagnosis = record.diagnosis
    if diagnosis is None or diagnosis.confidence != "certain":
        return
    own = [sign for sign in diagnosis.evidence if sign.role != "echo" and not sign.blames and sign.name != _BY_OTHERS]
    shown = {sign.node for sign in own}
    for node in diagnosis.origin:
        if node in shown:
            yield Incident(node=node, source="diagnosis", name=diagnosis.name, what=line(diagnosis.cause), drains=True)


def _from_search(record: RunRecord) -> Iterator[Incident]:
    result = record.isolation.result if record.isolation else None
    if result is None or result.systemic:
        return
    for suspect in result.suspects:
        alone = suspect.kind == "node" and len(suspect.nodes) == 1
        text = line(f"{suspect}: {suspect.why}" if suspect.why else str(suspect))
        for node in suspect.nodes:
            yield Incident(node=node, source="isolation", name=SEARCH if alone else LINK, what=text, drains=alone)


def _from_gates(record: RunRecord) -> Iterator[Incident]:
    """Take incidents from gates that name a node: of trials, and of single-node jobs that were not stopped."""
    ignored = {job.name for job in record.jobs if f"ended {job.ended_by}" in escalation().ignored.names}
    for gate in record.gates:
        if gate.node is None or gate.verdict != Verdict.FAIL:
            continue
        trial = gate.job in _TRIALS
        if gate.job in ignored and not trial:
            continue
        text = line(gate.evidence or f"{gate.actual} where {gate.wanted} is wanted")
        yield Incident(node=gate.node, source="trial" if trial else "gate", name=gate.name, what=text, drains=trial)


def passed_loads(record: RunRecord, own: Iterable[Incident] | None = None) -> list[PassedLoad]:
    """List the loads that nodes have passed in a finished run.

    A node counts only in its desired state and without an incident in the run. `own`: the run's incidents, where the
    caller has them.
    """
    if record.finished_at is None:
        return []
    named = {incident.node for incident in (incidents(record) if own is None else own)}
    fit = [node.name for node in record.nodes if node.verdict == Verdict.OK and node.name not in named]
    return [passed_load for node in fit for passed_load in _passed(record, node)]


def _passed(record: RunRecord, node: str) -> Iterator[PassedLoad]:
    partners: dict[str, int] = {}
    for load, others in (*_trained(record, node), *_measured(record, node), *_soaked(record, node)):
        partners[load] = max(others, partners.get(load, 0))
    yield from (PassedLoad(node=node, load=load, others=others) for load, others in partners.items())


def _trained(record: RunRecord, node: str) -> Iterator[tuple[str, int]]:
    for job in record.jobs:
        verdicts: list[Verdict] = [gate.verdict for gate in record.gates if gate.job == job.name]
        nodes = [member.name for member in job.plan.nodes] if job.plan and not job.plan.has_report else []
        if node in nodes and not job.trials and worst(verdicts) == Verdict.OK:
            yield SMOKE, len(nodes) - 1 if job.name == TOGETHER else 0


def _soaked(record: RunRecord, node: str) -> Iterator[tuple[str, int]]:
    soak = record.soak
    passes = [gate.verdict.passes for gate in record.gates if gate.job.partition("/")[0] == KIND]
    if soak is not None and soak.over and node in soak.nodes and passes and all(passes):
        yield KIND, len(soak.nodes) - 1


def _measured(record: RunRecord, node: str) -> Iterator[tuple[str, int]]:
    trials = record.trials
    if trials is None:
        return
    if node not in trials.incomplete.get(NODES, {}):
        for name in trials.asked:
            standings = [judged.standing for judged in trials.judged if judged.trial == name and judged.node == node]
            if name != PAIRS and standings and set(standings) <= {"ok", "notice"}:
                yield name, 0
    unsure = any(node in trials.incomplete.get(kind, {}) for kind in (PAIRS, AGAIN))
    read = [matrix for matrix in trials.matrices if matrix.median is not None]
    if PAIRS in trials.asked and node in trials.places and read and not unsure:
        cells = [cell for matrix in trials.matrices for cell in (*matrix.missing, *matrix.slow)]
        named = [name for matrix in trials.matrices for cause in matrix.named for name in cause.nodes]
        if node not in named and not any(node in cell for cell in cells):
            yield PAIRS, len(trials.places) - 1
