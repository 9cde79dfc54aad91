"""What a GPU can compute at most, and what a job says that it computed. Data: `peaks.toml`."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from shakedown.common.data import read_toml

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


@cache
def _peaks() -> dict[str, dict[str, float | str]]:
    return read_toml("shakedown.logs", "peaks.toml")


def peak(gpus: Collection[str] = (), precision: str | None = None) -> Peak:
    """Return the peak of the fastest of these GPUs, of all where none of them is known, in the fastest precision that
    the job names and the GPU has, else in the fastest at all."""
    named = [gpu for gpu in gpus if gpu in _peaks()] if all(gpu in _peaks() for gpu in gpus) else []
    found = []
    for gpu in named or _peaks():
        entry = _peaks()[gpu]
        values = {name: float(entry[name]) for name in PRECISIONS if name in entry}
        known = precision if precision in values else ""
        found.append(Peak(gpu, known or "", values[known] if known else max(values.values()), str(entry["source"])))
    return max(found, key=lambda peak: peak.tflops)
