"""The next action for each suspect node, and limits on repairs. Pure. Doubt counts against acting: a node that may have
a job, or that another user took out of service, is left alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Literal

from shakedown.common.text import counted
from shakedown.desired.models import Service
from shakedown.desired.values import nodes_in
from shakedown.service.model import LOAD, REPAIRS, Budget, History, Incident, Known, Step, escalation

Kind = Literal["repair", "load", "drain", "hand over", "wait", "leave"]
LOADS = 2  # loads in a row without a result, after which a person has to look


@dataclass(frozen=True)
class Facts:
    """A node's facts. `job`: its job, or why unknown. `unmanaged`: another user's drain; `managed`: shakedown's."""

    reached: bool = True
    job: str = ""
    unmanaged: str = ""
    managed: bool = False
    drainable: bool = True  # the scheduler can keep jobs off the node during a repair
    waits: bool = False  # the node has a job in the scheduler, and a drain frees it at the job's end
    found: frozenset[tuple[str, str]] | None = None  # findings of the last check, by source and name; None: not read
    pending: bool = False  # every drifted setting is written, and waits for a boot or a login
    claimed: str = ""  # the process of another controller that works on the node


@dataclass(frozen=True)
class Proposal:
    """The next action for a node, or why there is none."""

    node: str
    kind: Kind
    why: str
    repair: str = ""
    name: str = ""  # the incident's
    loads: tuple[str, ...] = ()  # to pass; empty: any, with other nodes
    until: int = 0  # of a wait: seconds since 1970 UTC


@dataclass
class Limits:
    """The limits over all nodes. `stopped`: why no action may begin."""

    at_once: int = 1  # nodes that may be out together
    stopped: str = ""
    busy: set[str] = field(default_factory=set)  # nodes that are out already: drained by shakedown, or under repair


def proposals(
    histories: Mapping[str, History],
    known: Mapping[str, Known],
    facts: Mapping[str, Facts],
    allowed: Mapping[str, Service],
    limits: Limits,
    now: int,
) -> list[Proposal]:
    """Propose the next action for each suspect. Nodes under repair come first, so that begun repairs end."""
    begun = [node for node, history in histories.items() if history.steps]
    order = [*begun, *(node for node, history in histories.items() if history.open and not history.steps)]
    out = set(limits.busy)
    result = []
    for node in order:
        own = facts.get(node, Facts(reached=False, job="the node was not read"))
        of_node = known.get(node, Known())
        proposal = next_proposal(node, histories[node], of_node, own, allowed.get(node, Service()), now)
        if proposal.kind in ("repair", "load"):
            proposal = _limited(proposal, own, limits, out)
        if proposal.kind in ("repair", "load", "drain"):
            out.add(node)
        result.append(proposal)
    return result


def _limited(proposal: Proposal, facts: Facts, limits: Limits, out: set[str]) -> Proposal:
    reason = ""
    if limits.stopped:
        reason = limits.stopped
    elif facts.unmanaged:
        reason = f"another user took the node out of service: {facts.unmanaged}"
    elif not facts.drainable:
        reason = "the scheduler could start a job meanwhile: drain the node, or allow it with service.drain"
    elif proposal.node not in out and len(out) >= limits.at_once:
        reason = f"{counted(len(out), 'node')} out of service already, and service.at_once allows {limits.at_once}"
    elif facts.job:
        reason = f"never a node with a job: {facts.job}"
    kind: Kind = "drain" if facts.waits and reason.endswith(facts.job) else "leave"
    return Proposal(proposal.node, kind, reason, proposal.repair, proposal.name) if reason else proposal


def next_proposal(node: str, history: History, known: Known, facts: Facts, allowed: Service, now: int) -> Proposal:
    """Propose a suspect node's next action. A step without end, on a node that no process claims, was interrupted."""
    incident = history.incidents[0]
    if facts.claimed:
        return Proposal(node, "leave", f"{facts.claimed} is at work there", name=incident.name)
    if all(escalation().is_compared(incident) for incident in history.incidents):
        reason = "nodes differ, and only another node's report shows which is wrong: a person has to look"
        return Proposal(node, "leave", reason, name=incident.name)
    if (last := history.taken("begun", "handed over", "taken back")) is None:
        return _escalate(node, history, known, facts, allowed, now)
    if last.done == "handed over":
        return Proposal(node, "leave", f"handed over to a person: {last.why}", name=incident.name)
    if last.done == "taken back":
        return _load(node, history, "a person has taken the node back into service")
    ended = _find_end(last, history.steps)
    named_again = any(entry.last.at >= last.at for entry in history.open.values())
    if ended is None or ended.outcome == "interrupted":
        if last.rung == LOAD and not named_again:
            return _load(node, history, "the load was interrupted")
        return _escalate(node, history, known, facts, allowed, now)
    if last.rung == LOAD:
        tries = _loads_in_a_row(history.steps)
        if not named_again and tries < LOADS:
            return _load(node, history, "the load before gave no result")
        if not named_again:
            reason = f"no new incident, and {counted(tries, 'load')} in a row did not show that the node is healthy"
            return Proposal(node, "hand over", reason, name=incident.name)
        if facts.found is not None:  # the load has shown the fault, even if a check does not find it
            since = {(incident.source, incident.name) for incident in history.incidents if incident.at >= last.at}
            facts = replace(facts, found=facts.found | since)
    if ended.outcome == "done" and not named_again:
        return _load(node, history, f"after {last.rung}")
    return _escalate(node, history, known, facts, allowed, now)


def _load(node: str, history: History, reason: str) -> Proposal:
    loads = dict.fromkeys(load for entry in history.open.values() for load in entry.lacking())
    return Proposal(node, "load", reason, LOAD, history.incidents[0].name, tuple(loads))


