"""The service of a node: its incidents, the loads that it has passed, and the steps taken with it.

The ledger keeps all of it. Incidents and passed loads come from the runs' records; steps are written as they are taken.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator

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
    """A load that a node has passed, in a run without an incident of the node. `others`: partner nodes that passed in
    the same job; 0: only the node itself reports the pass."""

    node: _Name
    load: _Name  # "smoke", or a trial's name
    others: int = 0
    run_id: _Name = ""
    at: int = 0


class Step(Frozen):
    """An action on a node, or on its state in the scheduler. `at`: seconds since 1970 UTC, later than all earlier
    events of the node."""

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
