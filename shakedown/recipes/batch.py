"""The global batch of a job. A recipe's own property is the number of accumulation steps, which holds at any size."""

from dataclasses import dataclass

from shakedown.common.text import counted
from shakedown.desired.models import Smoke
from shakedown.recipes.option import Value
from shakedown.recipes.options import ResolvedOptions, choose
from shakedown.recipes.recipe import Recipe


@dataclass(frozen=True)
class Documented:
    """The global batch of a recipe's document, and the steps that a replica does there in one iteration."""

    steps: int
    batch: int | None  # None: the document gives none
    source: str  # for the reader of a plan


def model_parallel(chosen: ResolvedOptions) -> int:
    """Return the number of ranks that hold one replica of the model."""
    return chosen.role("tensor_parallel") * chosen.role("pipeline_parallel") * chosen.role("context_parallel")


def documented(recipe: Recipe, nodes: int | None = None) -> Documented:
    """Return the document's batch as steps: the batch / (micro batch x data parallel of the document's nodes).

    `nodes` are others than the recipe's own: those of one of its figures.
    """
    option = recipe.family.options[recipe.family.batch_option]
    own, _ = choose(recipe, Smoke(recipe=recipe.name))
    batch = own.value(recipe.family.batch_option)
    if batch is None:
        steps = option.micro_batches or 1
        return Documented(steps, None, f"{recipe.name} has {counted(steps, 'step')}")
    count = nodes or recipe.entry.nodes or 1
    data = count * (recipe.ranks_per_node or recipe.family.document_gpus) // model_parallel(own)
    steps = int(batch) // (own.role("micro_batch") * data)
    source = f"{recipe.name} has {batch} on {counted(count, 'node')}: {counted(steps, 'step')}"
    return Documented(steps, int(batch), source)


def share(recipe: Recipe, smoke: Smoke, part: int, nodes: int, ranks: int) -> dict[str, Value]:
    """Return the options for a job over `part` of `nodes` nodes: a global batch of the site keeps its steps.

    `ranks` are those of a node.
    """
    chosen, _ = choose(recipe, smoke)
    option = recipe.family.batch_option
    if option not in chosen.requested:
        return dict(smoke.options)
    parts = model_parallel(chosen)
    whole, own = (chosen.role("micro_batch") * max(1, count * ranks // parts) for count in (nodes, part))
    return {**smoke.options, option: max(1, chosen.role("global_batch") // whole) * own}
