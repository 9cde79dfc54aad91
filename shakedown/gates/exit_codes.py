"""Whether every rank ended with 0."""

from collections.abc import Collection

from shakedown.catalogue import advice
from shakedown.gates.model import Gate, Outcome, some
from shakedown.gates.observed import JobEnd
from shakedown.gates.registry import gate
from shakedown.hosts import few
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
    texts = [_ended(name, code) for name, code in failed.items()]
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
        remedy=advice("unfinished"),
    )


def after_origin(gate: Gate, origin: Collection[str]) -> Gate:
    """Return the gate `exit_codes` of a job whose failure began on the nodes of `origin`. Other nodes that ended with
    an error lost these: they are reported together, behind the origin."""
    codes = gate.actual if isinstance(gate.actual, dict) else {}
    after = {name: code for name, code in codes.items() if code and name not in origin}
    began = f"after the failure began on {few(origin)}"
    gone = {_ended(name, code) for name, code in after.items()}
    kept = [text for text in gate.evidence.split("; ") if text not in gone and not text.endswith(began)]
    alike: dict[int, list[str]] = {}
    for name, code in after.items():
        alike.setdefault(code, []).append(name)
    own = [text for text in kept if " ended with " in text]
    others = [f"{few(names)} ended with {code}{_signal(code)} {began}" for code, names in alike.items()]
    return gate.model_copy(update={"evidence": "; ".join([*own, *others, *(text for text in kept if text not in own)])})


def _ended(name: str, code: int) -> str:
    return f"{name} ended with {code}{_signal(code)}"


def _signal(code: int) -> str:
    """Name the signal: Python says -9 where a shell says 137."""
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
    name = names.get(-code) or names.get(code - 128)
    return f" ({name})" if name else ""
