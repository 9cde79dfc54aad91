"""Which figures are judged: the recipe's where they hold for this very job, and the site's own over them."""

from collections.abc import Mapping, Sequence

from shakedown.common.text import counted
from shakedown.desired.models import DesiredState, Smoke
from shakedown.jobs.launch import Derived
from shakedown.recipes.batch import documented
from shakedown.recipes.documents import documents
from shakedown.recipes.options import ResolvedOptions


def expected(
    chosen: ResolvedOptions, smoke: Smoke, desired: Mapping[str, DesiredState]
) -> tuple[dict[str, float], list[str], list[Derived]]:
    """Metric -> bound, the metrics that are only recorded, and why figures of the recipe are not used."""
    figures, derived = _of_recipe(chosen, desired)
    if smoke.expect_nodes in (None, len(desired)):
        figures |= smoke.expect
    elif smoke.expect:
        shown = ", ".join(f"{metric} {bound:g}" for metric, bound in smoke.expect.items())
        reason = (
            f"not judged: smoke.expect_nodes says that they hold for {smoke.expect_nodes} node(s), not {len(desired)}"
        )
        derived.append(Derived(name="expected figures", value=shown, why=reason))
    recorded = [metric for metric in chosen.recipe.family.metrics if metric not in figures]
    return figures, recorded, derived


def _of_recipe(chosen: ResolvedOptions, desired: Mapping[str, DesiredState]) -> tuple[dict[str, float], list[Derived]]:
    return published(chosen, sorted({node.gpu.profile for node in desired.values()}), len(desired))


def published(chosen: ResolvedOptions, models: Sequence[str], nodes: int) -> tuple[dict[str, float], list[Derived]]:
    """Return the recipe's figures for so many nodes with GPUs of these models.

    Return also why others of its figures are not used.
    """
    fitting = [entry for entry in chosen.recipe.entry.expect if all(gpu in entry.gpus for gpu in models)]
    derived: list[Derived] = []
    if not fitting:
        return {}, derived
    option = chosen.recipe.family.batch_option
    changed = [name for name in chosen.changed if name != option]
    steps, total = documented(chosen.recipe).steps, chosen.value(option)
    for expect in fitting:
        shown = ", ".join(f"{metric} {bound:g}" for metric, bound in expect.figures.items())
        theirs = documented(chosen.recipe, expect.nodes)
        if expect.nodes != nodes:
            reason = f"not judged: they hold for {expect.nodes} node(s), not for {nodes}"
            if theirs.steps == steps and not changed and option not in chosen.requested:
                reason += f"; the work of a GPU is the same ({counted(steps, 'step')}), the network differs"
        elif changed:
            reason = f"not judged: they hold for the recipe's own {', '.join(changed)}"
        elif theirs.batch != total:
            reason = f"not judged: they hold for {option} = {theirs.batch}, and this job has {total}"
        else:
            reason = f"{documents()[expect.source]}, for {expect.nodes} x {'/'.join(models)}"
            return dict(expect.figures), [Derived(name="expected figures", value=shown, why=reason)]
        derived.append(Derived(name="expected figures", value=shown, why=reason))
    return {}, derived
