"""All nodes with their service: what `shakedown service` shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shakedown.schedulers.interface import Node
from shakedown.service.decide import Proposal
from shakedown.service.marks import Mark, is_ours, theirs
from shakedown.service.model import Known, NodeService, Step
from shakedown.service.standing import History
from shakedown.state.findings import Verdict, worst

SHOWN = 20  # steps of a node, the newest


@dataclass(frozen=True)
class Board:
    """The nodes in the inventory's order, what would be done, and what could not be asked."""

    nodes: Sequence[NodeService]
    notes: Sequence[str] = ()
    marks: Sequence[Mark] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        """In service is ok; drift alone is drift; what could only not be read, or asked, is unknown."""
        found = [_verdict(node) for node in self.nodes] or [Verdict.UNKNOWN]
        return worst([*found, *([Verdict.UNKNOWN] if self.notes else [])])


def _verdict(node: NodeService) -> Verdict:
    if node.standing == "in service":
        return Verdict.OK
    if node.standing == "unknown":
        return Verdict.UNKNOWN
    if node.standing == "out" or any(not each.drift and each.source != "unread" for each in node.open):
        return Verdict.FAIL
    unread = any(each.source == "unread" for each in node.open)
    return Verdict.UNKNOWN if unread else Verdict.DRIFT


def shown(
    name: str,
    known: Known,
    history: History,
    proposal: Proposal | None = None,
    scheduled: Node | None = None,
    parts: Sequence[str] = (),
    untold: str = "",
) -> NodeService:
    """One node. `untold`: why its scheduler has not told of it, where it has one."""
    handed = history.taken("handed over", "taken back")
    begun = history.taken("begun")
    other = theirs(scheduled, known.steps) if scheduled is not None else ""
    drained = next((step for step in reversed(known.steps) if step.done == "drained"), None)
    ours = scheduled is not None and is_ours(scheduled, known.steps)
    open_ = history.accusations
    why, since, rung = "; ".join(map(str, open_[:3])), history.since, ""
    if handed is not None and handed.done == "handed over":
        standing, since = "out", handed.at
        why = f"handed over to a person: {handed.why}; {why}"
    elif other:
        standing, since = "out", None
        why = f"by somebody else: {other}" + (f"; {why}" if why else "")
    elif begun is not None:
        standing, since, rung = "being mended", begun.at, begun.rung
    elif ours:
        standing, since = "out", drained.at if drained else None
        why = why or "drained by us, and nothing speaks against it any more: to be resumed"
    elif open_:
        standing = "suspect"
    else:
        standing, why, since = "unknown" if untold else "in service", untold, None
    return NodeService(
        node=name,
        standing=standing,
        why=why,
        evidence=tuple(dict.fromkeys(each.run_id for each in open_ if each.run_id)),
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
    if proposal.kind == "rung":
        return proposal.rung
    if proposal.kind == "load":
        return f"under load: {', '.join(proposal.loads) or 'a training, or trials, with other nodes'} ({proposal.why})"
    if proposal.kind == "hand over":
        return f"hand over to a person: {proposal.why}"
    if proposal.kind == "drain":
        return f"drain, and wait: {proposal.why}"
    if proposal.kind == "wait":
        return f"{proposal.rung} from {when(proposal.until)} on"
    return proposal.why


def when(seconds: int | None) -> str:
    """A time for a person, UTC."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def told(step: Step) -> str:
    """A step in one line."""
    what = " ".join(filter(None, (step.done, step.rung)))
    outcome = f": {step.outcome}" if step.outcome else ""
    why = f" ({step.why})" if step.why else ""
    return f"{when(step.at)} {what}{outcome}{why}" + (f" [{step.run_id}]" if step.run_id else "")


def by_standing(nodes: Sequence[NodeService]) -> Mapping[str, int]:
    """How many nodes there are of each standing."""
    found: dict[str, int] = {}
    for node in nodes:
        found[node.standing] = found.get(node.standing, 0) + 1
    return found
