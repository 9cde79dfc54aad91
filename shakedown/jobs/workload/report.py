"""What the workload prints: Megatron's iteration line in the ROCm fork's dialect, its summary lines, a rank's own time:
that of the clock, less the time in collectives. CPU time would not show it: gloo's threads use some while they wait.
On GPUs a wait is the stream's and returns at once, so nothing can be measured from here."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist


def say(text: str) -> None:
    """Print at once, and as one write: print() makes two under torchrun's `python -u`, and ranks' lines would mix."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def memory_fraction(device: torch.device) -> float:
    """Part of the memory in use, 0 to 1: on a GPU the most that torch had allocated of the device's memory, else this
    process's resident set of the machine's memory."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return float(torch.cuda.max_memory_allocated(device) / total)
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages / os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Iteration:
    """The figures of one iteration. "GPU" means rank, as in Megatron; times are of the clock, between barriers."""

    number: int
    total: int
    global_batch_size: int
    seq_length: int
    world_size: int
    elapsed_ms: float
    flops: int
    memory_fraction: float
    learning_rate: float
    lm_loss: float
    loss_scale: float
    grad_norm: float | None  # None where the step was skipped
    skipped: int
    nan: int

    @property
    def tflops_per_gpu(self) -> float:
        return self.flops / (self.elapsed_ms * 1e-3 * 1e12 * self.world_size)

    @property
    def tokens_per_gpu(self) -> float:
        """Return tokens/s/GPU."""
        return self.global_batch_size * self.seq_length * 1000 / (self.elapsed_ms * self.world_size)

    def line(self, now: datetime) -> str:
        """Return the line. A NaN loss is left out of it, as Megatron does, and so are loss and norm of a skipped
        iteration. The throughput has four decimals where Megatron prints one: a CPU core would read 0.0."""
        loss = "" if math.isnan(self.lm_loss) or self.skipped else f" lm loss: {self.lm_loss:.6E} |"
        norm = "" if self.grad_norm is None else f" grad norm: {self.grad_norm:.3f} |"
        return (
            f" [{now:%Y-%m-%d %H:%M:%S}] iteration {self.number:8d}/{self.total:8d} |"
            f" consumed samples: {self.number * self.global_batch_size:12d} |"
            f" elapsed time per iteration (ms): {self.elapsed_ms:.1f} |"
            f" mem usages: {self.memory_fraction:.4f} |"
            f" throughput per GPU (TFLOP/s/GPU): {self.tflops_per_gpu:.4f} |"
            f" tokens per GPU (tokens/s/GPU): {self.tokens_per_gpu:.1f} |"
            f" learning rate: {self.learning_rate:.6E} |"
            f" global batch size: {self.global_batch_size:5d} |"
            f"{loss}"
            f" loss scale: {self.loss_scale:.1f} |"
            f"{norm}"
            f" number of skipped iterations: {self.skipped:3d} |"
            f" number of nan iterations: {self.nan:3d} |"
        )


def summary(iterations: list[Iteration]) -> list[str]:
    """Return the ROCm scripts' summary: means without the first two iterations and the last, nan where none is left."""
    if not (steady := iterations[2:-1]):
        figures = (math.nan,) * 4
    else:
        elapsed_ms = fmean(i.elapsed_ms for i in steady)
        tokens = steady[0].global_batch_size * steady[0].seq_length * 1000 / (elapsed_ms * steady[0].world_size)
        memory = fmean(i.memory_fraction for i in steady)
        figures = (fmean(i.tflops_per_gpu for i in steady), elapsed_ms, tokens, memory)
    names = ("throughput per GPU", "elapsed time per iteration", "tokens/GPU/s", "mem usages")
    return [f"{name}: {figure:.4f}" for name, figure in zip(names, figures, strict=True)]


WARM_UP = 2  # iterations that take longer everywhere
LEAST = 2  # iterations in a window
MOST = 8  # windows of a run: each is long enough to tell, and the log stays short


class OwnTime:
    """Add up waiting from now on: everything that waits for another rank comes through `Work.wait`."""

    def __init__(self, rank: int, world_size: int, iterations: int) -> None:
        self._who = f"rank {rank} of {world_size}"
        self._size = max(LEAST, -(-(iterations - WARM_UP) // MOST))
        self.waited = 0.0  # seconds, since the beginning
        self._window: list[tuple[float, float]] = []
        wait = dist.Work.wait

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return wait(*args, **options)
            finally:
                self.waited += time.perf_counter() - began

        dist.Work.wait = timed  # type: ignore[method-assign]

    def iteration(self, number: int, elapsed_s: float, waited_s: float) -> str | None:
        """Take one; the line of its window where that is full."""
        if number <= WARM_UP:
            return None
        self._window.append((elapsed_s - waited_s, waited_s))
        if len(self._window) < self._size:
            return None
        own = sum(own_s for own_s, _ in self._window) * 1000 / self._size
        waited = sum(waited_s for _, waited_s in self._window) * 1000 / self._size
        self._window = []
        first = number - self._size + 1
        return f"own time: {self._who}, steps {first} to {number}, {own:.3f} ms each, waiting {waited:.3f} ms"
