"""docs/reference/recipes.md: the documents and the recipes that follow them, from the data files."""

from __future__ import annotations

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


def _row(recipe: Recipe) -> tuple[str, ...]:
    family, entry = recipe.family, recipe.entry
    sizes = {name: entry.options.get(name) for name in family.role_options.values()}
    shown = " ".join(f"{name}={value}" for name, value in sizes.items() if value is not None)
    most = family.limits.max_nodes if family.limits else None
    nodes = str(entry.nodes or (f"at most {most}" if most else "any"))
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