def _escalate(node: str, history: History, known: Known, facts: Facts, allowed: Service, now: int) -> Proposal:
    """Propose the next repair that is allowed and within its budget; a person, where no repair is left."""
    own = [incident for incident in history.incidents if not escalation().is_compared(incident)]
    incidents = [incident for incident in own if _is_present(incident, facts)]
    if not incidents:
        return _load(node, history, "the check no longer finds the fault")
    incident = incidents[0]
    lacking: list[str] = []
    for budget in _budgets(incidents):
        repair = budget.repair
        if reason := _impossible(repair, facts, allowed) or _pointless(repair, incidents, facts):
            lacking.append(reason)
            continue
        if (tried := _tried(known, budget, now)) >= budget.attempts:
            lacking.append(f"{repair} was tried {'once' if tried == 1 else f'{tried} times'}")
            continue
        earlier = [step.at for step in known.steps if step.done in ("begun", "ended") and step.rung in REPAIRS]
        if now < (until := max([incident.at, *earlier]) + int(budget.wait_s)):
            return Proposal(node, "wait", f"before {repair}", repair, incident.name, until=until)
        return Proposal(node, "repair", str(incident), repair, incident.name)
    if not facts.reached and not any(step.rung == "power cycle" for step in history.steps):
        return Proposal(node, "leave", "the node does not answer: a person has to look at it", name=incident.name)
    return Proposal(node, "hand over", "; ".join(dict.fromkeys(lacking)) or "no repair is left", name=incident.name)


def _is_present(incident: Incident, facts: Facts) -> bool:
    """Return whether the fault may be present. What a check no longer finds needs a load; drift counts always."""
    if facts.found is None or incident.drift or incident.source not in ("finding", "unread"):
        return True
    return (incident.source, incident.name) in facts.found


def _budgets(incidents: Sequence[Incident]) -> list[Budget]:
    """Return the steps of the gravest incident; before them the operations, where any incident is drift."""
    steps = escalation().entry_for(incidents[0]).steps
    drifted = next((incident for incident in incidents if incident.drift), None)
    if drifted is None or any(step.repair == "mend" for step in steps):
        return steps
    return [*(step for step in escalation().entry_for(drifted).steps if step.repair == "mend"), *steps]


def _impossible(repair: str, facts: Facts, allowed: Service) -> str:
    if repair not in allowed.rungs:
        return f"service.rungs does not allow {repair}"
    if repair == "power cycle":
        return "" if allowed.bmc else "there is no service.bmc for a power cycle"
    return "" if facts.reached else f"the node does not answer, and {repair} needs that"


def _pointless(repair: str, incidents: Sequence[Incident], facts: Facts) -> str:
    """Return why a repair would change nothing: no operation repairs the fault, or all operations are done."""
    if repair != "mend":
        return ""
    if facts.pending:
        return "the drifted settings are written, and wait for a boot or a login"
    unrepairable = incidents[0].source == "finding" and not any(incident.drift for incident in incidents)
    return f"no operation changes {incidents[0].name}" if unrepairable else ""


def _tried(known: Known, budget: Budget, now: int) -> int:
    """Count the attempts of a repair within its window, without interrupted ones."""
    begun = [step for step in known.steps if step.done == "begun" and step.rung == budget.repair]
    recent = [step for step in begun if now - step.at <= 3600 * budget.within_h]
    ends = [_find_end(step, known.steps) for step in recent]
    return sum(end is not None and end.outcome != "interrupted" for end in ends)


def _find_end(begun: Step, steps: Sequence[Step]) -> Step | None:
    """Find the end of a step that was begun: the first end of its kind that follows."""
    until_next = takewhile(lambda step: step.done != "begun", steps[steps.index(begun) + 1 :])
    return next((step for step in until_next if step.done == "ended" and step.rung == begun.rung), None)


def _loads_in_a_row(steps: Sequence[Step]) -> int:
    turns = [step for step in reversed(steps) if step.done in ("begun", "taken back")]
    return len(list(takewhile(lambda step: step.done == "begun" and step.rung == LOAD, turns)))


MENDING_S = 7 * 24 * 3600  # for so long after its last step a node counts as under repair
WINDOW_S = 24 * 3600  # in which attempts that failed are counted


def at_once(services: Iterable[Service], nodes: int) -> int:
    """Return how many nodes may be out of service together: the smallest value of all hosts, and at least one."""
    return min((nodes_in(service.at_once, nodes, 1) for service in services), default=1)


def stop_at(services: Iterable[Service], nodes: int) -> int:
    """Return how many nodes may fail before repairs stop: at least one, since a single bad node is the usual case."""
    return min((nodes_in(service.stop_at, nodes, 1) for service in services), default=1)


def too_many_named(named: Iterable[str], allowed: int) -> str:
    """Return why a run names too many nodes at once; empty: it does not."""
    nodes = set(named)
    if len(nodes) <= allowed:
        return ""
    advice = f"service.stop_at allows {allowed}: look first at what the nodes share"
    return f"{counted(len(nodes), 'node')} are named at once, and {advice}"


def too_many_failed(known: Mapping[str, Known], now: int, allowed: int) -> str:
    """Return why no further repair begins: the last attempt of the day failed on too many nodes; empty: it may."""
    failed = [node for node, history in known.items() if _last_outcome(history, now - WINDOW_S) == "failed"]
    if len(failed) <= allowed:
        return ""
    return f"attempts on {counted(len(failed), 'node')} have failed within a day, and service.stop_at allows {allowed}"


def _last_outcome(known: Known, since: int) -> str:
    tried = (step for step in reversed(known.steps) if step.done == "ended" and step.rung in (*REPAIRS, LOAD))
    return next((step.outcome for step in tried if step.outcome != "interrupted" and step.at >= since), "")
