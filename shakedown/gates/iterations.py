"""Gates on the iteration lines: all there, none skipped, a loss that falls, a checkpoint, sane gradients."""

import math
import statistics
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal, ranges, some
from shakedown.gates.loss_curve import BAD, Point, curve
from shakedown.gates.model import Outcome, threshold
from shakedown.gates.observed import Training
from shakedown.gates.registry import gate
from shakedown.logs.figures import loss_scale
from shakedown.logs.iterations import Iteration, has_preview
from shakedown.state.findings import Verdict

GREATEST_LOSS = 3.4028235e38  # the largest float32: Megatron computes and averages losses in it


@gate(contradicted=Verdict.FAIL)
def iterations_complete(training: Training) -> Outcome:
    """All lines up to iteration N/N were seen, distinct and in order. N is the wanted number, or what the lines
    say. A run that goes on from a checkpoint has as many fewer, where the log says so; an unexplained beginning is
    unknown. N ends earlier where the program says that it was told to exit.

    With a log interval of k, which the lines show, there are N/k lines, and perhaps one for the first iteration. Where
    k does not divide N, the last iterations are unknown.
    """
    iterations, wanted, damaged = training.iterations, training.wanted, training.damaged
    loaded, exited = training.shape.loaded, training.shape.exited
    printed = max((it.total_iterations for it in iterations), default=None)
    total = wanted if wanted is not None else printed
    if wanted is None and exited is not None and iterations:
        total = exited or iterations[-1].iteration
    explained = loaded if loaded and iterations and loaded < iterations[0].iteration else 0
    begin = explained or (_late(iterations, total or 0) if wanted is None else 0)
    numbers = [iteration.iteration - begin for iteration in iterations]
    wanted_lines = (total or 0) - begin
    preview = has_preview(iterations)
    interval = _interval(numbers[1:] if preview else numbers, wanted_lines)
    stated = wanted if wanted is not None else printed or 0
    faults = _faults(iterations, total or 0, interval, begin, stated) if numbers else ["no iteration line"]
    unlogged = 0 if faults else wanted_lines % interval
    unseen = damaged or unlogged or begin != explained
    verdict = Verdict.FAIL if faults else Verdict.UNKNOWN if unseen else Verdict.OK
    if unlogged:
        faults.append(f"one line for {interval} iterations: nothing is known of the last {unlogged}")
    if damaged:
        faults.append(f"the line of {ranges(damaged, 'iteration')} was cut or mixed with other output")
    if begin != explained:
        faults.append(f"the log begins after iteration {begin}: it went on from a checkpoint, or lines are missing")
    every = f", one for {interval} iterations" if interval > 1 else ""
    seen = f"{iterations[0].iteration} to {iterations[-1].iteration}" if iterations else ""
    ends = [f"the run went on from a checkpoint of iteration {explained}"] if explained else []
    ends += [f"the program was told to exit, of {printed}"] if total != printed and wanted is None else []
    return Outcome(
        verdict=verdict,
        wanted=total,
        actual=(len(set(numbers)) - (preview and interval > 1)) * interval,
        unit="iterations",
        evidence="; ".join(faults) or "; ".join([f"{counted(len(numbers), 'line')}{every}, {seen} of {total}", *ends]),
        remedy=advice("unfinished"),
    )


def _late(iterations: Sequence[Iteration], total: int) -> int:
    """Return how many iterations came before the first line, where all lines from there to the end are there."""
    numbers = [iteration.iteration for iteration in iterations]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else numbers[0] if numbers == [total] else 0
    begin = numbers[0] - step if numbers else 0
    regular = step > 0 and all(number == begin + step * count for count, number in enumerate(numbers, start=1))
    return begin if regular and begin > 0 and 0 <= total - numbers[-1] < step else 0


def _interval(numbers: Sequence[int], total: int) -> int:
    """Return the log interval: k where the lines are of the iterations k, 2k, 3k and so on, without gaps."""
    interval = numbers[0] if len(numbers) > 1 else 1
    regular = all(number == interval * count for count, number in enumerate(numbers, start=1))
    return interval if regular and numbers and numbers[-1] <= total else 1


