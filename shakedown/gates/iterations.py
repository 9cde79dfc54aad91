"""Gates on the iteration lines: all there, each with a finite loss, none skipped."""

import math
from collections import Counter
from collections.abc import Sequence

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.gates.model import Outcome, ranges, some
from shakedown.gates.observed import Training
from shakedown.gates.registry import gate
from shakedown.logs.iterations import Iteration, has_preview
from shakedown.logs.loss_scale import loss_scale
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
    unlogged = wanted_lines % interval
    unseen = damaged or unlogged or begin != explained
    verdict = Verdict.FAIL if faults else Verdict.UNKNOWN if unseen else Verdict.OK
    if unlogged:
        faults.append(f"one line for {interval} iterations: nothing is known of the last {unlogged}")
    if damaged:
        faults.append(f"the line of iteration {ranges(damaged)} was cut or mixed with other output")
    if begin != explained:
        faults.append(f"the log begins after iteration {begin}: it went on from a checkpoint, or lines are missing")
    every = f", one for {interval} iterations" if interval > 1 else ""
    ends = [f"the run went on from a checkpoint of iteration {explained}"] if explained else []
    ends += [f"the program was told to exit, of {printed}"] if total != printed and wanted is None else []
    return Outcome(
        verdict=verdict,
        wanted=total,
        actual=(len(set(numbers)) - (preview and interval > 1)) * interval,
        unit="iterations",
        evidence="; ".join(faults)
        or "; ".join([f"{counted(len(numbers), 'line')}{every}, {_ends(iterations)} of {total}", *ends]),
        remedy=advice("unfinished"),
    )


def _ends(iterations: Sequence[Iteration]) -> str:
    return f"{iterations[0].iteration} to {iterations[-1].iteration}"


def _late(iterations: Sequence[Iteration], total: int) -> int:
    """Return how many iterations came before the first line, where all lines from there to the end are there."""
    numbers = [iteration.iteration for iteration in iterations]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else numbers[0] if numbers == [total] else 0
    begin = numbers[0] - step if numbers else 0
    regular = step > 0 and all(number == begin + step * count for count, number in enumerate(numbers, start=1))
    return begin if regular and begin > 0 and 0 <= total - numbers[-1] < step else 0


def _interval(numbers: Sequence[int], total: int) -> int:
    """Return the log interval: k where the lines are of the iterations k, 2k, 3k and so on to the end, without gaps."""
    interval = numbers[0] if len(numbers) > 1 else 1
    regular = all(number == interval * count for count, number in enumerate(numbers, start=1))
    return interval if regular and numbers and 0 <= total - numbers[-1] < interval else 1


def _faults(iterations: Sequence[Iteration], total: int, interval: int, begin: int, stated: int) -> list[str]:
    """Return what is wrong with lines that are to go from behind `begin` to `total`, and to count to `stated`."""
    numbers = [iteration.iteration for iteration in iterations]
    totals = sorted({iteration.total_iterations for iteration in iterations})
    faults = []
    if totals != [stated]:
        faults.append(f"the lines count to {some(totals)}, not to {stated}")
    if interval > 1:
        return faults  # regular to the end, or it would be 1
    seen = sorted(set(numbers))
    inside = [number for number in seen if begin < number <= total]
    if not inside or inside[-1] != total:
        faults.append(f"the last iteration seen is {seen[-1]} of {total}")
    if len(inside) < total - begin:
        expected = enumerate(inside, start=begin + 1)
        first = next((count for count, number in expected if number != count), begin + len(inside) + 1)
        faults.append(f"{total - begin - len(inside)} of {total - begin} lines are missing, the first is {first}")
    repeated = [number for number, count in Counter(numbers).items() if count > 1]
    if repeated:
        faults.append(f"iteration {ranges(repeated)} is in the log more than once")
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
    readable = readable or any(map(_shows_nan, iterations[scale.lines :]))
    texts = []
    if not iterations:
        texts.append("no iteration line")
    if omitted and readable:
        texts.append(
            f"no loss on the line of iteration {ranges(omitted)} (NaN is left out, as is a skipped iteration's)"
        )
    if omitted and not readable:
        texts.append("no line has a loss by a name that is known: the form of these lines is not known, or all are NaN")
    if infinite:
        texts.append(f"the loss of iteration {ranges(infinite)} is not finite")
    if cut:
        texts.append(f"the line of iteration {ranges(cut)} was cut or mixed before its loss")
    failed = not iterations or (omitted and readable) or infinite
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if cut or omitted else Verdict.OK
    wanted = len(iterations) - len(barren)
    good = wanted - len(silent) - len(infinite)
    if not texts and not wanted:
        verdict, texts = Verdict.FAIL, ["every iteration was skipped"]
    skipped = f"; {counted(len(barren), 'line')} without one, which the loss scaler skipped" if barren else ""
    return Outcome(
        verdict=verdict,
        wanted=wanted,
        actual=good,
        unit="iterations",
        evidence=("; ".join(texts) or f"a finite loss on each of {counted(wanted, 'line')}") + skipped,
        remedy=advice("loss" if readable or not omitted else "log_form"),
    )


def _shows_nan(line: Iteration) -> bool:
    bad_norm = line.grad_norm is not None and not math.isfinite(line.grad_norm)
    return bool(line.nan_iterations or line.skipped_iterations) or bad_norm


@gate(stands=True)
def no_skipped_or_nan(training: Training) -> Outcome:
    """No iteration was skipped by the loss scaler, but in the search for a loss scale and at one that had grown, or
    counted as NaN; unknown where lines do not say. A scale that falls is a skip, whatever the line counts."""
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
        texts.append(f"at iteration {ranges(bad)}")
    if scale.text():
        texts.append(scale.text())
    if silent:
        texts.append(f"the line of iteration {ranges(silent)} does not say")
    unseen = silent or not iterations
    verdict = Verdict.FAIL if bad or not scale.ended else Verdict.UNKNOWN if unseen else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted=0,
        actual=max(skipped - scale.skipped, len(scale.later)) + nan if iterations else None,
        unit="iterations",
        evidence="; ".join(texts),
        remedy=advice("loss" if scale.ended else "loss_scale"),
    )
