"""The search for a loss scale, with which every fp16 run begins, distinguished from iterations that really went wrong.

Dynamic loss scaling starts with a scale that is far too high (2^32 in Megatron-LM) and halves it at every overflow;
each such iteration is skipped, and Megatron leaves the loss out of its line. That is how it is meant to be, as long as
it happens at the start, in one stretch, and the scale falls by half at every skip. What is skipped later is a fault,
but where the scale had grown: after 1,000 good iterations the scaler doubles it, and takes that back at an overflow.

What the lines show (DynamicGradScaler of megatron/core/optimizer/grad_scaler.py, Megatron-Core 0.16; DeepSpeed's
DynamicLossScaler does the same): the scale that is printed is the one after the update; with the default hysteresis of
2 the very first overflow leaves it as it is; with a log interval above 1 a line tells of several skips. DeepSpeed's
lines count no skips: there the fall of the scale itself shows them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shakedown.common.text import decimal
from shakedown.logs.iterations import Iteration, has_preview

GREATEST = 2.0**32  # initial_loss_scale of Megatron-LM; a search that would have begun higher is none
_ROUNDING = 0.11  # the scale is printed with one decimal: what two roundings may add up to


@dataclass(frozen=True)
class LossScale:
    """What the iteration lines say of the loss scaler."""

    lines: int = 0  # at the start, that belong to the search
    skipped: int = 0  # iterations that the search cost
    barren: frozenset[int] = frozenset()  # of those lines, the ones in which every iteration was skipped: no loss
    ended: bool = True  # an iteration went well after it
    scale: float | None = None  # where it stood last
    later: tuple[int, ...] = ()  # lines that tell, or show, of a skip that belongs to no search
    taken_back: int = 0  # lines on which a scale that had grown overflowed

    def text(self) -> str:
        """Describe the search, for evidence; empty where there was none."""
        grown = f"{self.taken_back} skipped where the loss scale had grown" if self.taken_back else ""
        if not self.lines:
            return grown
        how = f"{self.skipped} skipped at the start while the loss scale fell to {decimal(self.scale)}"
        how = how if self.ended else f"{how}: the search for it did not end"
        return f"{how}; {grown}" if grown else how


def loss_scale(iterations: Sequence[Iteration]) -> LossScale:
    """Find the search at the start of these lines, if there is one, and the lines with skips that are not part of
    it."""
    if not has_preview(iterations):
        return _loss_scale(iterations)
    found, preview = _loss_scale(iterations[1:]), iterations[0]
    if not found.lines:
        return found
    also = {preview.iteration} if preview.skipped_iterations and preview.lm_loss is None else set()
    return replace(found, lines=found.lines + 1, barren=found.barren | also)


def _loss_scale(iterations: Sequence[Iteration]) -> LossScale:
    # As a line counts or, where it counts none, as the fall of the scale shows.
    skips = [line.skipped_iterations or _fell(iterations, index) for index, line in enumerate(iterations)]
    lines, barren, over = 0, set(), False
    for index, (line, skipped) in enumerate(zip(iterations, skips, strict=True)):
        before = iterations[index - 1] if index else None
        span = line.iteration - (before.iteration if before else 0)
        # DeepSpeed's first line counts no skip and has no line before it: what follows shows whether it is of a search.
        unseen = index == 0 and skipped == 0 and _fell(iterations, 1) > 0 and not iterations[1].skipped_iterations
        if over or not (skipped or unseen) or not _is_step(before, line, skipped, span):
            break
        lines, over = index + 1, skipped < span and not unseen
        if line.lm_loss is None and line.skipped_iterations and not over:
            barren.add(line.iteration)
    grown = _taken_back(iterations, skips, lines)
    barren |= {iterations[at].iteration for at in grown if iterations[at].lm_loss is None}
    return LossScale(
        lines=lines,
        skipped=sum(skips[:lines]) + sum(skips[at] for at in grown),
        taken_back=len(grown),
        barren=frozenset(barren),
        ended=over or lines == 0 or lines < len(iterations),
        scale=iterations[lines - 1].loss_scale if lines else None,
        later=tuple(iterations[at].iteration for at in range(lines, len(skips)) if skips[at] and at not in grown),
    )


def _taken_back(iterations: Sequence[Iteration], skips: Sequence[int], begin: int) -> list[int]:
    """Return the lines of single skips between lines that went well, at a scale that had grown and falls by half."""
    found: list[int] = []
    lowest = math.inf
    for at in range(max(begin, 1), len(iterations) - 1):
        before, line = iterations[at - 1], iterations[at]
        scale = before.loss_scale or 0.0
        lowest = min(lowest, scale)
        alone = skips[at] == 1 and not skips[at - 1] and not skips[at + 1] and not line.nan_iterations
        if alone and scale > lowest and _halvings(scale, line.loss_scale or 0.0) in (0, 1):
            found.append(at)
    return found


def _is_step(before: Iteration | None, line: Iteration, skipped: int, span: int) -> bool:
    """Whether a line goes on with the search: as many halvings as skips, and nothing wrong but an overflow."""
    scale = line.loss_scale
    if scale is None or not 1.0 <= scale <= GREATEST or line.nan_iterations or not 0 <= skipped <= span:
        return False
    if before is None:  # the scale that it began with is not printed, and the first skip may have left it alone
        return scale > 1.0 and scale * 2.0 ** (skipped - 1) <= GREATEST
    return _halvings(before.loss_scale or 0.0, scale) == skipped


def _fell(iterations: Sequence[Iteration], index: int) -> int:
    """Count the skips that the fall of the scale from the line before shows: at least one where it fell at all."""
    if not 0 < index < len(iterations):
        return 0
    before, after = iterations[index - 1].loss_scale, iterations[index].loss_scale
    if before is None or after is None or not math.isfinite(before) or not after < before:
        return 0
    return max(1, _halvings(before, after) or 0)


def _halvings(before: float, after: float) -> int | None:
    """How many times a scale was halved; None where it was not, or by anything else than halves."""
    if not 0.0 < after <= before <= GREATEST:
        return None
    count = round(math.log2(before) - math.log2(after))  # their quotient may be more than a float holds
    return count if abs(math.ldexp(before, -count) - after) <= _ROUNDING else None
