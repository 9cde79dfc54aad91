"""Whether anything of a job is still there when it is over."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shakedown.common.text import counted
from shakedown.gates.model import Outcome
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def nothing_left(left: Mapping[str, Collection[str]]) -> Outcome:
    """On no node anything of the job is left running, and that was seen: a container that nobody could remove, or of
    which the engine said nothing, may still hold GPUs and memory, and the job may not have been over when it was
    judged. `left` says per node what is left, or may be."""
    there = [f"{name}: {what}" for name, found in left.items() for what in found]
    return Outcome(
        verdict=Verdict.UNKNOWN if there else Verdict.OK,
        wanted=0,
        actual=len(there),
        evidence="; ".join(there)
        or f"all processes and containers of {counted(len(left), 'node')} were seen to be gone",
        remedy="look on the nodes named for processes and containers of the run, end them, and run again"
        if there
        else None,
    )
