"""What of a job is judged: figures of the recipe where they hold, the site's own, and the ranks' own time."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from shakedown.common.text import counted
from shakedown.desired.models import DesiredState, Smoke
from shakedown.evidence.stragglers import judge
from shakedown.evidence.stragglers.judge import LEAST_NODES
from shakedown.evidence.stragglers.model import Limits
from shakedown.jobs.launch import Derived
from shakedown.jobs.plan.draft import PlanDraft
from shakedown.recipes.documents import documents
from shakedown.recipes.options import ResolvedOptions, documented
from shakedown.recipes.program import further_option, of_image


def expected(
    chosen: ResolvedOptions, smoke: Smoke, desired: Mapping[str, DesiredState]
) -> tuple[dict[str, float], list[str], list[Derived]]:
    """Metric -> bound, the metrics that are only recorded, and why figures of the recipe are not used."""
    models = sorted({node.gpu.profile for node in desired.values()})
    figures, derived = published(chosen, models, len(desired))
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


_OWN = "log_straggler"  # of this project's workload, and Primus's name of Megatron's
_SWITCHES = (_OWN, "log-straggler")
_COUNTS = ("straggler_minmax_count", "straggler-minmax-count")


def straggler_limits(draft: PlanDraft, chosen: ResolvedOptions, world: int, reference: str | None) -> Limits | None:
    """Return the limits, where the job's ranks are compared, and switch on what makes the ranks report.

    A site's own options stay. `reference` is the image's.
    """
    smoke, nodes = draft.smoke, len(draft.states)
    gate = smoke.stragglers == "gate"
    if smoke.stragglers == "off" or (nodes < LEAST_NODES and (not gate or draft.alone)):
        return None
    limits = Limits(
        gate=gate,
        notice=smoke.straggler_notice,
        warn=smoke.straggler_warn,
        fail=smoke.straggler_fail,
        unequal=_unequal(draft, chosen),
    )
    if _OWN in draft.recipe.family.options:
        chosen.given.setdefault(_OWN, True)
        return limits
    if gate:
        _switch_on(draft, chosen, world, reference)
    requested = any(chosen.is_given(name) for name in _SWITCHES)
    return limits if requested or gate else None


@functools.cache
def _options() -> Mapping[str, str]:
    """Option -> why ranks of one role have unequal work with it."""
    text = (Path(judge.__file__).with_name("unequal.toml")).read_text("utf-8")
    options: dict[str, str] = tomllib.loads(text)["options"]
    return options


def _unequal(draft: PlanDraft, chosen: ResolvedOptions) -> str:
    """Return why ranks of one role may have unequal work. Empty: the plan shows that they have equal work."""
    family = draft.recipe.family
    if "pipeline_parallel" not in family.role_options:
        stages = family.role_options.keys() | {name.replace("-", "_") for name in chosen.given}
        if any("pipeline" in name for name in stages):
            return "the program's pipeline stages are not known"
    for name in chosen.given:
        plain = name.replace("-", "_").lower()
        if plain in _options() and chosen.is_given(name) and str(chosen.given[name]) not in ("0", "1"):
            return f"{name}: {_options()[plain]}"
    return ""


def _switch_on(draft: PlanDraft, chosen: ResolvedOptions, world: int, reference: str | None) -> None:
    """Megatron's own: the count makes it report all ranks, of the lower half and of the upper one. It ignores a count
    that is not below the world size."""
    many = (world + 1) // 2
    wanted: list[tuple[tuple[str, ...], str | int]] = [(_SWITCHES, "true")]
    if 1 < many < world:
        wanted.append((_COUNTS, many))
    for names, value in wanted:
        name = next((candidate for candidate in names if _taken(draft, candidate, reference)), None)
        if name is None:
            draft.note("note: stragglers", "not measured", f"the program has no argument {' or '.join(names)}")
            return
        option = chosen.option(name) or further_option(draft.recipe.family, name)
        if option is not None and name not in chosen.given:
            if name not in draft.recipe.family.options:
                chosen.extra[name] = option
            chosen.given[name] = True if option.type == "flag" else option.parse(value)
            draft.note(name, str(value), "smoke.stragglers is gate; Megatron listens on a port of rank 0's node for it")


def _taken(draft: PlanDraft, name: str, reference: str | None) -> bool:
    """Return whether every version of the program that may be in the image has this argument."""
    family = draft.recipe.family
    known = of_image(family, reference)
    return bool(known) and all(version.takes(name, family.script) for version in known)
