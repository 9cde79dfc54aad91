"""From the host's memory to a GPU and back."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..registry import Measured, Place, trial

BYTES = 1 << 28


@trial(on="device", figures={"*": "GB/s"}, seconds=2, needs_gpu=True)
def transfer(place: Place) -> Iterator[Measured]:
    """Copy between pinned memory of each NUMA node and the GPU, there and back, with checked results."""
    import torch

    all_cpus = os.sched_getaffinity(0)
    pattern = torch.arange(BYTES // 4, dtype=torch.int32)
    for node, cpus in place.numa.items():
        os.sched_setaffinity(0, cpus)  # the kernel takes memory from the node whose core writes it first
        try:
            there, back = pattern.pin_memory(), torch.zeros_like(pattern).pin_memory()
            device = torch.empty(BYTES // 4, dtype=torch.int32, device=place.device)
            seconds = place.time_of(lambda: device.copy_(there, non_blocking=True))  # noqa: B023
            yield Measured(f"to_device.{node}", BYTES / seconds / 1e9)
            seconds = place.time_of(lambda: back.copy_(device, non_blocking=True))  # noqa: B023
            yield Measured(f"to_host.{node}", BYTES / seconds / 1e9, int((back != pattern).sum()))
        finally:
            os.sched_setaffinity(0, all_cpus)
