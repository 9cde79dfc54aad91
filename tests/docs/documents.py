"""docs/reference/recipes.md: the documents and the recipes that follow them, from the data files."""

from __future__ import annotations

from shakedown.recipes.configurations import configurations
from shakedown.recipes.documents import Document
from shakedown.recipes.documents import documents as every
from shakedown.recipes.recipe import Recipe
from shakedown.recipes.recipe import recipes as shipped
from tests.docs.markdown import table


def _link(document: Document) -> str:
    return f"[{document.title}]({document.url})" if document.url else document.title


def documents() -> str:
    """Every document with its address and the recipes that follow it."""
    rows = []
    for name, document in every().items():
        named = [f"`{recipe.name}`" for recipe in shipped().values() if recipe.document == document]
        rows.append((f"`{name}`", _link(document), ", ".join(named) or "keys of the [configuration](configuration.md)"))
    return table(("name in data files", "document", "what follows it"), rows)


def recipes() -> str:
    """Every recipe with its batch, its nodes and the figures that are expected of it."""
    rows = [_row(recipe) for recipe in shipped().values()]
    head = ("recipe", "what", "runtime", "nodes", "ranks per node", "program's own sizes", "expected figures")
    return table(head, rows)


def _of_gpus(family: str, experiment: str) -> tuple[str, str]:
    """The nodes that each GPU's file is made for, and its micro batch / global batch."""
    known = configurations(family)
    files = {gpu: known.files[known.file(gpu, experiment)] for gpu in known.published(experiment)}
    nodes = sorted({file.nodes or 1 for file in files.values()})
    batches = {
        gpu: f"{file.options['micro_batch_size']}/{file.options['global_batch_size']}" for gpu, file in files.items()
    }
    shown = ", ".join(f"{gpu} {batch}" for gpu, batch in batches.items() if gpu != "mi350x")
    return "any" if nodes == [1] else f"made for {' or '.join(map(str, nodes))}", shown


def _row(recipe: Recipe) -> tuple[str, ...]:
    family, entry = recipe.family, recipe.entry
    sizes = {name: entry.options.get(name) for name in family.role_options.values()}
    shown = " ".join(f"{name}={value}" for name, value in sizes.items() if value is not None)
    most = family.limits.max_nodes if family.limits else None
    nodes = str(entry.nodes or (f"at most {most}" if most else "any"))
    if entry.experiment:
        nodes, shown = _of_gpus(recipe.family_name, entry.experiment)
    figures = [
        f"{'/'.join(each.gpus)} x {each.nodes}: "
        + ", ".join(f"{name} {value:g}" for name, value in each.figures.items())
        for each in entry.expect
    ]
    return (
        f"`{recipe.name}`",
        entry.description,
        ", ".join(family.runtimes),
        nodes,
        str(recipe.ranks_per_node or ("one per GPU" if family.roles else "")),
        f"`{shown}`" if shown else "",
        "<br>".join(figures),
    )
