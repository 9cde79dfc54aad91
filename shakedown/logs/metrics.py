"""What is measured of a smoke run: by itself, so that who only asks for a unit loads no reader of logs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from shakedown.common.data import kept_toml, read_toml
from shakedown.common.frozen import Frozen

GREATEST = 1e15  # of any metric in its unit: far more than a machine has, and little enough to be summed up


class Metric(Frozen):
    """What is measured, in which unit, and which way is better."""

    name: str
    unit: str
    direction: Literal["at least", "at most"]  # `Direction` of baselines.model, whose models are no part of a unit
    source: str  # the field of `Iteration`
    zero: bool = True  # whether 0 is a value that a line can have: what is printed is rounded

    def possible(self, value: float) -> bool:
        """Whether a machine can have such a value: a negative one, or an iteration in no time, is a line that lies."""
        return (value > 0 or (self.zero and value == 0)) and value <= GREATEST

    def meets(self, actual: float, bound: float) -> bool:
        """Whether a measured value is as good as the bound. Never true for NaN."""
        return actual >= bound if self.direction == "at least" else actual <= bound


MEAN = ".mean"
"""Behind a metric's name: the mean over the judged iterations, kept beside the median for earlier runs and scaling."""


def metric_of(name: str) -> Metric:
    """Return the metric of a figure's name, with `MEAN` behind it or without. Raises KeyError for what is none."""
    return METRICS[name.removesuffix(MEAN)]


METRICS_OF = {
    parser: {name: Metric(name=name, **entry) for name, entry in entries.items()}
    for parser, entries in read_toml("shakedown.logs", "metrics.toml").items()
}
METRICS = METRICS_OF["training"]


PRECISIONS = ("fp4", "fp8", "bf16", "fp16")  # the fastest first


@dataclass(frozen=True)
class Peak:
    """The highest dense TFLOP/s of a GPU. `precision` empty: the job does not name one, so its fastest."""

    gpu: str
    precision: str
    tflops: float
    source: str

    def __str__(self) -> str:
        how = self.precision.upper() if self.precision else "its fastest precision"
        return f"{self.tflops:g} TFLOP/s, the dense peak of an {self.gpu.upper()} in {how} ({self.source})"


def peak(gpus: Collection[str] = (), precision: str | None = None) -> Peak:
    """Return the peak of the fastest of these GPUs, of all where none of them is known, in the fastest precision that
    the job names and the GPU has, else in the fastest at all."""
    peaks = kept_toml("shakedown.logs", "peaks.toml")
    named = [gpu for gpu in gpus if gpu in peaks] if all(gpu in peaks for gpu in gpus) else []
    found = []
    for gpu in named or peaks:
        entry = peaks[gpu]
        values = {name: float(entry[name]) for name in PRECISIONS if name in entry}
        known = precision if precision in values else ""
        found.append(Peak(gpu, known or "", values[known] if known else max(values.values()), str(entry["source"])))
    return max(found, key=lambda peak: peak.tflops)
