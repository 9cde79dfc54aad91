"""The open incidents of a node, from its history of events. Pure.

An incident stays open until the node has passed every load that would show it, in later runs without an incident, and
one of the loads together with other nodes. A repair resets that: loads before the repair show nothing about the node
after it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shakedown.service.escalation import escalation
from shakedown.service.model import REPAIRS, Incident, Known, PassedLoad, Step

# The gravest first: of several incidents the first decides which repairs are tried.
_GRAVE = ("isolation", "diagnosis", "trial", "finding", "gate", "unread")


@dataclass
class Open:
    """An open incident: its first and last occurrence, and the loads that the node has passed since."""

    first: Incident
    last: Incident
    loads: set[str] = field(default_factory=set)
    with_others: bool = False

    def closed(self, alone: bool) -> bool:
        """Return whether the node has passed all loads. `alone`: the inventory has no partner nodes."""
        wanted = escalation().shown_by(self.last)
        shown = set(wanted) <= self.loads if wanted else bool(self.loads)
        return shown and (self.with_others or alone)

    def lacking(self) -> list[str]:
        """List the loads that the node has still to pass; empty: any load with other nodes."""
        return [load for load in escalation().shown_by(self.last) if load not in self.loads]


@dataclass
class History:
    """The state of a node after its events. `steps`: those since the first open incident."""

    open: dict[tuple[str, str], Open] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    passed: PassedLoad | None = None  # the last load
    cleared: PassedLoad | None = None  # the load that closed the last incident; None: none, or an incident is open
    with_partners: bool = False  # partner nodes took part in the loads that closed it

    @property
    def incidents(self) -> list[Incident]:
        """List the open incidents, the gravest first."""
        found = [entry.last for entry in self.open.values()]
        return sorted(found, key=lambda incident: (_GRAVE.index(incident.source), incident.drift, incident.at))

    @property
    def since(self) -> int | None:
        """Return the time of the first open incident."""
        return min((entry.first.at for entry in self.open.values()), default=None)

    def taken(self, *done: str) -> Step | None:
        """Find the last step of these kinds since the node became suspect."""
        return next((step for step in reversed(self.steps) if step.done in done), None)


def history(known: Known, alone: bool = False) -> History:
    """Replay a node's events.

    Within one second a step counts as earlier than a run, and a passed load as earlier than an incident: an unknown
    order clears no node.
    """
    found = History()
    events: Iterable[Step | PassedLoad | Incident] = sorted(
        (*known.steps, *known.passed_loads, *known.incidents), key=lambda event: (event.at, _ORDER[type(event)])
    )
    for event in events:
        if isinstance(event, Step):
            _step(found, event)
        elif isinstance(event, PassedLoad):
            _pass(found, event, alone)
        else:
            _open(found, event)
    return found


_ORDER: dict[type, int] = {Step: 0, PassedLoad: 1, Incident: 2}


def _step(found: History, step: Step) -> None:
    if found.open:
        found.steps.append(step)
    if (step.done == "begun" and step.rung in REPAIRS) or step.done == "taken back":
        for entry in found.open.values():
            entry.loads, entry.with_others = set(), False


def _pass(found: History, passed_load: PassedLoad, alone: bool) -> None:
    found.passed = passed_load
    for entry in found.open.values():
        entry.loads.add(passed_load.load)
        entry.with_others |= passed_load.others > 0
    closed = [key for key, entry in found.open.items() if entry.closed(alone)]
    with_partners = [found.open.pop(key).with_others for key in closed]
    if closed and not found.open:
        found.cleared, found.with_partners, found.steps = passed_load, all(with_partners), []


def _open(found: History, incident: Incident) -> None:
    key = incident.source, incident.name
    first = found.open[key].first if key in found.open else incident
    found.open[key] = Open(first, incident)
    found.cleared, found.with_partners = None, False
