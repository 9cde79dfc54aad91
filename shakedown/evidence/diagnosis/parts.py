"""How each node's part in a job ended, once the diagnosis says where the failure began: for every view of a run."""

from collections.abc import Iterable

from shakedown.common.text import printable
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.results import JobResult, NodeResult
from shakedown.hosts import few
from shakedown.state.findings import Verdict

STOPPED = "stopped by the controller"
_LENGTH = 200  # characters of a cause


def parts_of(results: Iterable[tuple[str, JobResult]], diagnosis: Diagnosis | None) -> dict[str, tuple[Verdict, str]]:
    """Return the verdict on each node's part in the jobs (by their names) that did not complete, and how the part
    ended. A part is ok where the controller stopped it, or where its end follows from another node's; while the
    diagnosis is undecided, it is unknown."""
    parts: dict[str, tuple[Verdict, str]] = {}
    for name, result in results:
        found = diagnosis if diagnosis is not None and diagnosis.job in ("", name) else None
        for node in result.nodes if not result.completed else ():
            verdict, text = _part(node, found)
            if node.name not in parts or verdict.severity > parts[node.name][0].severity:
                parts[node.name] = verdict, text
    return parts


def _part(node: NodeResult, diagnosis: Diagnosis | None) -> tuple[Verdict, str]:
    if diagnosis is not None and node.name in (*diagnosis.origin, *diagnosis.common):
        verdict = Verdict.FAIL if diagnosis.confidence == "certain" else Verdict.UNKNOWN
        return verdict, f"failed: {printable(diagnosis.cause, _LENGTH)}"
    if node.exit_code and not node.stopped:
        began = (*diagnosis.origin, *diagnosis.common) if diagnosis is not None else ()
        if began:
            return Verdict.OK, f"ended with {node.exit_code} after the failure began on {few(began)}"
        return Verdict.UNKNOWN, f"ended with {node.exit_code}"
    started = node.started_at is not None
    if started and not node.stopped:
        return (Verdict.UNKNOWN, "its end is not known") if node.exit_code is None else (Verdict.OK, "ended with 0")
    is_open = diagnosis.confidence == "undecided" if diagnosis is not None else started
    return Verdict.UNKNOWN if is_open else Verdict.OK, STOPPED if started else "not started"
