"""Collectives inside a node."""

from __future__ import annotations

from collections.abc import Iterator

from ..registry import Measured, Place, trial

SIZES = {"cuda": {"1M": 1 << 20, "64M": 1 << 26, "1G": 1 << 30}, "cpu": {"64K": 1 << 16, "4M": 1 << 22}}


@trial(on="node", figures={"*": "GB/s"}, seconds=3)
def collectives(place: Place) -> Iterator[Measured]:
    """Measure all-reduce and all-to-all over all devices of a node, for small, middle and large messages, and check
    the results.

    Bus bandwidth as nccl-tests define it (PERFORMANCE.md): 2(n-1)/n of the message in the time of an all-reduce,
    (n-1)/n in that of an all-to-all.
    """
    import torch
    import torch.distributed as dist

    n = place.ranks
    for name, size in SIZES[place.kind].items():
        count = size // 4 // n * n
        data = torch.full((count,), float(place.rank + 1), device=place.device)
        dist.all_reduce(data)
        wrong = int((data != n * (n + 1) / 2).sum())
        data.zero_()
        seconds = place.time_of(lambda: dist.all_reduce(data))  # noqa: B023
        yield Measured(f"all_reduce.{name}", 4 * count * 2 * (n - 1) / n / seconds / 1e9, wrong)
        parts = torch.full((count,), float(place.rank), device=place.device)
        found = torch.empty_like(parts)
        dist.all_to_all_single(found, parts)
        wanted = torch.arange(n, device=place.device, dtype=torch.float32).repeat_interleave(count // n)
        wrong = int((found != wanted).sum())
        seconds = place.time_of(lambda: dist.all_to_all_single(found, parts))  # noqa: B023
        yield Measured(f"all_to_all.{name}", 4 * count * (n - 1) / n / seconds / 1e9, wrong)
