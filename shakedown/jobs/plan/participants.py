"""Who takes part, how the ranks divide the work, and whether recipe and memory are made for so many nodes and GPUs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shakedown.common.lists import grouped
from shakedown.common.text import counted, ranges
from shakedown.desired.models import DesiredState, Smoke
from shakedown.desired.problems import Problem
from shakedown.desired.values import format_size
from shakedown.hosts import few
from shakedown.jobs.plan.draft import PlanDraft
from shakedown.jobs.plan.environment import chosen_gpus
from shakedown.recipes.options import ResolvedOptions, documented, model_parallel
from shakedown.recipes.recipe import Model, Recipe
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
    if option := chosen.recipe.family.role_options.get(role):
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


def _check_memory(draft: PlanDraft, name: str, chosen: ResolvedOptions, sizes: Split, ranks: int) -> None:
    """Compare the least that is needed with what the node has; what cannot be compared is noted."""
    desired, state = draft.desired[name], draft.states[name]
    vram, source = desired.gpu.vram_bytes, f"of the profile {desired.gpu.profile}"
    gpus = [] if is_unreadable(state.gpus) else [gpu.vram_bytes for gpu in state.gpus]
    known = [size for size in gpus if not is_unreadable(size)]
    if known and len(known) == len(gpus):
        vram, source = min(known), "as the smallest GPU reports it"
    for model in chosen.recipe.family.models:
        if state.gpus == [] or not chosen.matches(model.when):
            continue
        sharded = bool(model.sharded) and chosen.matches(model.sharded)
        least = least_gpu_bytes(model, sizes, sharded)
        if vram is None:
            draft.note(f"{name}: GPU memory", "not checked", "its size is not known")
        elif least > vram:
            shape = f"TP {sizes.tensor}, PP {sizes.pipeline}, DP {sizes.data}{', sharded' if sharded else ''}"
            expected = f"at least {format_size(least)} for {model.parameters / 1e9:.1f}e9 parameters with {shape}"
            draft.refuse(name, "gpus.vram_bytes", format_size(vram), expected)
        else:
            value = f"at least {format_size(least)} of {format_size(vram)}"
            reason = f"weights, gradients and optimizer; activations come on top; size {source}"
            draft.note(f"{name}: GPU memory", value, reason)
    if (per_rank := chosen.recipe.family.host_bytes_per_rank) is not None:
        least, free = per_rank * ranks, state.memory.available_bytes
        if least > free:
            expected = f"at least {format_size(least)} for {counted(ranks, 'rank')}"
            draft.refuse(name, "memory.available_bytes", format_size(free), expected)
        else:
            value = f"about {format_size(least)} of {format_size(free)} available"
            draft.note(f"{name}: memory", value, f"{format_size(per_rank)} for each rank")


def division(draft: PlanDraft, chosen: ResolvedOptions, ranks: int) -> Split | None:
    nodes = len(draft.states)
    sizes, problems = split(chosen, nodes * ranks)
    draft.problems += problems
    if sizes is None:
        return None
    draft.note("world size", sizes.world_size, f"{counted(nodes, 'node')} x {counted(ranks, 'rank')}")
    parts = f"tensor {sizes.tensor} x pipeline {sizes.pipeline} x context {sizes.context}"
    draft.note("data parallel", sizes.data, f"world size / ({parts})")
    draft.note("global batch", sizes.global_batch, _batch_reason(chosen, sizes))
    unit = math.lcm(model_parallel(chosen), sizes.tensor * sizes.pipeline * chosen.role("expert_parallel"))
    least = draft.smoke.min_nodes or nodes
    if fit_not := [count for count in range(least, nodes) if count * ranks % unit]:
        reason = f"no job fits {ranges(fit_not)} nodes: the parallel sizes need a multiple of {unit} ranks"
        draft.note("warning: min_nodes", least, reason)
    if sizes.tensor > ranks:
        reason = f"more than the {counted(ranks, 'rank')} of a node: layers wait for the network"
        draft.note("tensor parallel", sizes.tensor, reason)
    for name in draft.states:
        _check_memory(draft, name, chosen, sizes, ranks)
    return sizes


def _batch_reason(chosen: ResolvedOptions, sizes: Split) -> str:
    steps = counted(sizes.micro_batches, "accumulation step")
    product = f"{steps} x micro batch {sizes.micro_batch} x data parallel {sizes.data}"
    if (option := chosen.recipe.family.batch_option) in chosen.requested:
        return f"as smoke.options.{option} says: {product}; {documented(chosen.recipe).source}"
    return f"{product}, at any size; {documented(chosen.recipe).source}"


# What may differ from node to node: each is about that node alone.
OWN = ("interface", "venv", "volumes", "devices")


def participants(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    missing: Mapping[str, str],
    alone: str | None = None,
) -> tuple[list[str], list[Problem]]:
    """Return the nodes that are ready, or of them the one that is to train `alone`; and problems, where they may not
    start without the others. A single-node job waits only for the least number of nodes."""
    present = [name for name in (desired if alone is None else [alone]) if name not in missing]
    names = [name for name in present if name in states]
    problems = [Problem(name, "state", "nothing", "a node state") for name in present if name not in states]
    smoke = next((own.smoke for own in desired.values()), None)
    least, seen = (smoke.min_nodes, smoke.seen_nodes) if smoke else (None, None)
    count = len(desired)
    alike = grouped((reason, name) for name, reason in missing.items())
    who = "; ".join(f"{few(absent)}: {reason}" for reason, absent in alike.items()) or "no node is missing"
    if alone is not None and alone in missing:
        problems.append(Problem(alone, "state", missing[alone], "a node that is fit to train"))
    elif not desired:
        expected = "at least one node with a section smoke, as {'recipe': 'gpt-small'}, that is not left out"
        problems.append(Problem("plan", "nodes", "0", expected))
    elif alone is None and missing and least is None:
        expected = f"{'the node' if count == 1 else f'all {count} nodes'}, since min_nodes is not set ({who})"
        problems.append(Problem("plan", "nodes", str(len(names)), expected))
    elif alone is None and least is not None and len(names) < least:
        problems.append(Problem("plan", "nodes", str(len(names)), f"at least min_nodes = {least} ({who})"))
    if seen is not None and count < seen:
        problems.append(Problem("plan", "nodes", str(count), f"at least seen_nodes = {seen} in the inventory"))
    return names, problems


def same_smoke(smokes: Mapping[str, Smoke]) -> list[Problem]:
    (first, reference), *others = smokes.items()
    problems = []
    for name, smoke in others:
        for key in Smoke.model_fields:
            mine, wanted = getattr(smoke, key), getattr(reference, key)
            if key not in OWN and mine != wanted:
                problems.append(Problem(name, f"smoke.{key}", repr(mine), f"{wanted!r} as on {first}"))
    return problems


def ranks_of(desired: DesiredState, smoke: Smoke, recipe: Recipe) -> int | None:
    """Return the ranks on a node that is as it should be; None: one for each GPU, and there are to be none."""
    gpus, _ = chosen_gpus(smoke.environment)
    return (len(gpus) if gpus else None) or smoke.ranks_per_node or recipe.ranks_per_node or desired.gpu.count or None


def ranks_per_node(draft: PlanDraft) -> int | None:
    """As asked for, as the recipe says, or one for each GPU; the same everywhere."""
    smoke, recipe = draft.smoke, draft.recipe
    counts = {name: None if is_unreadable(state.gpus) else len(state.gpus) for name, state in draft.states.items()}
    gpus, _ = chosen_gpus(smoke.environment)
    requested = smoke.ranks_per_node or recipe.ranks_per_node
    if gpus is not None:
        for name, count in counts.items():
            if count is not None and max(gpus) >= count:
                draft.refuse(name, "gpus", count, f"at least {max(gpus) + 1}: GPU {max(gpus)} was chosen")
        ranks, reason = len(gpus), f"one for each of the GPUs {','.join(map(str, gpus))}"
    elif requested is None:
        for name, count in counts.items():
            if not count:
                actual = draft.states[name].gpus if count is None else 0
                draft.refuse(name, "gpus", actual, "GPUs, one for each rank, or smoke.ranks_per_node")
        if len(set(counts.values())) > 1 and all(counts.values()):
            shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
            draft.refuse("plan", "gpus", shown, "the same number on every node, or smoke.ranks_per_node")
        ranks, reason = min(count or 0 for count in counts.values()), "one for each GPU"
    else:
        ranks, reason = requested, "as the desired state says" if smoke.ranks_per_node else f"as {recipe.name} says"
        for name, count in counts.items():
            if count and count < ranks:
                draft.refuse(name, "gpus", count, f"at least {ranks}, one for each rank")
    limits = recipe.family.limits
    if ranks and limits is not None and limits.ranks_per_node not in (None, ranks):
        draft.refuse("smoke", "smoke.ranks_per_node", ranks, f"{limits.ranks_per_node}: {limits.why}")
    draft.note("ranks per node", ranks, reason)
    return ranks or None


def node_count(draft: PlanDraft) -> None:
    """Where the program ends, and for how many nodes the recipe was documented."""
    count, limits, described = len(draft.states), draft.recipe.family.limits, draft.recipe.entry.nodes
    if limits and limits.max_nodes is not None and count > limits.max_nodes:
        draft.refuse("plan", "nodes", count, f"at most {limits.max_nodes} with {draft.recipe.name}: {limits.why}")
    elif described not in (None, count):
        draft.note("nodes", count, f"{draft.recipe.document} describes {draft.recipe.name} for {described}")


def supported_gpus(draft: PlanDraft) -> None:
    limits = draft.recipe.family.limits
    if limits is None or not limits.gpus:
        return
    for name, desired in draft.desired.items():
        if (model := desired.gpu.profile) in limits.partial_gpus:
            draft.note(f"{name}: warning", model, f"supported in part: {limits.why}")
        elif model not in limits.gpus:
            supported = ", ".join([*limits.gpus, *limits.partial_gpus])
            expected = f"one of {supported} with {draft.recipe.name}: {limits.why}"
            draft.refuse(name, "gpu.profile", model, expected)
