"""What is known of a node's service: what speaks against it, what it has passed, and what was done with it.

All of it is kept in the ledger. What speaks against a node and what it has passed follow from the runs' records; steps
are written as they are taken.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from shakedown.common.one_line import line
from shakedown.common.one_line import name as kept_name

Source = Literal["finding", "unread", "gate", "trial", "diagnosis", "isolation"]
"""`unread`: a reading could not be taken. `gate`: of a job that the node had for itself."""
Rung = Literal["mend", "reload driver", "reboot", "power cycle"]
RUNGS: tuple[Rung, ...] = ("mend", "reload driver", "reboot", "power cycle")  # from the least intrusive on
LOAD: Literal["load"] = "load"  # the proof that follows each rung
Done = Literal["begun", "ended", "drained", "resumed", "handed over", "taken back"]
Outcome = Literal["", "done", "failed", "interrupted"]
Standing = Literal["in service", "suspect", "being mended", "out", "unknown"]
"""`unknown`: nothing stands against it, and its scheduler could not tell whether it is drained."""

_Line = Annotated[str, AfterValidator(line)]
_Name = Annotated[str, AfterValidator(kept_name)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Accusation(_Part):
    """Something that a run says against one node. `at`: when the run began, seconds since 1970 UTC."""

    node: _Name
    source: Source
    name: _Name  # the finding, the trial, what the diagnosis names; "search" of a search for bad nodes
    what: _Line  # for a person; may hold words of the node
    drift: bool = False  # an operation would mend it
    drains: bool = False  # whether it is reason enough to take the node out of service
    run_id: _Name = ""
    at: int = 0

    def __str__(self) -> str:
        return f"{self.source} {self.name}: {self.what}"


class Proof(_Part):
    """Something that a node has passed under load, in a run that had nothing against it. `others`: nodes that worked
    with it and passed too, without which the job could not have; 0: there is only the node's own word for it."""

    node: _Name
    load: _Name  # "smoke", or a trial's name
    others: int = 0
    run_id: _Name = ""
    at: int = 0


class Step(_Part):
    """Something that was done with a node, or with its state in the scheduler. `at` is later than all that was known
    of the node before it: seconds since 1970 UTC."""

    node: _Name
    at: int
    done: Done
    rung: _Name = ""  # a rung, or "load"
    name: _Name = ""  # what it was for: the accusation's name
    outcome: Outcome = ""
    why: _Line = ""
    run_id: _Name = ""
    who: _Name = ""  # user@host:pid of the controller's side


class Known(_Part):
    """All that the ledger has of one node, each in the order of time."""

    accusations: tuple[Accusation, ...] = ()
    proofs: tuple[Proof, ...] = ()
    steps: tuple[Step, ...] = ()


class NodeService(_Part):
    """One node, as `shakedown service` shows it. `since`: seconds since 1970 UTC of what its standing rests on."""

    node: str
    standing: Standing
    why: str = ""
    evidence: tuple[str, ...] = ()  # runs
    rung: str = ""
    since: int | None = None
    open: tuple[Accusation, ...] = ()
    scheduler: str = ""  # its state there
    passed: Proof | None = None  # the last thing that it has passed under load
    steps: tuple[Step, ...] = ()
    parts: tuple[str, ...] = ()  # history of its parts
    next: str = ""  # what would be done, or why nothing is
