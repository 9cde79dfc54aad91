"""python odd.py TRAIN.PY [ARGUMENT...]: the small GPT, of which one rank goes its own way.

The rank on whose node the file `/root/odd` appears does what it says at its next all-reduce: `loop` (busy in Python),
`another` (a broadcast instead), `shorter` or `longer` (with another number of elements).
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WAY = Path("/root/odd")
_all_reduce = dist.all_reduce


def all_reduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
    """As torch has it, until the file is there."""
    way = WAY.read_text() if WAY.exists() else ""
    if way == "loop":
        while True:
            sum(range(1000))
    if way == "another":
        return dist.broadcast(tensor, dist.get_rank(), options.get("group"), options.get("async_op", False))
    if way in ("shorter", "longer"):
        size = max(tensor.numel() // 2, 1) if way == "shorter" else 2 * tensor.numel()
        return _all_reduce(tensor.new_ones(size), *arguments, **options)
    return _all_reduce(tensor, *arguments, **options)


if __name__ == "__main__":
    dist.all_reduce = all_reduce
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
