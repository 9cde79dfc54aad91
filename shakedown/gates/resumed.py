"""The gate on a checkpoint: the training goes on from it where it was."""

from shakedown.catalogue import advice
from shakedown.gates.iterations import is_loss
from shakedown.gates.model import Outcome
from shakedown.gates.observed import Training
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def checkpoint_resumed(training: Training) -> Outcome | None:
    """Compare the first loss after a checkpoint with the last before it: at most 1 + `resume_rtol` times as great.

    A checkpoint that was asked for has to be in the log, saved and read back. A job that did not reach the iteration
    after it is unknown. The gate is skipped where no checkpoint was asked for and the log has none.
    """
    shape, at = training.printed or training.shape, training.resume_at
    if at is None and shape.loaded == shape.saved:
        at = shape.loaded
    if at is None:
        return None
    losses = {line.iteration: line.lm_loss for line in training.iterations}
    before, after = losses.get(at), losses.get(at + 1)
    bound = None if before is None else before + training.resume_rtol * abs(before)
    seen = {"saved": shape.saved, "read back": shape.loaded}
    lacking = [
        f"no line says that the checkpoint of iteration {at} was {what}" for what, it in seen.items() if it != at
    ]
    if at not in losses or at + 1 not in losses:
        verdict, evidence = Verdict.UNKNOWN, f"the log has no line of iteration {at if at not in losses else at + 1}"
    elif lacking:
        verdict, evidence = Verdict.FAIL, "; ".join(lacking)
    elif not (is_loss(before) and is_loss(after)) or bound is None or after is None:
        verdict, evidence = Verdict.FAIL, f"no finite loss at iterations {at} and {at + 1}"
    else:
        verdict = Verdict.OK if after <= bound else Verdict.FAIL
        evidence = f"loss {before:g} at iteration {at}, {after:g} at {at + 1}, after the checkpoint was read back"
    return Outcome(
        verdict=verdict,
        wanted=bound,
        actual=after,
        evidence=evidence,
        remedy=advice("checkpoint"),
    )
