"""A checkpoint in the middle of a training: every rank saves its state, drops it, and reads it back into a new model.

The two lines are in Megatron's form, so that a log of this program and one of Megatron's are read alike.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from .report import say

if TYPE_CHECKING:
    from .trainer import Trainer


def resumed(trainer: Trainer, number: int) -> Trainer:
    """Save after an iteration, and return a trainer with new weights and a new optimizer that goes on from the file."""
    kind, arguments, device = type(trainer), trainer.arguments, trainer.device
    is_last_rank = dist.get_rank() == dist.get_world_size() - 1
    with tempfile.TemporaryDirectory(prefix="shakedown-checkpoint-") as folder:
        path = Path(folder) / "state.pt"
        _save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, path)
        dist.barrier()
        if is_last_rank:
            say(f"  successfully saved checkpoint from iteration {number:7d} to {folder}")
        del trainer
        fresh = kind(arguments, device)
        state = torch.load(path, map_location=device, weights_only=False)  # this rank wrote the file
        fresh.model.load_state_dict(state["model"])
        fresh.optimizer.load_state_dict(state["optimizer"])
        for _ in range(number * arguments.micro_batches(fresh.world_size)):
            next(fresh.batches)
        dist.barrier()
        if is_last_rank:
            say(f"  successfully loaded checkpoint from {folder} at iteration {number}")
    return fresh


def _save(state: object, path: Path) -> None:
    """Write to the disk itself: a checkpoint that only the page cache holds proves no storage."""
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
