"""Whether the norm of the gradient stays a number, and of a size that can be learned from."""

import math
import statistics
from collections.abc import Sequence

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal
from shakedown.gates.model import Outcome, ranges
from shakedown.gates.observed import Training
from shakedown.gates.registry import gate
from shakedown.gates.thresholds import threshold
from shakedown.logs.loss_scale import loss_scale
from shakedown.state.findings import Verdict

_FEW = 4  # norms, below which only their being numbers is judged
Norm = tuple[int, float]  # iteration, value


@gate(stands=True)
def gradient_norm(training: Training) -> Outcome | None:
    """Where lines have the norm of the gradient, it is finite on each and does not explode. Statistic: the median of
    the last eighth (3 at least) against the lowest median of as many in a row.

    The iterations that the search for a loss scale skipped do not count; a norm of 0 on every line, or to the end, is
    no gradient; a last norm far above those before is unknown.
    """
    lines = training.iterations
    if all(line.grad_norm is None for line in lines):
        return None
    scale = loss_scale(lines)
    norms = [(line.iteration, line.grad_norm) for line in lines[scale.lines :] if line.grad_norm is not None]
    bad = [at for at, norm in norms if not (math.isfinite(norm) and norm >= 0)]
    verdict, actual, text = Verdict.OK, "", ""
    if bad:
        verdict, actual = Verdict.FAIL, "not finite"
        text = f"the norm of iteration {ranges(bad)} is no finite number above 0: {_at(_first(norms, bad[0]))}"
    elif len(norms) >= _FEW:
        verdict, actual, text = _judge(norms)
    if not text:
        last = f", the last is {_at(norms[-1])}" if norms else ": the search for a loss scale did not end"
        text = f"{counted(len(norms), 'finite norm')}{last}"
    return Outcome(
        verdict=verdict if norms else Verdict.UNKNOWN,
        wanted="finite, and not exploding",
        actual=actual or "finite",
        evidence=text,
        remedy=None if norms and verdict is Verdict.OK else advice("loss" if norms else "loss_scale"),
    )


def _judge(norms: Sequence[Norm]) -> tuple[Verdict, str, str]:
    """Return the verdict over finite norms, in a word, and the figures that show it."""
    values = [norm for _, norm in norms]
    width = min(max(3, len(values) // 8), len(values)) | 1  # odd: each level is a norm of the log
    levels = [statistics.median_low(values[at : at + width]) for at in range(max(1, len(values) - width + 1))]
    best, end = min(levels), levels[-1]
    if not any(values[-width:]):
        since = next((at for at in range(len(values), 0, -1) if values[at - 1]), 0)
        return Verdict.FAIL, "zero", f"the norm is exactly 0 from iteration {norms[since][0]} to the end"
    if end >= threshold("gradient.largest"):
        return Verdict.FAIL, "exploded", f"the norm is around {decimal(end, 4)} at the end"
    lowest = max(best, threshold("gradient.clipped") / threshold("gradient.rise"))
    if end >= threshold("gradient.rise") * lowest:
        first = next(at for at, norm in reversed(norms) if norm <= best)
        at_end = f"around {decimal(end, 4)} at the end"
        before = (
            f"{decimal(end / best, 3)} times the level of {decimal(best, 4)} around iteration"
            if best
            else "and 0 around"
        )
        return Verdict.FAIL, "exploded", f"{at_end}, {before} {first}"
    if values[-1] >= threshold("gradient.rise") * max(lowest, statistics.median_low(values[-width - 1 : -1])):
        level = f"the level before {decimal(end, 4)}"
        text = f"the last norm is {_at(norms[-1])}, {level}; whether it comes back is not in the log"
        return Verdict.UNKNOWN, "spike at its end", text
    return Verdict.OK, "", ""


def _first(norms: Sequence[Norm], iteration: int) -> Norm:
    return next(norm for norm in norms if norm[0] == iteration)


def _at(norm: Norm) -> str:
    return f"{decimal(norm[1], 4)} at {norm[0]}"
