"""Hints against nodes from an examination and a failed run. A hint names no node: the search tries it first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shakedown.common.text import counted, decimal, printable
from shakedown.evidence import peers
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.stragglers import model
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.summary import Channel, NodeTelemetry, channels
from shakedown.runs.directory import RunRecord
from shakedown.runs.isolation import Hint
from shakedown.state.findings import Finding, Verdict
from shakedown.trials.models import TrialsRecord

# How many times likelier a hint is of a bad node: guesses, deliberately low. A wrong hint costs a small group.
_ODDS_FINDING = {Verdict.FAIL: 20.0, Verdict.UNKNOWN: 5.0, Verdict.DRIFT: 3.0, Verdict.WARN: 2.0}
_ODDS_GATE = 10.0
_ODDS_ORIGIN = {"certain": 40.0, "likely": 20.0, "undecided": 5.0}
_ODDS_AMONG = 4.0
_ODDS_STRAGGLER = {"fail": 30.0, "warn": 10.0, "undecided": 5.0, "notice": 2.0}
_ODDS_TRIAL = {"named": 30.0, "undecided": 5.0}
_ODDS_TELEMETRY = 8.0
_FIRST = 20.0  # the node that was first to fail: often the one that noticed


def from_findings(findings: Iterable[Finding]) -> Iterator[Hint]:
    """Take hints from findings that differ between nodes: a finding of all nodes is no hint against one."""
    wrong = [finding for finding in findings if finding.verdict != Verdict.OK]
    nodes = {finding.node for finding in wrong}
    for finding in wrong:
        if len(nodes) > 1 and nodes <= {other.node for other in wrong if other.name == finding.name}:
            continue
        text = f"{finding.actual}" if finding.actual is not None else finding.evidence
        yield _hint(finding.node, f"finding {finding.name}", text, _ODDS_FINDING[finding.verdict])


def from_run(record: RunRecord, stopped: Sequence[tuple[str, str]] = ()) -> Iterator[Hint]:
    """Take a run's hints. `stopped`: the nodes that failed first, with the reason."""
    yield from from_findings(record.findings)
    if record.trials is not None:
        yield from from_trials(record.trials)
    if record.diagnosis is not None:
        yield from from_diagnosis(record.diagnosis)
    for job in record.jobs:
        if job.stragglers is not None:
            yield from from_stragglers(job.stragglers)
        yield from from_telemetry(job.telemetry)
    for gate in record.gates:
        if gate.node is not None and gate.verdict == Verdict.FAIL:
            yield _hint(gate.node, f"gate {gate.name}", gate.evidence, _ODDS_GATE)
    for node, reason in stopped:
        yield _hint(node, "first failure", reason, _FIRST)


def from_diagnosis(diagnosis: Diagnosis) -> Iterator[Hint]:
    """Take hints from the origin of a failure, and from the nodes among which the diagnosis could not decide."""
    for node in diagnosis.origin:
        yield _hint(node, "diagnosis", diagnosis.why, _ODDS_ORIGIN[diagnosis.confidence])
    for node in diagnosis.among:
        yield _hint(node, "diagnosis", f"one of {len(diagnosis.among)}: {diagnosis.why}", _ODDS_AMONG)


def from_stragglers(stragglers: Stragglers) -> Iterator[Hint]:
    """Take hints from nodes whose ranks needed longer than others for the same work."""
    for straggler in stragglers.slow:
        yield _hint(straggler.node, "straggler", model.sentence(straggler), _ODDS_STRAGGLER[straggler.level])


def from_telemetry(telemetry: Mapping[str, NodeTelemetry]) -> Iterator[Hint]:
    """Take hints from samples unlike those of three or more peers, by channels with a bad direction (channels.toml)."""
    for channel in channels().values():
        if channel.odd is None:
            continue
        values = {node: value for node, samples in telemetry.items() if (value := _value(channel, samples)) is not None}
        shifted = {node: [value + channel.least] for node, value in values.items()}
        for node, place in peers.places(shifted, lower_is_better=channel.odd == "high", slower=_APART).items():
            if place.of_peers is not None and place.standing(_APART)[0] == "named":
                usual, others = max(place.of_peers - channel.least, 0.0), counted(place.peers, "other")
                text = f"{decimal(values[node], 4)} {channel.odd_unit}, the median of {others} is {decimal(usual, 4)}"
                yield _hint(node, "telemetry", f"{channel.name}: {text}", _ODDS_TELEMETRY)


def from_trials(trials: TrialsRecord) -> Iterator[Hint]:
    """Take hints from parts that differed from the fleet, and from nodes and links that the rounds of pairs named."""
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
    """Keep each node's strongest hint, since they are dependent; none where over a third of the nodes have any."""
    by_node: dict[str, Hint] = {}
    for hint in hints:
        if hint.node in nodes and (hint.node not in by_node or hint.odds > by_node[hint.node].odds):
            by_node[hint.node] = hint
    return list(by_node.values()) if 3 * len(by_node) <= len(nodes) else []


def _hint(node: str, source: str, text: str, odds: float) -> Hint:
    return Hint(node=node, source=printable(source, 100), text=printable(text, 300), odds=odds)


_APART = 0.1  # of what is usual: the least difference that counts, whatever the scatter is


def _value(channel: Channel, node: NodeTelemetry) -> float | None:
    """Return the median of gauges and rates, the highest device of counts, the share of the time of throttling."""
    if channel.reason is not None:
        if node.seconds <= 0 or len(node.throttle_unread.get(channel.reason, ())) >= node.gpus:
            return None
        throttled = [seconds.get(channel.reason, 0.0) for seconds in node.throttled.values()]
        return 100 * max(throttled, default=0.0) / node.seconds
    spread = node.channels.get(channel.name)
    if spread is None:
        return None
    return spread.max if channel.kind == "count" else spread.median
