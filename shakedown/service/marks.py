"""Which nodes are to be drained and resumed in the scheduler. Pure: what is known in, marks out.

A reason is the scheduler's only word on who has taken a node out of service and why, so ours say it: `shakedown:RUN
CHECK WHAT`. Nobody else's is ever written over or taken away, and ours only where the ledger knows that we wrote it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shakedown.common.text import counted, printable
from shakedown.schedulers.interface import Node
from shakedown.service.model import Accusation, Known, Step
from shakedown.service.standing import History

OURS = "shakedown:"
WITNESS = "witness"  # a node that is held only so that another one can be tried with it
REASON_LENGTH = 200
# What a client's text is read by (fields with "=", "[who@when]", quotation marks, separators) is in no reason of ours.
_UNFIT = re.compile(r"[^A-Za-z0-9 ._:/%+<>-]+")


@dataclass(frozen=True)
class Mark:
    """A node to be drained or resumed, or to be left as it is though something spoke for that."""

    node: str
    what: Literal["drain", "resume", "leave"]
    there: str = ""  # the node's name in the scheduler
    reason: str = ""
    why: str = ""
    name: str = ""  # the accusation's

    def __str__(self) -> str:
        if self.what == "leave":
            return f"{self.node}: left as it is in the scheduler: {self.why}"
        return f"{self.node}: {self.what} in the scheduler" + (
            f": {self.reason}" if self.what == "drain" else f": {self.why}"
        )


def reason_of(accusation: Accusation) -> str:
    """The reason of a drain: one line of bounded length, of characters that no scheduler's text is read by. What the
    node itself said is its last part, and cannot pass for another."""
    words = [_fit(f"{OURS}{accusation.run_id or 'now'}"), _fit(accusation.name) or "check", _fit(accusation.what)]
    return " ".join(filter(None, words))[:REASON_LENGTH].rstrip()


def _fit(text: str) -> str:
    return " ".join(_UNFIT.sub("_", printable(text, REASON_LENGTH)).split())


def is_ours(node: Node, steps: Sequence[Step]) -> bool:
    """Whether we have drained a node: it has the very reason that the ledger says we gave it."""
    drained = next((step for step in reversed(steps) if step.done in ("drained", "resumed")), None)
    return node.drained and drained is not None and drained.done == "drained" and _same(node.reason, drained.why)


def only_held(history: History, known: Known) -> bool:
    """Whether we have drained a node for another one's load alone, and nothing has come up since that would be reason
    for more."""
    drained = next((step for step in reversed(known.steps) if step.done in ("drained", "resumed")), None)
    if drained is None or (drained.done, drained.name) != ("drained", WITNESS):
        return False
    return all(each.drift or each.at < drained.at for each in history.accusations)


def _same(reason: str, ours: str) -> bool:
    return reason.startswith(OURS) and reason.strip() == ours.strip()


def theirs(node: Node, steps: Sequence[Step]) -> str:
    """Who else keeps the node out of service, and why; empty: nobody does."""
    if is_ours(node, steps) or not (node.drained or node.down):
        return ""
    return node.why_not()


def names_in(nodes: Mapping[str, Node], hosts: Mapping[str, str | None]) -> dict[str, str]:
    """Host of the inventory -> its name in the scheduler: what the desired state says (the values), else
    the same, or what stands before its first dot. Never what a node says of itself. A host of which that is not clear
    has none, and no two have the same."""
    short: dict[str, list[str]] = {}
    for host in hosts:
        short.setdefault(host.partition(".")[0], []).append(host)
    found = {}
    for host, given in hosts.items():
        first = host.partition(".")[0]
        if given is not None:
            found[host] = given
        elif host in nodes:
            found[host] = host
        elif short[first] == [host]:
            found[host] = first
    taken = Counter(found.values())
    return {host: name for host, name in found.items() if name in nodes and taken[name] == 1}


@dataclass(frozen=True)
class Bounds:
    """How many may be drained by us together, those that are so already included, and why none may now."""

    at_once: int = 1
    stopped: str = ""


def marks(
    histories: Mapping[str, History],
    known: Mapping[str, Known],
    nodes: Mapping[str, Node],
    names: Mapping[str, str],
    bounds: Bounds,
) -> list[Mark]:
    """What is to be changed in the scheduler. `nodes`: all that it has; `names`: of these hosts there, as `names_in`
    finds them."""
    free = {host: its for host, its in histories.items() if not its.open or only_held(its, known.get(host, Known()))}
    found = [_resumed(host, its, known.get(host, Known()), nodes, names) for host, its in free.items()]
    accused = {host: grave for host, its in histories.items() if (grave := _reason_enough(its))}
    resumed = sum(mark is not None and mark.what == "resume" for mark in found)
    ours = {name for name, node in nodes.items() if node.drained and node.reason.startswith(OURS)}
    left = bounds.at_once - len(ours) + resumed
    for host, accusation in accused.items():
        mark = _drained(host, accusation, known.get(host, Known()), nodes.get(names.get(host, "")), bounds, left)
        left -= mark is not None and mark.what == "drain"
        found.append(mark)
    return [mark for mark in found if mark is not None]


def _reason_enough(history: History) -> Accusation | None:
    return next((each for each in history.accusations if each.drains), None)


def drain_of(host: str, accusation: Accusation, node: Node) -> Mark:
    """A node to be drained, for this."""
    return Mark(host, "drain", node.name, reason_of(accusation), name=accusation.name)


def _drained(
    host: str, accusation: Accusation, known: Known, node: Node | None, bounds: Bounds, left: int
) -> Mark | None:
    def leave(why: str) -> Mark:
        return Mark(host, "leave", node.name if node else "", why=why, name=accusation.name)

    if node is None:
        return leave("the scheduler has no node of that name")
    if is_ours(node, known.steps):
        return None
    if node.drained or node.down:
        return leave(f"it is out of service already: {node.why_not()}")
    if node.reason and not node.reason.startswith(OURS):
        return leave(f"it has a reason of somebody else's: {printable(node.reason, 200)}")
    if bounds.stopped:
        return leave(bounds.stopped)
    if left <= 0:
        return leave(f"service.at_once allows {bounds.at_once} to be out together")
    return drain_of(host, accusation, node)


def _resumed(
    host: str, history: History, known: Known, nodes: Mapping[str, Node], names: Mapping[str, str]
) -> Mark | None:
    node = nodes.get(names.get(host, ""))
    if node is None or not node.drained or not node.reason.startswith(OURS):
        return None
    if not is_ours(node, known.steps):
        return Mark(
            host, "leave", node.name, why=f"this ledger did not give it its reason: {printable(node.reason, 200)}"
        )
    drained = next(step for step in reversed(known.steps) if step.done == "drained")
    if drained.name == WITNESS:
        why = "it was only held for the load of another node"
        return Mark(host, "resume", node.name, node.reason, why=why, name=WITNESS)
    if history.cleared is None or not history.witnessed:
        why = "no later run has cleared it under load together with other nodes"
        return Mark(host, "leave", node.name, why=why)
    if history.cleared.at <= drained.at:
        return Mark(host, "leave", node.name, why="what has cleared it is older than the drain")
    if node.down:
        return Mark(host, "leave", node.name, why=f"cleared, and {node.why_not()}")
    cleared = (
        f"cleared by {history.cleared.load} with {counted(history.cleared.others, 'other')} in {history.cleared.run_id}"
    )
    return Mark(host, "resume", node.name, node.reason, why=cleared)
