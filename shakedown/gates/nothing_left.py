"""Whether anything of a job is still there when it is over."""

from shakedown.common.text import counted
from shakedown.gates.model import Outcome
from shakedown.gates.observed import JobEnd
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def nothing_left(end: JobEnd) -> Outcome | None:
    """On no node anything of the job is left running, and that was seen. A container that could not be removed, or of
    which the engine said nothing, may still hold GPUs and memory; the job may have been running when it was judged."""
    if end.left is None:
        return None
    there = [f"{node}: {process}" for node, processes in end.left.items() for process in processes]
    return Outcome(
        verdict=Verdict.UNKNOWN if there else Verdict.OK,
        wanted=0,
        actual=len(there),
        evidence="; ".join(there)
        or f"all processes and containers of {counted(len(end.left), 'node')} were seen to be gone",
        remedy="look on the nodes named for processes and containers of the run, end them, and run again"
        if there
        else None,
    )
