"""Whether the job was begun, and ended by itself."""

from __future__ import annotations

from shakedown.gates.model import Outcome
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def ran_to_its_end(stopped: str, never_started: bool = False) -> Outcome:
    """The job was planned, started, and not stopped; asked only of one that was, or never began."""
    return Outcome(
        verdict=Verdict.FAIL,
        wanted="the job ends by itself",
        actual="never started" if never_started else "stopped",
        evidence=stopped,
        remedy="mend what is named, and run again"
        if never_started
        else "see the node and the line that were first; its whole log is in the run directory",
    )


@gate
def ran(not_ended: str) -> Outcome:
    """A benchmark ran to its end; asked only of one that did not."""
    return Outcome(verdict=Verdict.FAIL, wanted="ran to its end", evidence=not_ended)
