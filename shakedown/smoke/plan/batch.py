"""How the ranks divide the work: parallel sizes and batches."""

from __future__ import annotations

from dataclasses import dataclass

from shakedown.desired.problems import Problem
from shakedown.smoke.options import Chosen


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


def split(chosen: Chosen, world_size: int) -> tuple[Split | None, list[Problem]]:
    """Divide `world_size` ranks. Sets the global batch where the recipe leaves it to the number of replicas."""
    roles = chosen.recipe.family.roles
    tensor, pipeline = chosen.role("tensor_parallel"), chosen.role("pipeline_parallel")
    context, micro = chosen.role("context_parallel"), chosen.role("micro_batch")
    model_parallel = tensor * pipeline * context
    problems = []
    for role, parts, count in (("layers", "pipeline_parallel", pipeline), ("heads", "tensor_parallel", tensor)):
        known = size_of(chosen, role)
        if known and known % count:
            expected = f"a divisor of the model's {known} {role}"
            problems.append(Problem("smoke", f"smoke.options.{roles.items()[parts]}", str(count), expected))
    if world_size % model_parallel:
        shape = f"tensor {tensor} x pipeline {pipeline} x context {context} parallel"
        expected = f"a multiple of {model_parallel} ({shape})"
        return None, [*problems, Problem("plan", "world_size", str(world_size), expected)]
    data = world_size // model_parallel
    option = chosen.recipe.family.options[roles.global_batch]
    if option.micro_batches and roles.global_batch not in chosen.given:
        chosen.given[roles.global_batch] = option.micro_batches * micro * data
    total = chosen.role("global_batch", otherwise=0)
    replica = micro * data
    if total < replica or total % replica:
        near = " or ".join(str(n * replica) for n in sorted({max(1, total // replica), total // replica + 1}))
        expected = f"a multiple of micro batch {micro} x data parallel {data} = {replica}, such as {near}"
        problems.append(Problem("smoke", f"smoke.options.{roles.global_batch}", str(total), expected))
    return Split(world_size, tensor, pipeline, context, data, micro, total), problems


def size_of(chosen: Chosen, role: str) -> int | None:
    """Number of layers or heads: from an option, or from what the family says of the model."""
    option = chosen.recipe.family.roles.items().get(role)
    if option:
        value = chosen.value(option)
        return None if value is None else int(value)
    known = [getattr(model, role) for model in chosen.recipe.family.models if chosen.matches(model.when)]
    return known[0] if known else None
