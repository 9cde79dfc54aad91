"""Whether the job was started, and ended by itself."""

from shakedown.gates.model import Outcome
from shakedown.gates.observed import JobEnd
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def ran_to_its_end(end: JobEnd) -> Outcome | None:
    """No job was stopped, or failed to start; skipped for a job that ended by itself."""
    if not end.stopped:
        return None
    return Outcome(
        verdict=Verdict.FAIL,
        wanted="the job ends by itself",
        actual="stopped" if end.started else "never started",
        evidence=end.stopped,
        remedy="see the first node and line; the node's whole log is in the run directory"
        if end.started
        else "repair what is named, and run again",
    )
