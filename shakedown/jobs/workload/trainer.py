"""The training loop of one rank: Megatron's pipeline schedule, data parallelism and optimizer on the mock data.

A checkpoint in the middle is in Megatron's form, so that a log of this program and one of Megatron's are read alike.
Import this only after cpu.install() where there is no GPU, since it imports megatron.core.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import megatron.core
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func

from .arguments import Arguments
from .data import MockData
from .model import build, seed_everything
from .report import Iteration, OwnTime, memory_fraction, say, summary


def loss_of(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Mean cross entropy of one micro batch, for the backward pass and for the log. The log's is a copy, since the
    schedule divides the other in place by the number of micro batches."""
    loss = output.float().mean()
    return loss, {"lm loss": loss.detach().clone()}


def forward_step(batches: Iterator[torch.Tensor], model: Any) -> tuple[torch.Tensor, Any]:
    """One micro batch through this rank's stage, in the form that Megatron's pipeline schedules call."""
    tokens = next(batches)
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device).expand(tokens.shape[0], -1)
    output = model(tokens[:, :-1].contiguous(), positions, None, labels=tokens[:, 1:].contiguous())
    return output, loss_of


class Trainer:
    """The model, its optimizer and its data on one rank."""

    def __init__(self, arguments: Arguments, device: torch.device) -> None:
        self.arguments, self.device, self.world_size = arguments, device, dist.get_world_size()
        rank = dist.get_rank()
        measured = arguments.log_straggler and device.type == "cpu"
        self.own_time = OwnTime(rank, self.world_size, arguments.train_iters) if measured else None
        seed_everything(arguments.seed)
        self.model, self.optimizer = build(arguments, device)
        self.dtype = next(self.model.parameters()).dtype
        self.is_last_stage = parallel_state.is_pipeline_last_stage()
        self.data_parallel_group = parallel_state.get_data_parallel_group()
        data = MockData(arguments.vocab_size, arguments.seq_length, arguments.seed, count=arguments.samples)
        replica = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
        self.batches = data.micro_batches(arguments.micro_batch_size, *replica, device)
        self.forward_backward = partial(
            get_forward_backward_func(),
            forward_step_func=forward_step,
            data_iterator=self.batches,
            model=self.model,
            num_microbatches=arguments.micro_batches(self.world_size),
            seq_length=arguments.seq_length,
            micro_batch_size=arguments.micro_batch_size,
            forward_only=False,
        )

    def mean_loss(self, micro_batches: list[dict[str, torch.Tensor]]) -> float:
        """Mean over micro batches and data-parallel ranks; NaN on stages that do not compute the loss."""
        if not self.is_last_stage:
            return float("nan")
        loss = torch.stack([output["lm loss"] for output in micro_batches]).mean()
        dist.all_reduce(loss, group=self.data_parallel_group)
        return float(loss) / dist.get_world_size(self.data_parallel_group)

    def step(self, number: int) -> Iteration:
        """One iteration, timed from here to the barrier after it."""
        waited = self.own_time.waited if self.own_time else 0.0
        started = time.perf_counter()
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        micro_batches = self.forward_backward()
        updated, grad_norm, _ = self.optimizer.step()
        loss = self.mean_loss(micro_batches)
        torch.cuda.synchronize()
        dist.barrier()
        elapsed_ms = (time.perf_counter() - started) * 1000
        if self.own_time:
            line = self.own_time.iteration(number, elapsed_ms / 1000, self.own_time.waited - waited)
            if line:
                say(line)
        return Iteration(
            number=number,
            total=self.arguments.train_iters,
            global_batch_size=self.arguments.global_batch_size,
            seq_length=self.arguments.seq_length,
            world_size=self.world_size,
            elapsed_ms=elapsed_ms,
            flops=self.arguments.flops,
            memory_fraction=memory_fraction(self.device),
            learning_rate=max(group["lr"] for group in self.optimizer.param_groups),
            lm_loss=loss,
            loss_scale=float(self.optimizer.get_loss_scale()),
            grad_norm=None if grad_norm is None else float(grad_norm),
            skipped=0 if updated else 1,
            nan=0 if abs(loss) < float("inf") else 1,
        )


def resumed(trainer: Trainer, number: int) -> Trainer:
    """Save after an iteration, and return a trainer with new weights and a new optimizer that goes on from the file."""
    arguments, device = trainer.arguments, trainer.device
    is_last_rank = dist.get_rank() == dist.get_world_size() - 1
    with tempfile.TemporaryDirectory(prefix="shakedown-checkpoint-") as folder:
        path = Path(folder) / "state.pt"
        _save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, path)
        dist.barrier()
        if is_last_rank:
            say(f"  successfully saved checkpoint from iteration {number:7d} to {folder}")
        del trainer
        fresh = Trainer(arguments, device)
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


def train(arguments: Arguments, device: torch.device) -> None:
    """All iterations, in process groups that stand when this is called."""
    trainer = Trainer(arguments, device)
    is_last_rank = dist.get_rank() == dist.get_world_size() - 1
    if is_last_rank:
        say(
            f"megatron-core {megatron.core.__version__}, torch {torch.__version__},"
            f" {dist.get_backend()} on {device.type}, {str(trainer.dtype).removeprefix('torch.')};"
            f" world size {trainer.world_size} = TP {arguments.tensor_parallel} x PP {arguments.pipeline_parallel}"
            f" x DP {arguments.data_parallel(trainer.world_size)};"
            f" {arguments.micro_batches(trainer.world_size)} micro batches of {arguments.micro_batch_size}"
        )
    dist.barrier()
    iterations = []
    for number in range(1, arguments.train_iters + 1):
        iterations.append(trainer.step(number))
        if is_last_rank:
            say(iterations[-1].line(datetime.now()))
        if number == arguments.resume_at:
            trainer = resumed(trainer, number)
    if is_last_rank:
        say("\n".join(summary(iterations)))
