"""A diagnosis, and the signs that it rests on."""

from typing import Literal

from shakedown.catalogue import Role
from shakedown.common.frozen import Frozen
from shakedown.evidence.results import Moment

Confidence = Literal["certain", "likely", "undecided"]
SHOWN = 8  # signs that a diagnosis keeps as its evidence; the others are counted


class Sign(Frozen):
    """One thing that was seen of a failure: a line of a log, or what the controller saw itself.

    It happened between `since` and `at`, both on the controller's clock: a line's age comes with it from the node, so
    that the node's own clock has no part in it. None: nobody can say.
    """

    node: str | None  # None: of the job as a whole
    name: str  # a signature, or a kind of failure as `shakedown.evidence.results.Failure` has it
    role: Role
    text: str
    symptom: bool = False  # it says that something ended there, not why
    common: bool = False  # several nodes that say so say it each of itself
    since: Moment | None = None
    at: Moment | None = None
    file: str | None = None  # relative to the run directory
    line_number: int | None = None
    cause: str = ""
    remedy: str = ""
    blames: tuple[str, ...] = ()  # the nodes that the line speaks of

    @property
    def place(self) -> str:
        """file:line, or the node, for a person who looks it up."""
        if self.file:
            return f"{self.file}:{self.line_number}" if self.line_number else self.file
        return self.node or "the job"


class Diagnosis(Frozen):
    """What a job died of. `origin` holds the nodes where that began: one, or several that had the same fault each of
    themselves; empty where that is `undecided` or where it was no node's (an interrupt). `among` are then the nodes
    that come into question. `common` holds the nodes that share one fault, where most of the job's `nodes` do: then no
    node is named."""

    job: str = ""
    name: str  # of the sign that tells the cause
    cause: str
    remedy: str
    confidence: Confidence
    origin: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    nodes: int = 0  # of the job, where a fault is common
    why: str  # what decided, in a sentence
    evidence: tuple[Sign, ...] = ()  # the one that tells the cause first
    echoes: int = 0  # signs that only follow from it
    echoed_by: tuple[str, ...] = ()  # the nodes that gave them
