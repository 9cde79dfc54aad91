"""Whether every rank, and a benchmark's container, ended with 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shakedown.catalogue import advice
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def exit_codes(
    codes: Mapping[str, int | None], participants: Collection[str] = (), stopped_nodes: Collection[str] = ()
) -> Outcome:
    """Every rank (or node) ended with 0. None: the code is not known; a participant without a code neither. The code of
    a node that the controller stopped with the job is the stop's, and no failure of the node."""
    stopped = [name for name in codes if name in set(stopped_nodes)]
    codes = {name: code for name, code in codes.items() if name not in set(stopped)}
    absent = {name for name in participants if name not in codes and name not in set(stopped)}
    unseen = sorted(absent | {n for n, c in codes.items() if c is None})
    failed = {name: code for name, code in codes.items() if code is not None and code != 0}
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if unseen or stopped or not codes else Verdict.OK
    said = [f"{name} ended with {code}{_signal(code)}" for name, code in failed.items()]
    if stopped:
        said.append(f"the controller stopped {some(stopped)}")
    if unseen:
        said.append(f"no exit code of {some(unseen)}")
    if not codes and not unseen and not stopped:
        said.append("no exit codes")
    return Outcome(
        verdict=verdict,
        wanted=0,
        actual={name: codes.get(name) for name in [*codes, *unseen]},
        evidence="; ".join(said) or f"all {len(codes)} ended with 0",
        remedy=None if verdict is Verdict.OK else advice("unfinished"),
    )


@gate
def exit_code(ended_with: Mapping[str, int | None]) -> Outcome:
    """A benchmark's container ended with 0."""
    (code,) = ended_with.values()
    verdict = Verdict.UNKNOWN if code is None else Verdict.OK if code == 0 else Verdict.FAIL
    return Outcome(verdict=verdict, wanted=0, actual=code, evidence="of the container")


def _signal(code: int) -> str:
    """Which signal it was: Python says -9 where a shell says 137."""
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
    name = names.get(-code) or names.get(code - 128)
    return f" ({name})" if name else ""
