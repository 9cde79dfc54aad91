"""The service status of all nodes, as `shakedown service` shows it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shakedown.schedulers.interface import Node
from shakedown.service.decide import Proposal
from shakedown.service.marks import Mark, is_managed, unmanaged_reason
from shakedown.service.model import History, Known, NodeService, Step
from shakedown.state.findings import Verdict, worst

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
    if proposal.kind == "repair":
        return proposal.repair
    if proposal.kind == "load":
        return f"under load: {', '.join(proposal.loads) or 'a training, or trials, with other nodes'} ({proposal.why})"
    if proposal.kind == "hand over":
        return f"hand over to a person: {proposal.why}"
    if proposal.kind == "drain":
        return f"drain, and wait: {proposal.why}"
    if proposal.kind == "wait":
        return f"{proposal.repair} from {when(proposal.until)} on"
    return proposal.why


def when(seconds: int | None) -> str:
    """Write a time for a person, UTC."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def step_line(step: Step) -> str:
    what = " ".join(filter(None, (step.done, step.rung)))
    outcome = f": {step.outcome}" if step.outcome else ""
    reason = f" ({step.why})" if step.why else ""
    return f"{when(step.at)} {what}{outcome}{reason}" + (f" [{step.run_id}]" if step.run_id else "")
