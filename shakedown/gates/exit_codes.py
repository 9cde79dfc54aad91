"""Whether every rank, and a benchmark's container, ended with 0."""

from shakedown.catalogue import advice
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import ContainerEnd, JobEnd
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def exit_codes(end: JobEnd) -> Outcome | None:
    """Every rank (or node) ended with 0. Without its code a participant is unknown. The code of a node that the
    controller stopped with the job comes from the stop, and is no failure of the node."""
    if end.exit_codes is None:
        return None
    stopped = [name for name in end.exit_codes if name in set(end.stopped_nodes)]
    codes = {name: code for name, code in end.exit_codes.items() if name not in set(stopped)}
    absent = {name for name in end.participants if name not in codes and name not in set(stopped)}
    unseen = sorted(absent | {name for name, code in codes.items() if code is None})
    failed = {name: code for name, code in codes.items() if code is not None and code != 0}
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if unseen or stopped or not codes else Verdict.OK
    texts = [f"{name} ended with {code}{_signal(code)}" for name, code in failed.items()]
    if stopped:
        texts.append(f"the controller stopped {some(stopped)}")
    if unseen:
        texts.append(f"no exit code of {some(unseen)}")
    if not codes and not unseen and not stopped:
        texts.append("no exit codes")
    return Outcome(
        verdict=verdict,
        wanted=0,
        actual={name: codes.get(name) for name in [*codes, *unseen]},
        evidence="; ".join(texts) or f"all {len(codes)} ended with 0",
        remedy=None if verdict is Verdict.OK else advice("unfinished"),
    )


@gate
def exit_code(container: ContainerEnd) -> Outcome | None:
    """Of a benchmark the container ended with 0."""
    if container.stopped:
        return None
    code = container.exit_code
    verdict = Verdict.UNKNOWN if code is None else Verdict.OK if code == 0 else Verdict.FAIL
    return Outcome(verdict=verdict, wanted=0, actual=code, evidence="of the container")


def _signal(code: int) -> str:
    """Name the signal: Python says -9 where a shell says 137."""
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
    name = names.get(-code) or names.get(code - 128)
    return f" ({name})" if name else ""
