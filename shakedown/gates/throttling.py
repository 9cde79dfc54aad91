"""Whether a GPU was throttled in the steady iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.evidence.telemetry.summary import STEADY, NodeTelemetry
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def no_throttling(telemetry: Mapping[str, NodeTelemetry | None], not_throttled: Sequence[str]) -> Outcome:
    """No GPU was throttled in the steady iterations for a reason of `gpu.no_throttling`. A GPU that does not tell, and
    a node without samples of them, is unknown."""
    seen, unseen = [], []
    for node, found in telemetry.items():
        if found is None or not found.samples or not found.gpus:
            unseen.append(f"{node}: {'no sample' if found is None or not found.samples else 'no GPU was sampled'}")
            continue
        for gpu, reasons in found.throttled.items():
            seen += [f"{node} {gpu}: {reasons[each]:.3g} s {each}" for each in not_throttled if each in reasons]
        for reason in not_throttled:
            if silent := found.throttle_unread.get(reason):
                unseen.append(f"{node}: {reason} of {len(silent)} of {found.gpus} GPUs")
        if found.window != STEADY:
            unseen.append(f"{node}: which samples are of steady iterations")
    said = [f"throttled: {some(seen)}"] if seen else []
    said += [f"not known: {some(unseen)}"] if unseen else []
    verdict = Verdict.FAIL if seen else Verdict.UNKNOWN if unseen or not telemetry else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted=f"none by {', '.join(not_throttled)}",
        actual=len(seen),
        evidence="; ".join(said)
        or f"{counted(sum(each.gpus for each in telemetry.values() if each), 'GPU')}, none throttled",
        remedy=None if verdict is Verdict.OK else advice("throttled"),
    )
