"""The command line of the workload, in Megatron's names, and what has to fit together before anything starts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

_OTHER_RULES = ("lr", "seed", "samples", "ffn_hidden_size", "fp16", "initial_loss_scale", "log_straggler", "resume_at")


@dataclass(frozen=True)
class Arguments:
    """Sizes of the model and of the job. The defaults train in seconds on two CPU cores."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batch_size: int = 4
    global_batch_size: int = 16
    seq_length: int = 128
    hidden_size: int = 128
    ffn_hidden_size: int = 0  # 0: Megatron's rule for gated MLPs, 4h * 2/3 in multiples of 64
    num_layers: int = 4
    num_attention_heads: int = 4
    vocab_size: int = 256
    train_iters: int = 20
    lr: float = 2e-3
    seed: int = 1234
    samples: int = 0  # sequences in the mock data, taken again when they are used up; 0: no end of them
    fp16: bool = False  # half precision with dynamic loss scaling, in place of bf16 (GPU) or fp32 (CPU)
    initial_loss_scale: float = 2.0**32  # Megatron's defaults, from here
    min_loss_scale: float = 1.0
    loss_scale_window: int = 1000
    hysteresis: int = 2  # overflows in a row before the scale falls for the first time
    log_straggler: bool = False  # every rank prints its own time; on CPUs
    resume_at: int = 0  # iteration after which the ranks save their state, drop it and read it back; 0: none
    resume_rtol: float = 0.05  # by how much of itself the loss may grow then, as CVS has it (ROCm/cvs at 01b906e8)
    distributed_timeout_minutes: float = 10.0

    @property
    def ffn_size(self) -> int:
        return self.ffn_hidden_size or max(64, self.hidden_size * 8 // 3 // 64 * 64)

    @property
    def flops(self) -> int:
        """Model FLOPs of forward and backward for the sequences of one iteration.

        The formula is that of num_floating_point_operations() in megatron/training/training.py of NVIDIA/Megatron-LM
        (core 0.16, the dense transformer without grouped queries); megatron.core itself has none. It counts the matrix
        products alone, 2mnk each, three times (forward, gradient of the data, gradient of the weights), and of the
        attention scores only the half that the causal mask leaves. Recomputation is not counted.
        """
        hidden = self.hidden_size
        qkv = 3 * hidden * hidden
        scores = self.seq_length * hidden  # two products (QK^T and its product with V), half of each masked
        projection = hidden * hidden
        gated_mlp = 3 * hidden * self.ffn_size
        per_token = 3 * 2 * (self.num_layers * (qkv + scores + projection + gated_mlp) + hidden * self.vocab_size)
        return self.global_batch_size * self.seq_length * per_token

    def data_parallel(self, world_size: int) -> int:
        """Return the number of data-parallel replicas among `world_size` ranks."""
        return world_size // (self.tensor_parallel * self.pipeline_parallel)

    def micro_batches(self, world_size: int) -> int:
        """Micro batches of each replica in one iteration."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel(world_size))

    def errors(self, world_size: int) -> list[str]:
        """Everything that does not fit, each with the arguments that it is about; empty when all fits."""
        sizes = [f for f in fields(self) if f.name not in _OTHER_RULES]
        small = [f"{flag(f.name)}: {getattr(self, f.name)} is not above 0" for f in sizes if getattr(self, f.name) <= 0]
        if not 0 < self.lr < float("inf"):
            small.append(f"--lr: {self.lr} is not a finite number above 0")
        if not self.min_loss_scale <= self.initial_loss_scale <= 2.0**126:
            least = f"--min-loss-scale {self.min_loss_scale:g}"
            small.append(f"--initial-loss-scale: {self.initial_loss_scale:g} is not between {least} and 2^126")
        if not 0 <= self.resume_at < self.train_iters:
            most = f"{self.train_iters - 1}, before the last of --train-iters {self.train_iters}"
            small.append(f"--resume-at: {self.resume_at} is not between 1 and {most}")
        if self.ffn_hidden_size < 0 or self.seed < 0 or self.samples < 0:
            small.append("--ffn-hidden-size, --seed, --samples: must not be below 0")
        if small:
            return small
        model_parallel = self.tensor_parallel * self.pipeline_parallel
        rules = [
            ("world size", world_size, "--tensor-parallel x --pipeline-parallel", model_parallel),
            ("--num-attention-heads", self.num_attention_heads, "--tensor-parallel", self.tensor_parallel),
            ("--vocab-size", self.vocab_size, "--tensor-parallel", self.tensor_parallel),
            ("the MLP's width (--ffn-hidden-size)", self.ffn_size, "--tensor-parallel", self.tensor_parallel),
            ("--num-layers", self.num_layers, "--pipeline-parallel", self.pipeline_parallel),
            # Twice: rotary position embedding turns pairs.
            ("--hidden-size", self.hidden_size, "2 x --num-attention-heads", 2 * self.num_attention_heads),
        ]
        if world_size % model_parallel == 0:
            samples = self.micro_batch_size * self.data_parallel(world_size)
            rules.append(("--global-batch-size", self.global_batch_size, "--micro-batch-size x data parallel", samples))
        wrong = [rule for rule in rules if rule[1] % rule[3]]
        return [f"{name}: {value} is not divisible by {other} = {divisor}" for name, value, other, divisor in wrong]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def parser() -> argparse.ArgumentParser:
    """One flag per field of Arguments; those that are on or off take no value."""
    made = argparse.ArgumentParser(description="Train a small Megatron-Core GPT on mock data, under torchrun.")
    for field in fields(Arguments):
        if (kind := type(field.default)) is bool:
            made.add_argument(flag(field.name), action="store_true")
            continue
        made.add_argument(flag(field.name), type=kind, default=field.default, metavar=kind.__name__.upper())
    return made
