"""The host's processors and memory."""

from __future__ import annotations

from collections.abc import Iterator

from ..registry import Measured, Place, trial
from .gemm import wrong_rows

SIZE = 1024
BYTES = 1 << 28  # of an array: beyond the last cache of a socket with stacked cache


@trial(on="host", figures={"fp32": "TFLOPS", "copy": "GB/s"}, seconds=1.5)
def host(place: Place) -> Iterator[Measured]:
    """Measure the cores and the memory of each NUMA node: FP32 products, and copies by its cores in its memory."""
    import torch

    left, right = (torch.randn(SIZE, SIZE) for _ in range(2))
    seconds = place.time_of(lambda: left @ right)
    wrong = wrong_rows(place, torch.matmul, torch.float32, SIZE)
    yield Measured("fp32", 2 * SIZE**3 / seconds / 1e12, wrong)
    source = torch.arange(BYTES // 4, dtype=torch.int32)
    target = torch.zeros_like(source)
    seconds = place.time_of(lambda: target.copy_(source))
    yield Measured("copy", 2 * BYTES / seconds / 1e9, int((target != source).sum()))