def _faults(iterations: Sequence[Iteration], total: int, interval: int, begin: int, stated: int) -> list[str]:
    """Return what is wrong with lines that are to go from behind `begin` to `total`, and to count to `stated`."""
    numbers = [iteration.iteration for iteration in iterations]
    totals = sorted({iteration.total_iterations for iteration in iterations})
    faults = []
    if totals != [stated]:
        faults.append(f"the lines count to {some(totals)}, not to {stated}")
    seen = sorted(set(numbers))
    if interval > 1:  # regular, or it would be 1
        return faults if total - seen[-1] < interval else [*faults, f"the last iteration seen is {seen[-1]} of {total}"]
    inside = [number for number in seen if begin < number <= total]
    if not inside or inside[-1] != total:
        faults.append(f"the last iteration seen is {seen[-1]} of {total}")
    if len(inside) < total - begin:
        expected = enumerate(inside, start=begin + 1)
        first = next((count for count, number in expected if number != count), begin + len(inside) + 1)
        faults.append(f"{total - begin - len(inside)} of {total - begin} lines are missing, the first is {first}")
    repeated = [number for number, count in Counter(numbers).items() if count > 1]
    if repeated:
        faults.append(f"more than once in the log: {ranges(repeated, 'iteration')}")
    if not repeated and numbers != seen:
        faults.append("the lines are out of order")
    if len(inside) < len(seen):
        faults.append(f"there are iterations outside {begin + 1} to {total}")
    return faults


def is_loss(value: float | None) -> bool:
    """Return whether a loss is a finite number, in the precision that losses are computed in."""
    return value is not None and abs(value) <= GREATEST_LOSS


@gate(stands=True)
def loss_finite(training: Training) -> Outcome:
    """Every line has a finite loss. Megatron leaves a NaN loss out of its line, so a missing one fails, but for the
    iterations that the loss scaler skipped in its search, or at a scale that had grown.

    No other figure of a line or of an evaluation is NaN or infinite, such as another loss or the learning rate.

    Where no line has a loss, its absence is no proof of NaN: the form of the lines may be unknown. That fails where
    the lines show NaN in another way, and is unknown otherwise.
    """
    iterations, damaged = training.iterations, training.damaged
    scale = loss_scale(iterations)
    barren = scale.barren
    silent = [it for it in iterations if it.lm_loss is None and it.iteration not in barren]
    cut = [it.iteration for it in silent if it.iteration in damaged]
    omitted = [it.iteration for it in silent if it.iteration not in damaged]
    infinite = [it.iteration for it in iterations if it.lm_loss is not None and not is_loss(it.lm_loss)]
    readable = any(it.lm_loss is not None for it in iterations)
    readable = readable or any(
        it.nan_iterations or it.skipped_iterations or not math.isfinite(it.grad_norm or 0.0)
        for it in iterations[scale.lines :]
    )
    texts = []
    if not iterations:
        texts.append("no iteration line")
    if omitted and readable:
        texts.append(
            f"no loss on the line of {ranges(omitted, 'iteration')} (NaN is left out, as is a skipped iteration's)"
        )
    if omitted and not readable:
        texts.append("no line has a loss by a name that is known: the form of these lines is not known, or all are NaN")
    if infinite:
        texts.append(f"the loss of {ranges(infinite, 'iteration')} is not finite")
    if cut:
        texts.append(f"the line of {ranges(cut, 'iteration')} was cut or mixed before its loss")
    texts += training.no_numbers
    failed = not iterations or (omitted and readable) or infinite or training.no_numbers
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if cut or omitted else Verdict.OK
    wanted = len(iterations) - len(barren)
    good = wanted - len(silent) - len(infinite)
    if not texts and not wanted:
        verdict, texts = Verdict.FAIL, ["every iteration was skipped"]
    unit, evidence = "iterations", "; ".join(texts) or f"a finite loss on each of {counted(wanted, 'line')}"
    evidence += f"; {counted(len(barren), 'line')} without one, which the loss scaler skipped" if barren else ""
    remedy = advice("loss" if readable or not omitted else "log_form")
    return Outcome(verdict=verdict, wanted=wanted, actual=good, unit=unit, evidence=evidence, remedy=remedy)


