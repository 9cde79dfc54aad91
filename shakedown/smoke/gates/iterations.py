"""Gates on the iteration lines: all there, each with a finite loss, none skipped, and the loss falling."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from shakedown.findings import Verdict
from shakedown.smoke.gates.model import Gate, ranges, some
from shakedown.smoke.log import Iteration
from shakedown.smoke.signatures import advice

MIN_LOSSES = 4  # fewer points carry no slope worth judging
MAX_POINTS = 400  # Theil-Sen compares every pair: longer curves are reduced to medians of blocks
MIN_FALL = 0.01  # of the loss at the start, over the whole run
CONFIDENCE = 0.95


def iterations_complete(
    iterations: Sequence[Iteration], wanted: int | None = None, damaged: Collection[int] = ()
) -> Gate:
    """The last iteration N/N was seen, and N lines, distinct and in order. N is `wanted`, or what the lines say."""
    numbers = [iteration.iteration for iteration in iterations]
    total = wanted if wanted is not None else max((it.total_iterations for it in iterations), default=None)
    faults = ["no iteration line"] if not numbers else _faults(iterations, total or 0)
    verdict = Verdict.FAIL if faults else Verdict.UNKNOWN if damaged else Verdict.OK
    if damaged:
        faults.append(f"the line of iteration {ranges(damaged)} was cut or mixed with other output")
    return Gate(
        name="iterations_complete",
        verdict=verdict,
        wanted=total,
        actual=len(set(numbers)),
        unit="iterations",
        evidence="; ".join(faults) or f"{len(numbers)} lines, 1 to {numbers[-1]} of {total}",
        remedy=None if verdict is Verdict.OK else advice("unfinished"),
    )


def _faults(iterations: Sequence[Iteration], total: int) -> list[str]:
    numbers = [iteration.iteration for iteration in iterations]
    totals = sorted({iteration.total_iterations for iteration in iterations})
    faults = []
    if totals != [total]:
        faults.append(f"the lines count to {some(totals)}, not to {total}")
    if total not in numbers:
        faults.append(f"the last iteration seen is {max(numbers)} of {total}")
    missing = total - len(set(numbers) & set(range(1, total + 1)))
    if missing > 0:
        first = next(number for number in range(1, total + 1) if number not in set(numbers))
        faults.append(f"{missing} of {total} lines are missing, the first is {first}")
    repeated = sorted(number for number, count in Counter(numbers).items() if count > 1)
    if repeated:
        faults.append(f"iteration {ranges(repeated)} stands there more than once")
    if not repeated and any(later < earlier for earlier, later in pairwise(numbers)):
        faults.append("the lines are out of order")
    if any(number > total or number < 1 for number in numbers):
        faults.append(f"there are iterations outside 1 to {total}")
    return faults


def loss_finite(iterations: Sequence[Iteration], damaged: Collection[int] = ()) -> Gate:
    """Every line has a finite loss. Megatron leaves a NaN loss out of its line, so a missing one fails."""
    cut = [it.iteration for it in iterations if it.lm_loss is None and it.iteration in damaged]
    omitted = [it.iteration for it in iterations if it.lm_loss is None and it.iteration not in damaged]
    infinite = [it.iteration for it in iterations if it.lm_loss is not None and not math.isfinite(it.lm_loss)]
    said = []
    if not iterations:
        said.append("no iteration line")
    if omitted:
        said.append(
            f"no loss on the line of iteration {ranges(omitted)} (NaN is left out, as is a skipped iteration's)"
        )
    if infinite:
        said.append(f"the loss of iteration {ranges(infinite)} is not finite")
    if cut:
        said.append(f"the line of iteration {ranges(cut)} was cut or mixed before its loss")
    failed = not iterations or omitted or infinite
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if cut else Verdict.OK
    return Gate(
        name="loss_finite",
        verdict=verdict,
        wanted=len(iterations),
        actual=len(iterations) - len(omitted) - len(infinite) - len(cut),
        unit="iterations",
        evidence="; ".join(said) or f"a finite loss on each of {len(iterations)} lines",
        remedy=None if verdict is Verdict.OK else advice("loss"),
    )


def no_skipped_or_nan(iterations: Sequence[Iteration]) -> Gate:
    """No iteration was skipped by the loss scaler or counted as NaN; unknown where lines do not say."""
    skipped = sum(it.skipped_iterations or 0 for it in iterations)
    nan = sum(it.nan_iterations or 0 for it in iterations)
    silent = [it.iteration for it in iterations if it.skipped_iterations is None or it.nan_iterations is None]
    said = [f"{skipped} skipped and {nan} NaN on {len(iterations)} lines"]
    if not iterations:
        said = ["no iteration line"]
    elif skipped or nan:
        bad = [it.iteration for it in iterations if it.skipped_iterations or it.nan_iterations]
        said.append(f"at iteration {ranges(bad)}")
    if silent:
        said.append(f"the line of iteration {ranges(silent)} does not say")
    unseen = silent or not iterations
    verdict = Verdict.FAIL if skipped or nan else Verdict.UNKNOWN if unseen else Verdict.OK
    return Gate(
        name="no_skipped_or_nan",
        verdict=verdict,
        wanted=0,
        actual=skipped + nan if iterations else None,
        unit="iterations",
        evidence="; ".join(said),
        remedy=None if verdict is Verdict.OK else advice("loss"),
    )


def loss_falling(iterations: Sequence[Iteration], min_fall: float = MIN_FALL) -> Gate:
    """The loss falls: Theil-Sen's slope is below zero with 95 % confidence, and so far that the run takes at least
    `min_fall` of the loss away. A curve with a loss that is missing or not finite does not pass."""
    points = [(it.iteration, it.lm_loss) for it in iterations if it.lm_loss is not None and math.isfinite(it.lm_loss)]
    holes = len(iterations) - len(points)
    wanted = f"a fall of at least {min_fall:.1%}"
    if len(points) < MIN_LOSSES or len({number for number, _ in points}) < len(points):
        said = f"only {len(points)} finite losses" if len(points) < MIN_LOSSES else "iterations stand there twice"
        return Gate(
            name="loss_falling", verdict=Verdict.UNKNOWN, wanted=wanted, evidence=said, remedy=advice("unfinished")
        )
    x, y = _reduce(points)
    from scipy.stats import theilslopes  # here only: it takes longer to load than a drift check of ten nodes

    slope, intercept, low, high = (float(value) for value in theilslopes(y, x, alpha=CONFIDENCE))
    start = intercept + slope * x[0]
    fall = -slope * (x[-1] - x[0]) / abs(start) if start else 0.0
    falling = high < 0 and fall >= min_fall
    said = f"{start:.4g} to {intercept + slope * x[-1]:.4g} over {len(points)} iterations, a fall of {fall:.1%}; "
    said += f"slope {slope:.3g} per iteration, between {low:.3g} and {high:.3g} with {CONFIDENCE:.0%} confidence"
    if holes:
        said += f"; {holes} iterations have no finite loss, so the curve proves nothing"
    verdict = Verdict.OK if falling and not holes else Verdict.UNKNOWN if falling else Verdict.FAIL
    return Gate(
        name="loss_falling",
        verdict=verdict,
        wanted=wanted,
        actual=f"a fall of {fall:.1%}",
        evidence=said,
        remedy=None if verdict is Verdict.OK else advice("loss"),
    )


def _reduce(points: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """At most `MAX_POINTS` points: medians of equal blocks where there are more."""
    size = math.ceil(len(points) / MAX_POINTS)
    blocks = [points[start : start + size] for start in range(0, len(points), size)]
    x = [statistics.median(number for number, _ in block) for block in blocks]
    return x, [statistics.median(loss for _, loss in block) for block in blocks]
