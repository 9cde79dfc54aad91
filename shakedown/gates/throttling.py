"""Whether a GPU was throttled in the steady iterations."""

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal
from shakedown.evidence.telemetry.summary import STEADY
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import NodeWatch
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def no_throttling(watch: NodeWatch) -> Outcome | None:
    """No GPU was throttled in the steady iterations for a reason of `gpu.no_throttling`. A GPU that does not report
    the reason, and a node without samples of GPUs, is unknown."""
    if not watch.not_throttled:
        return None
    seen, unseen, gpus = [], [], 0
    for node, samples in watch.telemetry.items():
        if samples is None or not samples.samples or not samples.gpus:
            unseen.append(f"{node}: {'no GPU was sampled' if samples and samples.samples else 'no sample'}")
            continue
        gpus += samples.gpus
        for reason in watch.not_throttled:
            if silent := samples.throttle_unread.get(reason):
                unseen.append(f"{node}: {reason} of {len(silent)} of {samples.gpus} GPUs")
        for gpu, seconds in samples.throttled.items():
            names = [name for name in watch.not_throttled if name in seconds]
            seen += [f"{node} {gpu}: {decimal(seconds[name], 3)} s {name}" for name in names]
        if samples.window != STEADY:
            unseen.append(f"{node}: which samples are of steady iterations")
    texts = [f"throttled: {some(seen)}"] if seen else []
    texts += [f"not known: {some(unseen)}"] if unseen else []
    verdict = Verdict.FAIL if seen else Verdict.UNKNOWN if unseen or not watch.telemetry else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted=f"none by {', '.join(watch.not_throttled)}",
        actual=len(seen),
        evidence="; ".join(texts) or f"{counted(gpus, 'GPU')}, none throttled",
        remedy=advice("throttled"),
    )
