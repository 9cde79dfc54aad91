"""Which nodes to drain and resume in the scheduler, and the shown status. Pure. Shakedown's reasons have the form
`shakedown:RUN CHECK WHAT`; it never changes another user's, and its own only where the ledger has it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from shakedown.common.lists import grouped
from shakedown.common.text import counted, printable
from shakedown.schedulers.interface import Node
from shakedown.service.decide import Limits, Proposal
from shakedown.service.model import History, Incident, Known, NodeService, Step
from shakedown.state.findings import Verdict, worst

PREFIX = "shakedown:"
PARTNER = "witness"  # a node that is drained only as a partner for another node's load; the ledger has this word
REASON_LENGTH = 200
# Characters by which clients parse a scheduler's text output: "=", "[who@when]", quotation marks, separators.
_UNFIT = re.compile(r"[^A-Za-z0-9 ._:/%+<>-]+")


@dataclass(frozen=True)
class Mark:
    """A node to drain or to resume, or to leave alone, with the reason."""

    node: str
    what: Literal["drain", "resume", "leave"]
    there: str = ""  # the node's name in the scheduler
    reason: str = ""
    why: str = ""
    name: str = ""  # the incident's

    def __str__(self) -> str:
        if self.what == "leave":
            return f"{self.node}: left as it is in the scheduler: {self.why}"
        return f"{self.node}: {self.what} in the scheduler: {self.reason if self.what == 'drain' else self.why}"


def drain_reason(incident: Incident) -> str:
    """Write a drain's reason: one bounded line of safe characters, with the node's own text last."""
    words = [_fit(f"{PREFIX}{incident.run_id or 'now'}"), _fit(incident.name) or "check", _fit(incident.what)]
    return " ".join(filter(None, words))[:REASON_LENGTH].rstrip()


def _fit(text: str) -> str:
    return " ".join(_UNFIT.sub("_", printable(text, REASON_LENGTH)).split())


def is_managed(node: Node, steps: Sequence[Step]) -> bool:
    """Return whether Shakedown drained the node: the reason is the one in the ledger."""
    drained = next((step for step in reversed(steps) if step.done in ("drained", "resumed")), None)
    if drained is None or drained.done != "drained" or not node.reason.startswith(PREFIX):
        return False
    return node.drained and node.reason.strip() == drained.why.strip()


def is_only_partner(history: History, known: Known) -> bool:
    """Return whether the node is drained only as a partner for a load, and has no incident since."""
    drained = next((step for step in reversed(known.steps) if step.done in ("drained", "resumed")), None)
    if drained is None or (drained.done, drained.name) != ("drained", PARTNER):
        return False
    return all(incident.drift or incident.at < drained.at for incident in history.incidents)


def unmanaged_reason(node: Node, steps: Sequence[Step]) -> str:
    """Return why another user keeps the node out of service; empty: no other user does."""
    if is_managed(node, steps) or not (node.drained or node.down):
        return ""
    return node.why_not()


def names_in(nodes: Mapping[str, Node], hosts: Mapping[str, str | None]) -> dict[str, str]:
    """Map hosts to names in the scheduler: by the desired state (values of `hosts`), the host's name, or its first
    part; never by the node's own report. Unclear names are left out, and no two hosts share one."""
    short = grouped((host.partition(".")[0], host) for host in hosts)
    result = {}
    for host, configured in hosts.items():
        first = host.partition(".")[0]
        if configured is not None:
            result[host] = configured
        elif host in nodes:
            result[host] = host
        elif short[first] == [host]:
            result[host] = first
    taken = Counter(result.values())
    return {host: name for host, name in result.items() if name in nodes and taken[name] == 1}


def marks(
    histories: Mapping[str, History],
    known: Mapping[str, Known],
    nodes: Mapping[str, Node],
    names: Mapping[str, str],
    limits: Limits,
) -> list[Mark]:
    """Decide the scheduler's changes. `nodes`: all of it; `names`: the hosts' there. Drained ones count in `limits`."""
    events = {host: known.get(host, Known()) for host in histories}
    free = [host for host, history in histories.items() if not history.open or is_only_partner(history, events[host])]
    result = [_resumed(host, histories[host], events[host], nodes, names) for host in free]
    resumed = sum(mark is not None and mark.what == "resume" for mark in result)
    drained = {name for name, node in nodes.items() if node.drained and node.reason.startswith(PREFIX)}
    left = limits.at_once - len(drained) + resumed
    for host, history in histories.items():
        incident = next((incident for incident in history.incidents if incident.drains), None)
        if incident is None:
            continue
        mark = _drained(host, incident, events[host], nodes.get(names.get(host, "")), limits, left)
        left -= mark is not None and mark.what == "drain"
        result.append(mark)
    return [mark for mark in result if mark is not None]


def drain_mark(host: str, incident: Incident, node: Node) -> Mark:
    """Mark a node to drain for an incident."""
    return Mark(host, "drain", node.name, drain_reason(incident), name=incident.name)


def _drained(host: str, incident: Incident, known: Known, node: Node | None, limits: Limits, left: int) -> Mark | None:
    def leave(reason: str) -> Mark:
        return Mark(host, "leave", node.name if node else "", why=reason, name=incident.name)

    if node is None:
        return leave("the scheduler has no node of that name")
    if is_managed(node, known.steps):
        return None
    if node.drained or node.down:
        return leave(f"the node is out of service already: {node.why_not()}")
    if node.reason and not node.reason.startswith(PREFIX):
        return leave(f"the node has another user's reason: {printable(node.reason, 200)}")
    if limits.stopped:
        return leave(limits.stopped)
    if left <= 0:
        return leave(f"service.at_once allows {limits.at_once} to be out together")
    return drain_mark(host, incident, node)


