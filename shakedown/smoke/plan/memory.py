"""Is there room? A lower bound, stated, so that a job that can never fit is refused before it starts.

Megatron's mixed precision keeps 2 bytes of weights and 4 bytes of gradients for each parameter of a rank's share of
the model, and 12 bytes of optimizer state (FP32 weights, two Adam moments), which its distributed optimizer shards
over the data parallel ranks. With FSDP all 18 bytes are sharded. Activations and the libraries' own memory come on
top and are not counted.
"""

from __future__ import annotations

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.desired.sizes import format_size
from shakedown.smoke.launch import Derived
from shakedown.smoke.options import Chosen
from shakedown.smoke.plan.batch import Split
from shakedown.smoke.recipe import Model
from shakedown.state import NodeState, is_unreadable

WEIGHTS_AND_GRADIENTS = 6  # bytes for each parameter
OPTIMIZER = 12


def least_gpu_bytes(model: Model, sizes: Split, sharded: bool) -> float:
    """Bytes of weights, gradients and optimizer state on one GPU."""
    share = model.parameters - model.expert_parameters * (1 - 1 / model.expert_parallel)
    share /= sizes.tensor * sizes.pipeline
    replicas = sizes.data * sizes.context
    resident = WEIGHTS_AND_GRADIENTS / (replicas if sharded else 1)
    # Experts are held by 1/expert_parallel of the ranks, so their optimizer state is sharded over fewer replicas: what
    # is counted here is less than what is needed.
    return share * (resident + OPTIMIZER / replicas)


def room(
    name: str, chosen: Chosen, sizes: Split, ranks: int, desired: DesiredState, state: NodeState
) -> tuple[list[Derived], list[Problem]]:
    """Compare the least that is needed with what the node has; what cannot be compared is told."""
    told, problems = [], []
    for model in chosen.recipe.family.models:
        if state.gpus == [] or not chosen.matches(model.when):
            continue
        sharded = bool(model.sharded) and chosen.matches(model.sharded)
        least = least_gpu_bytes(model, sizes, sharded)
        vram, source = _vram(desired, state)
        if vram is None:
            told.append(Derived(name=f"{name}: GPU memory", value="not checked", why="its size is not known"))
        elif least > vram:
            shape = f"TP {sizes.tensor}, PP {sizes.pipeline}, DP {sizes.data}{', sharded' if sharded else ''}"
            expected = f"at least {format_size(least)} for {model.parameters / 1e9:.1f}e9 parameters with {shape}"
            problems.append(Problem(name, "gpus.vram_bytes", format_size(vram), expected))
        else:
            value = f"at least {format_size(least)} of {format_size(vram)}"
            why = f"weights, gradients and optimizer; activations come on top; size {source}"
            told.append(Derived(name=f"{name}: GPU memory", value=value, why=why))
    per_rank = chosen.recipe.family.host_bytes_per_rank
    if per_rank is not None:
        least, free = per_rank * ranks, state.memory.available_bytes
        if least > free:
            expected = f"at least {format_size(least)} for {ranks} ranks"
            problems.append(Problem(name, "memory.available_bytes", format_size(free), expected))
        else:
            value = f"about {format_size(least)} of {format_size(free)} available"
            told.append(Derived(name=f"{name}: memory", value=value, why=f"{format_size(per_rank)} for each rank"))
    return told, problems


def _vram(desired: DesiredState, state: NodeState) -> tuple[int | None, str]:
    sizes = [] if is_unreadable(state.gpus) else [gpu.vram_bytes for gpu in state.gpus]
    known = [size for size in sizes if not is_unreadable(size)]
    if known and len(known) == len(sizes):
        return min(known), "as the smallest GPU reports it"
    return desired.gpu.vram_bytes, f"of the profile {desired.gpu.profile}"
