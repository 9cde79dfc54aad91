"""Gates on the figures of a job: against bounds, a machine's peak, each other, earlier runs, and nodes alone."""

from collections.abc import Collection, Mapping, Sequence

from shakedown.catalogue import advice
from shakedown.common.frozen import Frozen
from shakedown.common.text import counted, decimal, in_unit, ranges, short, some
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import Baseline, Past
from shakedown.gates.model import Outcome, threshold
from shakedown.gates.observed import Expected, Speed
from shakedown.gates.registry import gate
from shakedown.gates.steadiness import BAD, steadiness
from shakedown.logs.figures import Figure, Figures
from shakedown.logs.iterations import Iteration
from shakedown.logs.metrics import MEAN, METRICS, metric_of, peak
from shakedown.state.findings import Verdict


class Recorded(Frozen):
    """A figure that is only reported: no bound, too few earlier runs. `value` None: not in the log."""

    name: str
    value: float | None
    unit: str
    why: str = ""  # what earlier runs say of it, or how many of those that it takes there are


@gate(names="each expected metric")
def expected_figures(expected: Expected, speed: Speed) -> dict[str, Outcome]:
    """One figure against its bound, in the metric's own direction. A figure that cannot be had fails. Statistic: the
    mean of the judged iterations, as published figures are means."""
    return {name: _expected(name, bound, speed.figures) for name, bound in expected.bounds.items()}


def _expected(name: str, bound: float, figures: Figures) -> Outcome:
    metric, figure = METRICS[name], figures.get(name)
    met = figure is not None and metric.meets(figure.mean, bound)
    verdict, actual = Verdict.OK if met else Verdict.FAIL, figure.mean if figure else None
    evidence = f"wanted {metric.direction} {in_unit(decimal(bound), metric.unit)}: {_evidence(figure, figures)}"
    remedy = advice("no_figure" if figure is None else "memory" if name == "mem_usage" else "slow")
    return Outcome(verdict=verdict, wanted=bound, actual=actual, unit=metric.unit, evidence=evidence, remedy=remedy)


def recorded(
    judged: Collection[str], figures: Figures, baselines: Mapping[str, Baseline] | None = None
) -> list[Recorded]:
    """Return the unjudged metrics with their means, and why `baselines` do not judge them."""
    values = {name: figure.mean for name in METRICS if (figure := figures.get(name))}
    return [
        Recorded(name=name, value=values.get(name), unit=metric.unit, why=str((baselines or {}).get(name, "")))
        for name, metric in METRICS.items()
        if name not in judged
    ]


def _evidence(figure: Figure | None, figures: Figures) -> str:
    if not figures.steady:
        return "no steady iterations: more than 3 are needed, since the first two and the last do not count"
    if figure is None:
        return f"none of the {figures.steady} steady iterations has it, or a value is not finite"
    if figure.summary:
        return "the mean that the job's script printed at its end; no iteration line has it"
    spread = "" if figure.spread is None else f", quartiles {decimal(figure.spread, 4)} apart"
    derived = ", derived from batch, sequence length and time" if figure.derived else ""
    mean = f"mean {decimal(figure.mean)} of {counted(figure.count, 'steady iteration')}"
    return f"{mean}, median {decimal(figure.value)}{spread}{derived}"


_ON_LINES = ("elapsed_time_per_iteration", "throughput_per_gpu", "tokens_per_gpu")
_ROUNDING = 1.001  # throughputs are printed with one decimal


@gate(stands=True)
def possible_throughput(speed: Speed) -> Outcome | None:
    """No judged line has more TFLOP/s per GPU than the GPU's dense peak in the job's precision; tokens/s, and samples/s
    of all GPUs, count as well where the log states the model. Of an unknown GPU or precision the highest peak counts.
    Neither has a line a time or a throughput that is no number, negative, or no time at all. Statistic: each line.
    """
    if speed.timed is None:
        return None
    limit = peak(speed.gpus, speed.shape.precision)
    most = limit.tflops * _ROUNDING
    lines = {line.iteration: line.tflops_per_gpu for line in speed.timed if line.tflops_per_gpu is not None}
    beyond = {at: value for at, value in lines.items() if value > most}
    highest = [(max(lines.values()), "on a line")] if lines else []
    if throughput := speed.figures.throughput_per_gpu:
        highest.append((max(throughput.value, throughput.mean), "of the figure"))
    tokens, token_flops = speed.figures.tokens_per_gpu, speed.shape.token_flops
    if tokens is not None and token_flops:
        highest.append((max(tokens.value, tokens.mean) * token_flops / 1e12, f"by {decimal(tokens.mean)} tokens/s/GPU"))
    if (total := speed.all_gpus_tokens) is not None and token_flops:
        highest.append((total * token_flops / 1e12, f"by {decimal(total)} tokens/s/GPU, of all GPUs' number"))
    top, source = max(highest, default=(0.0, "in no line"))
    lies = impossible(speed.timed)
    failed = bool(lies) or top > most
    where = f", at {ranges(beyond, 'iteration')}" if beyond else ""
    evidence = f"no machine has {some(lies)}; " if lies else ""
    evidence += f"{decimal(top)} TFLOP/s/GPU {source}{where}; at most {limit}"
    wanted, unit = f"at most {decimal(limit.tflops)}", "TFLOP/s/GPU"  # a bound of physics, which nothing is to reach
    verdict, remedy = Verdict.FAIL if failed else Verdict.OK, advice("impossible")
    return Outcome(verdict=verdict, wanted=wanted, actual=top, unit=unit, evidence=evidence, remedy=remedy)


