"""Bandwidth of a device's own memory."""

from __future__ import annotations

from collections.abc import Iterator

from ..registry import Measured, Place, trial

# Bytes of an array: beyond the last cache of an MI300X (256 MB) and of a server's CPU, and little beside the memory.
BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}


@trial(on="device", figures={"*": "GB/s"}, seconds=1.5)
def memory(place: Place) -> Iterator[Measured]:
    """Measure the bandwidth of the device's memory: copy and triad as STREAM counts them, with checked results."""
    import torch

    count = BYTES[place.kind] // 4
    source = torch.arange(count, device=place.device, dtype=torch.int32).view(torch.float32)
    target = torch.zeros_like(source)
    seconds = place.time_of(lambda: target.copy_(source))
    wrong = int((target.view(torch.int32) != source.view(torch.int32)).sum())
    yield Measured("copy", 2 * 4 * count / seconds / 1e9, wrong)
    one, two = (torch.full_like(target, value) for value in (1.0, 2.0))
    seconds = place.time_of(lambda: torch.add(one, two, alpha=3.0, out=target))
    yield Measured("triad", 3 * 4 * count / seconds / 1e9, int((target != 7.0).sum()))
