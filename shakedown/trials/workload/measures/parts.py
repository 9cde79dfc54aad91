"""Parts of a node, measured in torch: matrix products, memory, the host, transfers and collectives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..registry import Measured, Place, trial

if TYPE_CHECKING:
    import torch


# Square products. 8192 is the size of AMD's own preflight on a GPU (Primus, node_smoke/per_gpu.py, 2026-08). A CPU's
# size fits its caches, so that the figure shows the cores and not the memory.
SIZE = {"cuda": 8192, "cpu": 512}
TYPES = {"cuda": ("fp32", "bf16", "fp16", "fp8"), "cpu": ("fp32", "bf16")}


@trial(on="device", figures={"*": "TFLOPS"}, seconds=2.5)
def gemm(place: Place) -> Iterator[Measured]:
    """Multiply matrices of each data type, and compare with a result that is known beforehand, bit for bit."""
    for name in TYPES[place.kind]:
        yield _measure_type(place, name, SIZE[place.kind])


def _measure_type(place: Place, name: str, size: int) -> Measured:
    import torch

    multiply, dtype = _multiply(place, name)
    if multiply is None:
        return Measured(name, float("nan"), note="this device or this torch has no such product")
    torch.manual_seed(size)
    left, right = (torch.randn(size, size, device=place.device, dtype=torch.float32).to(dtype) for _ in range(2))
    if name == "fp8":
        right = right.t()  # the product wants its second matrix by columns
    first = multiply(left, right).clone()
    seconds = place.time_of(lambda: multiply(left, right))
    same = torch.equal(first, multiply(left, right))
    note = "" if same else "the same product of random numbers gave other bits: its algorithm has no fixed order"
    return Measured(name, 2 * size**3 / seconds / 1e12, wrong_rows(place, multiply, dtype, size, name == "fp8"), note)


def _multiply(place: Place, name: str) -> tuple[Callable[..., Any] | None, Any]:
    import torch

    if name != "fp8":
        return torch.matmul, {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    one = torch.ones((), device=place.device)
    # CDNA3 has the "fnuz" encoding of FP8, CDNA4 the one of the Open Compute Project: only its own multiplies.
    for dtype in (getattr(torch, encoding, None) for encoding in ("float8_e4m3fnuz", "float8_e4m3fn")):
        if dtype is None:
            continue

        def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        small = torch.ones(64, 64, device=place.device).to(dtype)
        try:
            multiply(small, small.t())
        except (RuntimeError, ValueError):
            continue
        return multiply, dtype
    return None, None


def wrong_rows(place: Place, multiply: Callable[..., Any], dtype: Any, size: int, columns: bool = False) -> int:
    """Count the wrong rows of a product, by Freivalds' method on the host: a row with a wrong element never passes. The
    factors hold -1, 0 and 1, and one in eight of the first is not 0: every sum stays below 256, exact in each data type
    in any order."""
    import torch

    random = torch.Generator().manual_seed(size)
    left = torch.randint(-1, 2, (size, size), generator=random, dtype=torch.int8)
    left *= torch.randint(0, 8, (size, size), generator=random, dtype=torch.int8) == 0
    right = torch.randint(-1, 2, (size, size), generator=random, dtype=torch.int8)
    vectors = torch.randint(0, 2, (size, 2), generator=random, dtype=torch.int8).float() * 2 - 1
    factors = [matrix.to(place.device).to(torch.float32).to(dtype) for matrix in (left, right)]
    if columns:
        factors[1] = factors[1].t().contiguous().t()
    found = multiply(*factors).float().cpu() @ vectors
    wanted = left.float() @ (right.float() @ vectors)
    return int((found != wanted).any(dim=1).sum())


# Bytes of an array: beyond the last cache of an MI300X (256 MB) and of a server's CPU, and little beside the memory.
MEMORY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}


@trial(on="device", figures={"*": "GB/s"}, seconds=1.5)
def memory(place: Place) -> Iterator[Measured]:
    """Measure the bandwidth of the device's memory: copy and triad as STREAM counts them, with checked results."""
    import torch

    count = MEMORY_BYTES[place.kind] // 4
    source = torch.arange(count, device=place.device, dtype=torch.int32).view(torch.float32)
    target = torch.zeros_like(source)
    seconds = place.time_of(lambda: target.copy_(source))
    wrong = int((target.view(torch.int32) != source.view(torch.int32)).sum())
    yield Measured("copy", 2 * 4 * count / seconds / 1e9, wrong)
    one, two = (torch.full_like(target, value) for value in (1.0, 2.0))
    seconds = place.time_of(lambda: torch.add(one, two, alpha=3.0, out=target))
    yield Measured("triad", 3 * 4 * count / seconds / 1e9, int((target != 7.0).sum()))


HOST_SIZE = 1024
HOST_BYTES = 1 << 28  # of an array: beyond the last cache of a socket with stacked cache


@trial(on="host", figures={"fp32": "TFLOPS", "copy": "GB/s"}, seconds=1.5)
def host(place: Place) -> Iterator[Measured]:
    """Measure the cores and the memory of each NUMA node: FP32 products, and copies by its cores in its memory."""
    import torch

    left, right = (torch.randn(HOST_SIZE, HOST_SIZE) for _ in range(2))
    seconds = place.time_of(lambda: left @ right)
    wrong = wrong_rows(place, torch.matmul, torch.float32, HOST_SIZE)
    yield Measured("fp32", 2 * HOST_SIZE**3 / seconds / 1e12, wrong)
    source = torch.arange(HOST_BYTES // 4, dtype=torch.int32)
    target = torch.zeros_like(source)
    seconds = place.time_of(lambda: target.copy_(source))
    yield Measured("copy", 2 * HOST_BYTES / seconds / 1e9, int((target != source).sum()))


TRANSFER_BYTES = 1 << 28


@trial(on="device", figures={"*": "GB/s"}, seconds=2, needs_gpu=True)
def transfer(place: Place) -> Iterator[Measured]:
    """Copy between pinned memory of each NUMA node and the GPU, there and back, with checked results."""
    import torch

    all_cpus = os.sched_getaffinity(0)
    pattern = torch.arange(TRANSFER_BYTES // 4, dtype=torch.int32)
    for node, cpus in place.numa.items():
        os.sched_setaffinity(0, cpus)  # the kernel takes memory from the node whose core writes it first
        try:
            there, back = pattern.pin_memory(), torch.zeros_like(pattern).pin_memory()
            device = torch.empty(TRANSFER_BYTES // 4, dtype=torch.int32, device=place.device)
            seconds = place.time_of(lambda: device.copy_(there, non_blocking=True))  # noqa: B023
            yield Measured(f"to_device.{node}", TRANSFER_BYTES / seconds / 1e9)
            seconds = place.time_of(lambda: back.copy_(device, non_blocking=True))  # noqa: B023
            yield Measured(f"to_host.{node}", TRANSFER_BYTES / seconds / 1e9, int((back != pattern).sum()))
        finally:
            os.sched_setaffinity(0, all_cpus)


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
