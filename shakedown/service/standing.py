"""What still speaks against a node: its history, event by event. Pure.

An accusation stays until the node has passed, in later runs that had nothing against it, each load that would have
shown it, and one of them together with other nodes. A rung on the ladder begins that anew: what was passed before it
says nothing of the node as it is after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shakedown.service.ladder import ladder
from shakedown.service.model import RUNGS, Accusation, Known, Proof, Step

# The strongest first: of several accusations the first decides what is tried.
_GRAVE = ("isolation", "diagnosis", "trial", "finding", "gate", "unread")


@dataclass
class Open:
    """An accusation that still stands: how often and since when, and what was passed since."""

    first: Accusation
    last: Accusation
    loads: set[str] = field(default_factory=set)
    with_others: bool = False

    def closed(self, alone: bool) -> bool:
        """Whether all that has to be passed has been. `alone`: there are no other nodes that could bear witness."""
        wanted = ladder().shown_by(self.last)
        shown = set(wanted) <= self.loads if wanted else bool(self.loads)
        return shown and (self.with_others or alone)

    def lacking(self) -> list[str]:
        """The loads that it has still to pass; empty: any, with other nodes."""
        return [load for load in ladder().shown_by(self.last) if load not in self.loads]


@dataclass
class History:
    """A node's events brought into order. `steps`: those since the first accusation that still stands."""

    open: dict[tuple[str, str], Open] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    passed: Proof | None = None  # the last load
    cleared: Proof | None = None  # with which the last accusation fell; None: none has ever, or some stand
    witnessed: bool = False  # that other nodes took part in what cleared it

    @property
    def accusations(self) -> list[Accusation]:
        """Those that stand, the gravest first."""
        found = [each.last for each in self.open.values()]
        return sorted(found, key=lambda each: (_GRAVE.index(each.source), each.drift, each.at))

    @property
    def since(self) -> int | None:
        """When the first of them was made."""
        return min((each.first.at for each in self.open.values()), default=None)

    def taken(self, *done: str) -> Step | None:
        """The last step of these kinds since the node was accused."""
        return next((step for step in reversed(self.steps) if step.done in done), None)


def history(known: Known, alone: bool = False) -> History:
    """What a node's events come to. Within one second a step counts as earlier than a run, and what was passed as
    earlier than what was found: nobody is cleared by an order that is not known."""
    found = History()
    events: Iterable[Step | Proof | Accusation] = sorted(
        (*known.steps, *known.proofs, *known.accusations), key=lambda each: (each.at, _ORDER[type(each)])
    )
    for event in events:
        if isinstance(event, Step):
            _step(found, event)
        elif isinstance(event, Proof):
            _proof(found, event, alone)
        else:
            _accusation(found, event)
    return found


_ORDER: dict[type, int] = {Step: 0, Proof: 1, Accusation: 2}


def _step(found: History, step: Step) -> None:
    if found.open:
        found.steps.append(step)
    if (step.done == "begun" and step.rung in RUNGS) or step.done == "taken back":
        for each in found.open.values():
            each.loads, each.with_others = set(), False


def _proof(found: History, proof: Proof, alone: bool) -> None:
    found.passed = proof
    for each in found.open.values():
        each.loads.add(proof.load)
        each.with_others |= proof.others > 0
    closed = [key for key, each in found.open.items() if each.closed(alone)]
    witnessed = [found.open.pop(key).with_others for key in closed]
    if closed and not found.open:
        found.cleared, found.witnessed, found.steps = proof, all(witnessed), []


def _accusation(found: History, accusation: Accusation) -> None:
    key = accusation.source, accusation.name
    first = found.open[key].first if key in found.open else accusation
    found.open[key] = Open(first, accusation)
    found.cleared, found.witnessed = None, False