def _resumed(
    host: str, history: History, known: Known, nodes: Mapping[str, Node], names: Mapping[str, str]
) -> Mark | None:
    node = nodes.get(names.get(host, ""))
    if node is None or not node.drained or not node.reason.startswith(PREFIX):
        return None
    if not is_managed(node, known.steps):
        reason = f"the drain is not in this ledger: {printable(node.reason, 200)}"
        return Mark(host, "leave", node.name, why=reason)
    drained = next(step for step in reversed(known.steps) if step.done == "drained")
    if drained.name == PARTNER:
        reason = "the node was drained only for the load of another node"
        return Mark(host, "resume", node.name, node.reason, why=reason, name=PARTNER)
    if history.cleared is None or not history.with_partners:
        reason = "no later run has cleared the node under load together with other nodes"
        return Mark(host, "leave", node.name, why=reason)
    if history.cleared.at <= drained.at:
        return Mark(host, "leave", node.name, why="the load that cleared the node is older than the drain")
    if node.down:
        return Mark(host, "leave", node.name, why=f"cleared, and {node.why_not()}")
    partners = counted(history.cleared.others, "other")
    cleared = f"cleared by {history.cleared.load} with {partners} in {history.cleared.run_id}"
    return Mark(host, "resume", node.name, node.reason, why=cleared)


SHOWN = 20  # steps of a node, the newest


@dataclass(frozen=True)
class Board:
    """The nodes in the inventory's order, the next actions, and notes on what could not be read."""

    nodes: Sequence[NodeService]
    notes: Sequence[str] = ()
    marks: Sequence[Mark] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        """Return ok where all nodes are in service, drift for drift alone, unknown where only readings are missing."""
        verdicts = [_verdict(node) for node in self.nodes] or [Verdict.UNKNOWN]
        return worst([*verdicts, *([Verdict.UNKNOWN] if self.notes else [])])


def _verdict(node: NodeService) -> Verdict:
    if node.standing == "in service":
        return Verdict.OK
    if node.standing == "unknown":
        return Verdict.UNKNOWN
    if node.standing == "out" or any(not incident.drift and incident.source != "unread" for incident in node.open):
        return Verdict.FAIL
    unread = any(incident.source == "unread" for incident in node.open)
    return Verdict.UNKNOWN if unread else Verdict.DRIFT


def shown(
    name: str,
    known: Known,
    history: History,
    proposal: Proposal | None = None,
    scheduled: Node | None = None,
    parts: Sequence[str] = (),
    unread: str = "",
) -> NodeService:
    """Describe one node. `unread`: why its scheduler's state could not be read."""
    handed = history.taken("handed over", "taken back")
    begun = history.taken("begun")
    other = unmanaged_reason(scheduled, known.steps) if scheduled is not None else ""
    drained = next((step for step in reversed(known.steps) if step.done == "drained"), None)
    managed = scheduled is not None and is_managed(scheduled, known.steps)
    open_ = history.incidents
    reason, since, rung = "; ".join(map(str, open_[:3])), history.since, ""
    if handed is not None and handed.done == "handed over":
        status, since = "out", handed.at
        reason = f"handed over to a person: {handed.why}; {reason}"
    elif other:
        status, since = "out", None
        reason = f"another user took the node out of service: {other}" + (f"; {reason}" if reason else "")
    elif begun is not None:
        status, since, rung = "being mended", begun.at, begun.rung
    elif managed:
        status, since = "out", drained.at if drained else None
        reason = reason or "shakedown drained the node, and no incident is open: it will be resumed"
    elif open_:
        status = "suspect"
    else:
        status, reason, since = "unknown" if unread else "in service", unread, None
    return NodeService(
        node=name,
        standing=status,
        why=reason,
        evidence=tuple(dict.fromkeys(incident.run_id for incident in open_ if incident.run_id)),
        rung=rung,
        since=since,
        open=tuple(open_),
        scheduler="" if scheduled is None else "+".join(scheduled.states).lower(),
        passed=history.passed,
        steps=known.steps[-SHOWN:],
        parts=tuple(parts),
        next=_next(proposal),
    )


def _next(proposal: Proposal | None) -> str:
    if proposal is None:
        return ""
    loads = ", ".join(proposal.loads) or "a training, or trials, with other nodes"
    words: dict[str, str] = {
        "repair": proposal.repair,
        "load": f"under load: {loads} ({proposal.why})",
        "hand over": f"hand over to a person: {proposal.why}",
        "drain": f"drain, and wait: {proposal.why}",
        "wait": f"{proposal.repair} from {when(proposal.until)} on",
    }
    return words.get(proposal.kind, proposal.why)


def when(seconds: int | None) -> str:
    """Write a time for a person, UTC."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def step_line(step: Step) -> str:
    what = " ".join(filter(None, (step.done, step.rung)))
    outcome = f": {step.outcome}" if step.outcome else ""
    reason = f" ({step.why})" if step.why else ""
    return f"{when(step.at)} {what}{outcome}{reason}" + (f" [{step.run_id}]" if step.run_id else "")
