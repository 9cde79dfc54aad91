"""The service of a node, kept in the ledger: incidents and passed loads from runs' records, and steps as they are
taken. An incident is open until the node passes every load that would show it, later and one of them with other nodes.
A repair resets that. The repairs are data: escalation.toml."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import line
from shakedown.common.text import name as kept_name

Source = Literal["finding", "unread", "gate", "trial", "diagnosis", "isolation"]
"""`unread`: a reading could not be taken. `gate`: of a single-node job."""
Repair = Literal["mend", "reload driver", "reboot", "power cycle"]
REPAIRS: tuple[Repair, ...] = ("mend", "reload driver", "reboot", "power cycle")  # from the least intrusive on
LOAD: Literal["load"] = "load"  # it follows every repair
Done = Literal["begun", "ended", "drained", "resumed", "handed over", "taken back"]
Outcome = Literal["", "done", "failed", "interrupted"]
Status = Literal["in service", "suspect", "being mended", "out", "unknown"]
"""`unknown`: no incident is open, and the scheduler's state could not be read."""

_Line = Annotated[str, AfterValidator(line)]
_Name = Annotated[str, AfterValidator(kept_name)]


class Incident(Frozen):
    """A fault that a run reports of one node. `at`: the start of the run, seconds since 1970 UTC."""

    node: _Name
    source: Source
    name: _Name  # of the finding, the trial, the diagnosis' cause; "search" for a search for bad nodes
    what: _Line  # for a person; may hold text from the node
    drift: bool = False  # an operation repairs it
    drains: bool = False  # grave enough to take the node out of service
    run_id: _Name = ""
    at: int = 0

    def __str__(self) -> str:
        return f"{self.source} {self.name}: {self.what}"


class PassedLoad(Frozen):
    """A load passed in a run without an incident of the node. `others`: partners that passed in the job; 0: none."""

    node: _Name
    load: _Name  # "smoke", or a trial's name
    others: int = 0
    run_id: _Name = ""
    at: int = 0


class Step(Frozen):
    """An action on a node, or its scheduler state. `at`: seconds since 1970 UTC, later than its earlier events."""

    node: _Name
    at: int
    done: Done
    rung: _Name = ""  # a repair, or "load"
    name: _Name = ""  # of the incident
    outcome: Outcome = ""
    why: _Line = ""
    run_id: _Name = ""
    who: _Name = ""  # user@host:pid of the controller's side


class Known(Frozen):
    """All events of one node in the ledger, in the order of time."""

    incidents: tuple[Incident, ...] = ()
    passed_loads: tuple[PassedLoad, ...] = ()
    steps: tuple[Step, ...] = ()


class NodeService(Frozen):
    """One node, as `shakedown service` shows it. `since`: the start of its status, seconds since 1970 UTC."""

    node: str
    standing: Status
    why: str = ""
    evidence: tuple[str, ...] = ()  # runs
    rung: str = ""
    since: int | None = None
    open: tuple[Incident, ...] = ()
    scheduler: str = ""  # its state there
    passed: PassedLoad | None = None  # the last one
    steps: tuple[Step, ...] = ()
    parts: tuple[str, ...] = ()  # history of its parts
    next: str = ""  # the next action, or why there is none


class _Named(Frozen):
    names: list[str]
    reason: str


class Budget(Frozen):
    """A repair with its budget: `attempts` within `within_h` hours, and `wait_s` seconds after the last repair."""

    repair: Repair
    attempts: Annotated[int, Field(ge=1)]
    within_h: Annotated[float, Field(gt=0)]
    wait_s: Annotated[float, Field(ge=0)]


class Entry(Frozen):
    """The repairs for some incidents, in this order, and the loads that show a success."""

    names: list[str]
    steps: Annotated[list[Budget], Field(min_length=1)]
    shown_by: list[str] = []
    reason: str


class Escalation(Frozen):
    """escalation.toml, with the defaults filled in."""

    ignored: _Named
    compared: _Named
    entry: list[Entry]

    def counts(self, incident: Incident) -> bool:
        """Return whether an incident makes the node suspect."""
        return not _matches(self.ignored.names, incident)

    def is_compared(self, incident: Incident) -> bool:
        """Return whether an incident rests on other nodes' reports."""
        return _matches(self.compared.names, incident)

    def entry_for(self, incident: Incident) -> Entry:
        """Find the entry of an incident; the last entry matches every incident."""
        return next(entry for entry in self.entry if _matches(entry.names, incident))

    def shown_by(self, incident: Incident) -> list[str]:
        """List the loads that the node has to pass; empty: any load."""
        return [load.format(name=incident.name) for load in self.entry_for(incident).shown_by]


def _matches(patterns: list[str], incident: Incident) -> bool:
    return any(fnmatchcase(f"{incident.source} {incident.name}", pattern) for pattern in patterns)


@cache
def escalation() -> Escalation:
    """Load the shipped escalation."""
    document = read_toml("shakedown.service", "escalation.toml")
    defaults = document.pop("defaults")
    for entry in document["entry"]:
        entry["steps"] = [{**defaults, **step} for step in entry["steps"]]
    return Escalation.model_validate(document)


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
    """Replay a node's events. In one second steps come before runs, loads before incidents: doubt clears no node."""
    found = History()
    events: list[Step | PassedLoad | Incident] = [*known.steps, *known.passed_loads, *known.incidents]
    for event in sorted(events, key=lambda event: (event.at, _ORDER[type(event)])):
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
