"""What Megatron-Core needs in order to run where there is no GPU.

Megatron-Core 0.16 names the device `cuda` outright in its factories, its random states and its optimizer. Here those
names are answered by the CPU. Nothing of it is used where torch.cuda.is_available().
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CudaMeansCpu(TorchFunctionMode):
    """Every torch call that names the device `cuda` gets the CPU instead."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            # Megatron's gradient clipping asserts the type name 'torch.cuda.FloatTensor'.
            return func(*args).replace("torch.", "torch.cuda.", 1)
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def install() -> None:
    """Make this process train on the CPU, for its whole life. Call it before megatron.core is first imported."""
    warnings.filterwarnings("ignore", message=".*(Transformer Engine|Apex).*not installed", category=UserWarning)
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.set_device = lambda device: None
    cuda.synchronize = lambda device=None: None
    cuda.manual_seed = torch.manual_seed
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    # Megatron decorates its fused functions, none of which is called here, with torch.compile: to bring the compiler
    # along is two thirds of what importing megatron.core costs.
    torch.compile = _uncompiled  # type: ignore[assignment]

    from megatron.core.tensor_parallel import random

    random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    mode: Any = CudaMeansCpu()
    mode.__enter__()


def _uncompiled(function: Callable[..., Any] | None = None, **_options: object) -> Callable[..., Any]:
    """torch.compile's two forms, as a call and as a decorator with options, which leave the function as it is."""
    return function if function is not None else _uncompiled