def impossible(lines: Sequence[Iteration]) -> list[str]:
    """Return the times and throughputs of these lines that cannot be, each with its iteration."""
    return [
        f"{decimal(value)} {METRICS[name].unit} at iteration {line.iteration}"
        for name in _ON_LINES
        for line in lines
        if (value := getattr(line, METRICS[name].source)) is not None and not METRICS[name].possible(value)
    ]


@gate
def steady(speed: Speed) -> Outcome | None:
    """Steady iterations follow each other evenly. Statistic: the share of lines that take more than 1.33 times
    the median, the longest stretch of them in a row, and the median over the slowest of the fastest tenth.

    Of fewer judged lines than `steady.least`, even ones are skipped, and others are unknown. So are times that scatter
    on the fast side as well, as of sequences of unequal length, and times that the lines' own clock contradicts.
    """
    paces, clock = speed.paces, speed.clock
    if paces is None:
        return None
    seen = steadiness(paces)
    texts = [clock] if clock else []
    texts.append(
        f"{seen.slow} of {counted(seen.lines, 'judged line')} took more than {threshold('steady.slow'):g} x the median"
        f" ({seen.share:.0%})"
    )
    if seen.at is not None and seen.longest > paces.interval:
        texts.append(f"the longest slow stretch is {counted(seen.longest, 'iteration')} from {seen.at} on")
    texts.append(
        f"the mean is {decimal(seen.mean, 3)} x the median, the median {decimal(seen.usual, 3)} x the fastest tenth"
    )
    even = seen.word == "even" and not clock
    few = seen.lines < threshold("steady.least")
    if few and even:
        return None
    texts += [f"fewer than {threshold('steady.least'):g} judged lines fail no run"] if few else []
    verdict = Verdict.OK if even else Verdict.FAIL if seen.word in BAD and not few else Verdict.UNKNOWN
    wanted, evidence = f"at most {threshold('steady.share'):.0%} slow", "; ".join(texts)
    actual = f"{seen.word}: {seen.share:.0%}" if seen.slow else seen.word
    remedy = advice("slow" if verdict is Verdict.FAIL else "clock" if clock else "uneven")
    return Outcome(verdict=verdict, wanted=wanted, actual=actual, evidence=evidence, remedy=remedy)


PREFIX = "baseline."


@gate
def baseline_known(expected: Expected) -> Outcome | None:
    """Earlier runs, with which the figures are to be compared, could be read; skipped where they were."""
    past = expected.past
    if past is None or not (past.judge and past.problem):
        return None
    return Outcome(verdict=Verdict.UNKNOWN, evidence=past.problem, remedy=advice("no_past"))


@gate(names="`baseline.METRIC`")
def figures_and_past(expected: Expected, speed: Speed) -> dict[str, Outcome]:
    """One figure is no worse than earlier passes of the same job differ anyway, nor are the last runs together with it.
    Statistic: the median of the judged iterations, and in a gate of its own (`.mean`) their mean.

    docs/ledger.md has the method. With fewer earlier runs than it needs the gate is skipped.
    """
    values = speed.figures.values()
    judged = expected.past.judged if expected.past else {}
    return {PREFIX + metric: _compared(past, metric, values.get(metric)) for metric, past in judged.items()}


