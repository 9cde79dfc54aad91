"""Matrix products."""

from __future__ import annotations

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
    """Count the wrong rows of a product.

    The factors hold -1, 0 and 1 alone, one in eight of the first is not 0: every sum stays below 256, which each of the
    data types holds exactly, so whatever the order of the additions there is one right result. It is compared on the
    host by Freivalds' method, with two vectors of -1 and 1: a row with one wrong element never passes.
    """
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
