"""The incidents and passed loads of nodes, from a run's record. Pure. An incident is a node's finding, a certain
diagnosis by its own failure, a trial or a search; taking part in a failed job is none. A comparison, which can rest on
others' reports, is shown and takes no node out of service."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from shakedown.common.text import in_unit, line
from shakedown.desired.models import TOGETHER
from shakedown.runs.directory import RunRecord
from shakedown.service.model import Incident, PassedLoad, Source, escalation
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
    found = (incident for incident in _from_findings(findings) if escalation().counts(incident))
    return [incident.model_copy(update={"at": at}) for incident in found]


def _from_findings(findings: Iterable[Finding]) -> Iterator[Incident]:
    counts: Counter[str] = Counter()
    wrong = [finding for finding in findings if not finding.verdict.passes]
    for finding in sorted(wrong, key=lambda finding: -finding.verdict.severity):
        if counts[finding.node] >= _MOST:
            continue
        counts[finding.node] += 1
        source: Source = "unread" if finding.verdict == Verdict.UNKNOWN else "finding"
        drift, node, name = finding.verdict == Verdict.DRIFT, finding.node, finding.name
        drains = finding.verdict == Verdict.FAIL and name.partition(".")[0] != _COMPARED
        yield Incident(node=node, source=source, name=name, what=_what(finding), drift=drift, drains=drains)


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
    """List the loads that nodes passed in a finished run, in desired state and without incident (`own`, if known)."""
    if record.finished_at is None:
        return []
    named = {incident.node for incident in (incidents(record) if own is None else own)}
    healthy = [node.name for node in record.nodes if node.verdict == Verdict.OK and node.name not in named]
    partners: dict[str, dict[str, int]] = {node: {} for node in healthy}
    for node, load, others in (*_trained(record), *_measured(record), *_soaked(record)):
        if node in partners:
            partners[node][load] = max(others, partners[node].get(load, 0))
    passed = ((node, load, others) for node, loads in partners.items() for load, others in loads.items())
    return [PassedLoad(node=node, load=load, others=others) for node, load, others in passed]


def _trained(record: RunRecord) -> Iterator[tuple[str, str, int]]:
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for gate in record.gates:
        verdicts[gate.job].append(gate.verdict)
    for job in record.jobs:
        if job.plan and not job.plan.has_report and not job.trials and worst(verdicts[job.name]) == Verdict.OK:
            others = len(job.plan.nodes) - 1 if job.name == TOGETHER else 0
            yield from ((node.name, SMOKE, others) for node in job.plan.nodes)


def _soaked(record: RunRecord) -> Iterator[tuple[str, str, int]]:
    soak = record.soak
    passes = [gate.verdict.passes for gate in record.gates if gate.job.partition("/")[0] == KIND]
    if soak is not None and soak.over and passes and all(passes):
        yield from ((node, KIND, len(soak.nodes) - 1) for node in soak.nodes)


def _measured(record: RunRecord) -> Iterator[tuple[str, str, int]]:
    if (trials := record.trials) is None:
        return
    standings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for judged in trials.judged:
        standings[judged.trial, judged.node].add(judged.standing)
    for (name, node), of_node in standings.items():
        if name in trials.asked and name != PAIRS and node not in trials.incomplete.get(NODES, {}):
            yield from [(node, name, 0)] if of_node <= {"ok", "notice"} else []
    if PAIRS in trials.asked and any(matrix.median is not None for matrix in trials.matrices):
        cells = (cell for matrix in trials.matrices for cell in (*matrix.missing, *matrix.slow))
        doubtful = {node for cell in cells for node in cell}
        doubtful |= {name for matrix in trials.matrices for cause in matrix.named for name in cause.nodes}
        doubtful |= {node for kind in (PAIRS, AGAIN) for node in trials.incomplete.get(kind, {})}
        yield from ((node, PAIRS, len(trials.places) - 1) for node in trials.places if node not in doubtful)