@gate(stands=True)
def no_skipped_or_nan(training: Training) -> Outcome:
    """No iteration was skipped by the loss scaler, but in the search for a loss scale and at one that had grown, or
    counted as NaN; unknown where lines do not say. A scale that falls is a skip, whatever the line counts, and so is a
    step that DeepSpeed's own lines count: more than a search and its share of the steps fail."""
    iterations = training.iterations
    scale = loss_scale(iterations)
    skipped = sum(it.skipped_iterations or 0 for it in iterations)
    nan = sum(it.nan_iterations or 0 for it in iterations)
    silent = [it.iteration for it in iterations if it.skipped_iterations is None or it.nan_iterations is None]
    bad = {it.iteration for it in iterations if it.nan_iterations} | set(scale.later)
    texts = [f"{skipped} skipped and {nan} NaN on {counted(len(iterations), 'line')}"]
    if not iterations:
        texts = ["no iteration line"]
    elif bad:
        texts.append(f"at {ranges(bad, 'iteration')}")
    if scale.text():
        texts.append(scale.text())
    steps, lost = training.shape.steps or 0, training.shape.skipped or 0
    if many := lost > threshold("skipped.search") + threshold("skipped.share") * steps:
        texts.append(f"DeepSpeed counts {lost} of {steps} steps as skipped")
    if silent:
        texts.append(f"the line of {ranges(silent, 'iteration')} does not say")
    unseen = silent or not iterations
    verdict = Verdict.FAIL if bad or many or not scale.ended else Verdict.UNKNOWN if unseen else Verdict.OK
    actual = max(skipped - scale.skipped, len(scale.later)) + nan if iterations else None
    unit, evidence, remedy = "iterations", "; ".join(texts), advice("loss" if scale.ended else "loss_scale")
    return Outcome(verdict=verdict, wanted=0, actual=actual, unit=unit, evidence=evidence, remedy=remedy)


@gate
def loss_falling(training: Training) -> Outcome:
    """Loss falls by more than its scatter and stays down. Statistic: levels, each the median of an eighth of the
    losses (3 at least; of fewer than 8 losses each one), at the start, the best and at the end.

    A rise or a jump that does not come back, an oscillation, a plateau of random weights, the same value to the end
    and values that are no cross-entropy fail, each in its own words. Too few losses, lines too coarse to show a fall,
    a flat loss of a model that was trained before, and a spike or a rise on the last lines are unknown. So is a curve
    with a loss that is missing or not finite; the iterations that the search for a loss scale skipped are none of it.
    """
    iterations = training.iterations
    points = _points(iterations)
    holes = len(iterations) - len(points) - len(loss_scale(iterations).barren)
    wanted = "a loss that falls"
    if training.shape.reinforced:
        evidence = "the job learns by reinforcement: its loss is no cross-entropy, and need not fall"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=wanted, evidence=evidence, remedy=advice("flat_loss"))
    if len({point.iteration for point in points}) < len(points):
        evidence = "iterations are in the log twice"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=wanted, evidence=evidence, remedy=advice("unfinished"))
    seen = curve(points, training.shape.vocabulary)
    verdict = Verdict.FAIL if seen.word in BAD else Verdict.UNKNOWN if seen.word != "falls" or holes else Verdict.OK
    missing = f"; no finite loss in {counted(holes, 'iteration')}, so the curve proves nothing" if holes else ""
    actual, evidence = f"{seen.word}: {-seen.share:+.1%}" if seen.share else seen.word, seen.text + missing
    remedy = advice("loss" if verdict is Verdict.FAIL else "flat_loss")
    return Outcome(verdict=verdict, wanted=wanted, actual=actual, evidence=evidence, remedy=remedy)


def _points(iterations: Sequence[Iteration]) -> list[Point]:
    return [
        Point(line.iteration, line.lm_loss, line.learning_rate)
        for line in iterations
        if line.lm_loss is not None and is_loss(line.lm_loss)
    ]


