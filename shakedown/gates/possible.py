"""Whether a machine can have done what a log says."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shakedown.catalogue import advice
from shakedown.gates.model import Outcome, ranges, some
from shakedown.gates.registry import gate
from shakedown.logs.figures import Figures
from shakedown.logs.log import Iteration
from shakedown.logs.metrics import METRICS
from shakedown.logs.peaks import peak
from shakedown.state.findings import Verdict

_ON_LINES = ("elapsed_time_per_iteration", "throughput_per_gpu", "tokens_per_gpu")
_ROUNDING = 1.001  # throughputs are printed with one decimal


@gate(stands=True)
def possible_throughput(
    figures: Figures,
    timed: Sequence[Iteration],
    gpus: Collection[str] = (),
    precision: str | None = None,
    token_flops: float | None = None,
    told_tokens: float | None = None,
) -> Outcome:
    """No judged line has more TFLOP/s per GPU than the GPU's dense peak in the job's precision; tokens/s, and samples/s
    of all GPUs, count as well where the log states the model. Of an unknown GPU or precision the highest peak counts.
    Neither has a line a time or a throughput that is no number, negative, or no time at all. Statistic: each line.
    """
    known = peak(gpus, precision)
    most = known.tflops * _ROUNDING
    lines = {line.iteration: line.tflops_per_gpu for line in timed if line.tflops_per_gpu is not None}
    beyond = {at: value for at, value in lines.items() if value > most}
    highest = [(max(lines.values()), "on a line")] if lines else []
    if figures.throughput_per_gpu is not None:
        highest.append((max(figures.throughput_per_gpu.value, figures.throughput_per_gpu.mean), "of the figure"))
    tokens = figures.tokens_per_gpu
    if tokens is not None and token_flops:
        highest.append((max(tokens.value, tokens.mean) * token_flops / 1e12, f"by {tokens.mean:.6g} tokens/s/GPU"))
    if told_tokens is not None and token_flops:
        highest.append((told_tokens * token_flops / 1e12, f"by {told_tokens:.6g} tokens/s/GPU, of all GPUs' number"))
    top, whence = max(highest, default=(0.0, "in no line"))
    lies = impossible(timed)
    failed = bool(beyond) or bool(lies) or top > most
    where = f", at iteration {ranges(beyond)}" if beyond else ""
    evidence = f"{top:.6g} TFLOP/s/GPU {whence}{where}; at most {known}"
    return Outcome(
        verdict=Verdict.FAIL if failed else Verdict.OK,
        wanted=known.tflops,
        actual=top,
        unit="TFLOP/s/GPU",
        evidence="; ".join([*([f"no machine has {some(lies)}"] if lies else []), evidence]),
        remedy=advice("impossible") if failed else None,
    )


def impossible(lines: Sequence[Iteration]) -> list[str]:
    """Return the times and throughputs of these lines that cannot be, each with its iteration."""
    return [
        f"{value:g} {METRICS[name].unit} at iteration {line.iteration}"
        for name in _ON_LINES
        for line in lines
        if (value := getattr(line, METRICS[name].source)) is not None and not METRICS[name].possible(value)
    ]