def _compared(past: Past, metric: str, value: float | None) -> Outcome:
    unit, direction = metric_of(metric).unit, metric_of(metric).direction
    earlier = past.of_metric(metric)
    if value is None:
        evidence = f"this run has no such figure, and {len(earlier)} earlier ones have"
        return Outcome(verdict=Verdict.UNKNOWN, unit=unit, evidence=evidence, remedy=advice("no_figure"))
    baseline = compare(past, metric, value, direction)
    return Outcome(
        verdict=Verdict.OK if not baseline.lost else Verdict.WARN if baseline.reported else Verdict.FAIL,
        wanted=baseline.bound,
        actual=baseline.recent,
        unit=unit,
        evidence=_against_earlier(baseline, past, metric, [run.run_id for run in earlier]),
        remedy=advice("worse_than_before") if baseline.lost else None,
    )


def _against_earlier(baseline: Baseline, past: Past, metric: str, runs: list[str]) -> str:
    assert baseline.centre is not None and baseline.error is not None and baseline.spread is not None
    texts = [f"wanted {baseline.direction} {in_unit(decimal(baseline.bound), metric_of(metric).unit)}"]
    if baseline.runs > 1:
        last = some([*runs[baseline.earlier :], "this one"])
        texts.append(
            f"the last {baseline.runs} runs ({last}) are at {decimal(baseline.recent)}, "
            f"this one at {decimal(baseline.value)}"
        )
    before = f"{counted(baseline.earlier, 'run')} before: {decimal(baseline.centre)} +- {short(baseline.error)}"
    texts.append(f"{before}, one run differs by {short(baseline.spread)} ({some(runs[: baseline.earlier][::-1])})")
    if peers := past.peers.get(metric):
        texts.append(f"{peers.nodes} other nodes differ by {100 * peers.noise:.2g} % from run to run")
    texts.append(past.epoch)
    if baseline.since:
        level = "again at the level that was reported" if baseline.reported else "the level has changed"
        accept = "to accept the level, give the day as smoke.baseline_since and your name as smoke.baseline_by"
        texts.append(f"{level}, since run {baseline.since}; {accept}")
    texts += [past.before] if past.before else []
    if past.since:
        texts.append(f"since {past.since} (smoke.baseline_since{f', accepted by {past.by}' if past.by else ''})")
    return "; ".join(texts)


_ADD_UP = ("tokens_per_gpu", "throughput_per_gpu")  # over GPUs
OF_ALL = (*_ADD_UP, *(name + MEAN for name in _ADD_UP))


@gate
def scaling_efficiency(expected: Expected, speed: Speed) -> Outcome | None:
    """Together the nodes have the wanted share (smoke.scaling) of what they have alone in sum, in tokens/s and TFLOP/s;
    unknown where a node's own figure is missing. Statistic: the lowest share of the medians and of the means."""
    alone = expected.alone
    if alone is None:
        return None
    texts: list[str] = []
    shares, missing = {}, []
    values = speed.figures.values()
    for metric in OF_ALL:
        together = values.get(metric)
        own = {
            name: one.figures[metric] * one.ranks for name, one in alone.nodes.items() if one and metric in one.figures
        }
        unit = metric_of(metric).unit.removesuffix("/GPU") + (" (mean)" if metric.endswith(MEAN) else "")
        if not own and (together is None or metric.endswith(MEAN)):  # earlier runs may have no means
            continue
        without = [name for name in alone.nodes if name not in own]
        if together is None or without:
            missing.append(f"{unit}: {f'nothing of {some(without)} alone' if without else 'no figure together'}")
            continue
        total, of_all = sum(own.values()), together * speed.ranks
        if not (of_all and all(own.values())):
            texts.append(f"{unit}: some print 0, which is rounded, and cannot be compared")
            continue
        shares[metric] = of_all / total
        nodes = some([f"{name} {decimal(value)}" for name, value in own.items()])
        texts.append(f"{decimal(of_all)} {unit} together, {decimal(total)} alone ({nodes})")
    short = [metric for metric, share in shares.items() if share < alone.share]
    unknown = bool(missing) or not shares
    runs = dict.fromkeys(run for one in alone.nodes.values() if one for run in one.runs)
    texts += missing or ([] if shares else ["no node has a figure of its own"])
    texts += [f"alone in {some(list(runs))}"] if runs else []
    verdict = Verdict.FAIL if short else Verdict.UNKNOWN if unknown else Verdict.OK
    lowest, unit, evidence = min(shares.values(), default=None), "of the sum alone", "; ".join(texts)
    remedy = advice("scaling" if short else "not_alone")
    return Outcome(verdict=verdict, wanted=alone.share, actual=lowest, unit=unit, evidence=evidence, remedy=remedy)