@gate
def checkpoint_resumed(training: Training) -> Outcome | None:
    """Compare the first loss after a checkpoint with the last before it: at most 1 + `resume_rtol` times as great.

    A checkpoint that was asked for has to be in the log, saved and read back. Without a loss before it, or a line after
    it, the gate is unknown. It is skipped where no checkpoint was asked for and the log has none.
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
    if before is None or at + 1 not in losses:  # no line, or the search for a loss scale went on
        verdict, evidence = Verdict.UNKNOWN, f"the log has no loss of iteration {at if before is None else at + 1}"
    elif lacking:
        verdict, evidence = Verdict.FAIL, "; ".join(lacking)
    elif not (is_loss(before) and is_loss(after)) or bound is None or after is None:
        verdict, evidence = Verdict.FAIL, f"no finite loss at iterations {at} and {at + 1}"
    else:
        verdict = Verdict.OK if after <= bound else Verdict.FAIL
        evidence = f"loss {before:g} at iteration {at}, {after:g} at {at + 1}, after the checkpoint was read back"
    return Outcome(verdict=verdict, wanted=bound, actual=after, evidence=evidence, remedy=advice("checkpoint"))


_FEW = 4  # norms, below which only their being numbers is judged
Norm = tuple[int, float]  # iteration, value


@gate(stands=True)
def gradient_norm(training: Training) -> Outcome | None:
    """Where lines have the norm of the gradient, it is finite on each and does not explode. Statistic: the median of
    the last eighth (3 at least) against the lowest median of as many in a row.

    The iterations that the search for a loss scale skipped do not count; a norm of 0 on every line, or to the end, is
    no gradient. While the loss falls, a norm that is 0 on every line is unknown, as is a last norm far above those
    before.
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
        first = next(norm for norm in norms if norm[0] == bad[0])
        text = f"the norm of {ranges(bad, 'iteration')} is no finite number above 0: {_at(first)}"
    elif len(norms) >= _FEW:
        verdict, actual, text = _judge(norms)
        if not any(norm for _, norm in norms) and curve(_points(lines), training.shape.vocabulary).word == "falls":
            verdict = Verdict.UNKNOWN
            text = "the norm is 0 on every line while the loss falls: too small for the line's digits, or not measured"
    if not text:
        last = f", the last is {_at(norms[-1])}" if norms else ": the search for a loss scale did not end"
        text = f"{counted(len(norms), 'finite norm')}{last}"
    verdict, remedy = verdict if norms else Verdict.UNKNOWN, advice("loss" if norms else "loss_scale")
    wanted = "finite, and not exploding"
    return Outcome(verdict=verdict, wanted=wanted, actual=actual or "finite", evidence=text, remedy=remedy)


def _judge(norms: Sequence[Norm]) -> tuple[Verdict, str, str]:
    """Return the verdict over finite norms, in a word, and the figures that show it."""
    values = [norm for _, norm in norms]
    width = min(max(3, len(values) // 8), len(values)) | 1  # odd: each level is a norm of the log
    levels = list(_medians(values, width))
    best, end = min(levels), levels[-1]
    if not any(values[-width:]):
        since = next((at for at in range(len(values), 0, -1) if values[at - 1]), 0)
        return Verdict.FAIL, "zero", f"the norm is exactly 0 from iteration {norms[since][0]} to the end"
    if end >= threshold("gradient.largest"):
        return Verdict.FAIL, "exploded", f"the norm is around {decimal(end, 4)} at the end"
    lowest = max(best, threshold("gradient.clipped") / threshold("gradient.rise"))
    if end >= threshold("gradient.rise") * lowest:
        first = next(at for at, norm in reversed(norms) if norm <= best)
        level = f"{decimal(end / best, 3)} times the level of {decimal(best, 4)} around iteration" if best else ""
        text = f"around {decimal(end, 4)} at the end, {level or 'and 0 around'} {first}"
        return Verdict.FAIL, "exploded", text
    if values[-1] >= threshold("gradient.rise") * max(lowest, statistics.median_low(values[-width - 1 : -1])):
        level = f"the level before {decimal(end, 4)}"
        text = f"the last norm is {_at(norms[-1])}, {level}; whether it comes back is not in the log"
        return Verdict.UNKNOWN, "spike at its end", text
    return Verdict.OK, "", ""


def _medians(values: Sequence[float], width: int) -> Iterator[float]:
    """Yield the median of each `width` values in a row, an odd number of them. The values within stay sorted: to sort
    those of each place anew takes minutes for 100,000 iterations."""
    within = sorted(values[:width])
    yield within[width // 2]
    for first, following in zip(values, values[width:], strict=False):
        del within[bisect_left(within, first)]
        insort(within, following)
        yield within[width // 2]


def _at(norm: Norm) -> str:
    return f"{decimal(norm[1], 4)} at {norm[0]}"
