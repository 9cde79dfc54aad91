"""Whether a machine can have done what a log says."""

from collections.abc import Sequence

from shakedown.catalogue import advice
from shakedown.common.text import decimal
from shakedown.gates.model import Outcome, ranges, some
from shakedown.gates.observed import Speed
from shakedown.gates.registry import gate
from shakedown.logs.iterations import Iteration
from shakedown.logs.metrics import METRICS
from shakedown.logs.peaks import peak
from shakedown.state.findings import Verdict

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
    failed = bool(beyond) or bool(lies) or top > most
    where = f", at iteration {ranges(beyond)}" if beyond else ""
    evidence = f"{decimal(top)} TFLOP/s/GPU {source}{where}; at most {limit}"
    return Outcome(
        verdict=Verdict.FAIL if failed else Verdict.OK,
        wanted=limit.tflops,
        actual=top,
        unit="TFLOP/s/GPU",
        evidence="; ".join([*([f"no machine has {some(lies)}"] if lies else []), evidence]),
        remedy=advice("impossible") if failed else None,
    )


def impossible(lines: Sequence[Iteration]) -> list[str]:
    """Return the times and throughputs of these lines that cannot be, each with its iteration."""
    return [
        f"{decimal(value)} {METRICS[name].unit} at iteration {line.iteration}"
        for name in _ON_LINES
        for line in lines
        if (value := getattr(line, METRICS[name].source)) is not None and not METRICS[name].possible(value)
    ]
