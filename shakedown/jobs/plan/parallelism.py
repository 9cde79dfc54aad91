"""How the ranks divide the work (parallel sizes, batches), and whether the memory is enough."""

from dataclasses import dataclass

from shakedown.common.text import counted
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.desired.values import format_size
from shakedown.jobs.launch import Derived
from shakedown.jobs.plan.draft import PlanDraft
from shakedown.recipes.batch import documented, model_parallel
from shakedown.recipes.options import ResolvedOptions
from shakedown.recipes.recipe import Model
from shakedown.state.node import NodeState, is_unreadable


@dataclass(frozen=True)
class Split:
    """World size = tensor x pipeline x context x data parallel; global batch = micro batch x data parallel x steps."""

    world_size: int
    tensor: int
    pipeline: int
    context: int
    data: int
    micro_batch: int
    global_batch: int

    @property
    def micro_batches(self) -> int:
        """Micro batches of each replica in one iteration."""
        return self.global_batch // (self.micro_batch * self.data)


NO_SPLIT = Split(0, 1, 1, 1, 1, 0, 0)
"""Of a program that divides its work itself."""


def split(chosen: ResolvedOptions, world_size: int) -> tuple[Split | None, list[Problem]]:
    """Divide `world_size` ranks. Sets the global batch by the recipe's accumulation steps, unless the site gives it."""
    roles, batch = chosen.recipe.family.role_options, chosen.recipe.family.batch_option
    tensor, pipeline = chosen.role("tensor_parallel"), chosen.role("pipeline_parallel")
    context, micro = chosen.role("context_parallel"), chosen.role("micro_batch")
    ranks = model_parallel(chosen)
    problems = []
    for role, parts, count in (("layers", "pipeline_parallel", pipeline), ("heads", "tensor_parallel", tensor)):
        known = size_of(chosen, role)
        if known and known % count:
            expected = f"a divisor of the model's {known} {role}"
            problems.append(Problem("smoke", f"smoke.options.{roles[parts]}", str(count), expected))
    if context > 1 and chosen.role("seq_length") % (2 * context):
        option, length = roles["seq_length"], chosen.role("seq_length")
        expected = f"a multiple of 2 x context parallel {context}, which Megatron-LM requires"
        problems.append(Problem("smoke", f"smoke.options.{option}", str(length), expected))
    if world_size % ranks:
        shape = f"tensor {tensor} x pipeline {pipeline} x context {context} parallel"
        expected = f"a multiple of {ranks} ({shape})"
        return None, [*problems, Problem("plan", "world_size", str(world_size), expected)]
    expert = chosen.role("expert_parallel")
    if world_size % (tensor * pipeline * expert):
        shape = f"tensor {tensor} x pipeline {pipeline} x expert {expert} parallel"
        expected = f"a multiple of {tensor * pipeline * expert} ({shape})"
        return None, [*problems, Problem("plan", "world_size", str(world_size), expected)]
    data = world_size // ranks
    replica = micro * data
    if batch not in chosen.requested:
        chosen.given[batch] = documented(chosen.recipe).steps * replica
    total = chosen.role("global_batch", otherwise=0)
    if total < replica or total % replica:
        near = " or ".join(str(n * replica) for n in sorted({max(1, total // replica), total // replica + 1}))
        steps = documented(chosen.recipe).steps
        expected = f"a multiple of micro batch {micro} x data parallel {data} = {replica}, such as {near}"
        expected += f"; without {batch} it is {steps * replica} ({counted(steps, 'step')})"
        problems.append(Problem("smoke", f"smoke.options.{batch}", str(total), expected))
    return (None if problems else Split(world_size, tensor, pipeline, context, data, micro, total)), problems


def size_of(chosen: ResolvedOptions, role: str) -> int | None:
    """Return the number of layers or heads: from an option, or from what the family records of the model."""
    option = chosen.recipe.family.role_options.get(role)
    if option:
        value = chosen.value(option)
        return None if value is None else int(value)
    known = [getattr(model, role) for model in chosen.recipe.family.models if chosen.matches(model.when)]
    return known[0] if known else None


# A lower bound, stated, so that a job that can never fit is refused before it starts.
# Megatron's mixed precision keeps 2 bytes of weights and 4 bytes of gradients for each parameter of a rank's share of
# the model, and 12 bytes of optimizer state (FP32 weights, two Adam moments), which its distributed optimizer shards
# over the data parallel ranks. With FSDP all 18 bytes are sharded. Activations and the libraries' own memory come on
# top and are not counted.
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


def memory_needed(
    name: str, chosen: ResolvedOptions, sizes: Split, ranks: int, desired: DesiredState, state: NodeState
) -> tuple[list[Derived], list[Problem]]:
    """Compare the least that is needed with what the node has; what cannot be compared is noted."""
    derived, problems = [], []
    for model in chosen.recipe.family.models:
        if state.gpus == [] or not chosen.matches(model.when):
            continue
        sharded = bool(model.sharded) and chosen.matches(model.sharded)
        least = least_gpu_bytes(model, sizes, sharded)
        vram, source = _vram(desired, state)
        if vram is None:
            derived.append(Derived(name=f"{name}: GPU memory", value="not checked", why="its size is not known"))
        elif least > vram:
            shape = f"TP {sizes.tensor}, PP {sizes.pipeline}, DP {sizes.data}{', sharded' if sharded else ''}"
            expected = f"at least {format_size(least)} for {model.parameters / 1e9:.1f}e9 parameters with {shape}"
            problems.append(Problem(name, "gpus.vram_bytes", format_size(vram), expected))
        else:
            value = f"at least {format_size(least)} of {format_size(vram)}"
            reason = f"weights, gradients and optimizer; activations come on top; size {source}"
            derived.append(Derived(name=f"{name}: GPU memory", value=value, why=reason))
    per_rank = chosen.recipe.family.host_bytes_per_rank
    if per_rank is not None:
        least, free = per_rank * ranks, state.memory.available_bytes
        if least > free:
            expected = f"at least {format_size(least)} for {counted(ranks, 'rank')}"
            problems.append(Problem(name, "memory.available_bytes", format_size(free), expected))
        else:
            value = f"about {format_size(least)} of {format_size(free)} available"
            derived.append(Derived(name=f"{name}: memory", value=value, why=f"{format_size(per_rank)} for each rank"))
    return derived, problems


def _vram(desired: DesiredState, state: NodeState) -> tuple[int | None, str]:
    sizes = [] if is_unreadable(state.gpus) else [gpu.vram_bytes for gpu in state.gpus]
    known = [size for size in sizes if not is_unreadable(size)]
    if known and len(known) == len(sizes):
        return min(known), "as the smallest GPU reports it"
    return desired.gpu.vram_bytes, f"of the profile {desired.gpu.profile}"


def division(draft: PlanDraft, chosen: ResolvedOptions, ranks: int) -> Split | None:
    """Parallel sizes, batches and the room for them."""
    nodes = len(draft.states)
    sizes, problems = split(chosen, nodes * ranks)
    draft.problems += problems
    if sizes is None:
        return None
    draft.note("world size", sizes.world_size, f"{_count(nodes, 'node')} x {_count(ranks, 'rank')}")
    parts = f"tensor {sizes.tensor} x pipeline {sizes.pipeline} x context {sizes.context}"
    draft.note("data parallel", sizes.data, f"world size / ({parts})")
    draft.note("global batch", sizes.global_batch, _batch_reason(chosen, sizes))
    if sizes.tensor > ranks:
        draft.note(
            "tensor parallel",
            sizes.tensor,
            f"more than the {counted(ranks, 'rank')} of a node: layers wait for the network",
        )
    for name, state in draft.states.items():
        draft.add(*memory_needed(name, chosen, sizes, ranks, draft.desired[name], state))
    return sizes


def _batch_reason(chosen: ResolvedOptions, sizes: Split) -> str:
    steps = counted(sizes.micro_batches, "accumulation step")
    product = f"{steps} x micro batch {sizes.micro_batch} x data parallel {sizes.data}"
    option = chosen.recipe.family.batch_option
    if option in chosen.requested:
        return f"as smoke.options.{option} says: {product}; {documented(chosen.recipe).source}"
    return f"{product}, at any size; {documented(chosen.recipe).source}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
