"""Who takes part, with how many ranks, and whether the recipe is made for so many nodes and for these GPUs."""

from collections.abc import Iterator, Mapping, Sequence

from shakedown.common.text import counted
from shakedown.desired.models import EACH, DesiredState, Smoke
from shakedown.desired.problems import Problem
from shakedown.jobs.launch import Derived
from shakedown.jobs.plan.draft import PlanDraft
from shakedown.jobs.plan.environment import chosen_gpus
from shakedown.recipes.recipe import Recipe
from shakedown.state.node import NodeState, is_unreadable

# What may differ from node to node: each is about that node alone.
OWN = ("interface", "venv", "volumes", "devices")


def participants(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    order: Sequence[str],
    missing: Mapping[str, str],
    alone: str | None = None,
) -> tuple[list[str], list[Problem]]:
    """Return the nodes of `order` that are ready, or of them the one that is to train `alone`.

    Where they may not start without the others, problems give the reasons. A single-node job waits for no other node:
    only the least number of nodes counts for it too.
    """
    problems = []
    names = []
    for name in order if alone is None else [alone]:
        if name in missing:
            continue
        if name not in states:
            problems.append(Problem(name, "state", "nothing", "a node state"))
        elif name not in desired or desired[name].smoke is None:
            problems.append(Problem(name, "smoke", "nothing", "a smoke section, as the other nodes have"))
        else:
            names.append(name)
    wanted = [smoke for name in order if name in desired and (smoke := desired[name].smoke) is not None]
    least = wanted[0].min_nodes if wanted else None
    seen = wanted[0].seen_nodes if wanted else None
    if alone is not None:
        if alone in missing:
            problems.append(Problem(alone, "state", missing[alone], "a node that is fit to train"))
        return names, problems + _seen(order, seen)
    who = ", ".join(f"{name}: {reason}" for name, reason in missing.items()) or "no node is missing"
    if missing and least is None:
        expected = f"all {counted(len(order), 'node')}, since min_nodes is not set ({who})"
        problems.append(Problem("plan", "nodes", str(len(names)), expected))
    elif least is not None and len(names) < least:
        problems.append(Problem("plan", "nodes", str(len(names)), f"at least min_nodes = {least} ({who})"))
    elif not order:
        problems.append(Problem("plan", "nodes", "0", "at least one node"))
    return names, problems + _seen(order, seen)


def _seen(order: Sequence[str], seen: int | None) -> list[Problem]:
    if seen is None or len(order) >= seen:
        return []
    return [Problem("plan", "nodes", str(len(order)), f"at least seen_nodes = {seen} in the inventory")]


def same_smoke(smokes: Mapping[str, Smoke]) -> list[Problem]:
    """One job has one description."""
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


def ranks_per_node(
    recipe: Recipe,
    smoke: Smoke,
    states: Mapping[str, NodeState],
    problems: list[Problem],
    derived: list[Derived],
) -> int | None:
    """As asked for, as the recipe says, or one for each GPU; the same everywhere."""
    counts = {name: None if is_unreadable(state.gpus) else len(state.gpus) for name, state in states.items()}
    gpus, wrong = chosen_gpus(smoke.environment)
    problems += [
        Problem("smoke", f"smoke.environment.{name}", smoke.environment[name], expected)
        for name, expected in wrong.items()
    ]
    requested = smoke.ranks_per_node or recipe.ranks_per_node
    if gpus is not None:
        problems += _beyond(gpus, requested, counts)
        return _within(recipe, len(gpus), f"one for each of the GPUs {','.join(map(str, gpus))}", problems, derived)
    if requested is None:
        for name, count in counts.items():
            if not count:
                actual = str(states[name].gpus) if count is None else "0"
                expected = "GPUs, one for each rank, or smoke.ranks_per_node"
                problems.append(Problem(name, "gpus", actual, expected))
        if len(set(counts.values())) > 1 and all(counts.values()):
            shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
            problems.append(Problem("plan", "gpus", shown, "the same number on every node, or smoke.ranks_per_node"))
        ranks, reason = min(count or 0 for count in counts.values()), "one for each GPU"
    else:
        ranks, reason = requested, "as the desired state says" if smoke.ranks_per_node else f"as {recipe.name} says"
        for name, count in counts.items():
            if count and count < ranks:
                problems.append(Problem(name, "gpus", str(count), f"at least {ranks}, one for each rank"))
    return _within(recipe, ranks, reason, problems, derived)


def _within(recipe: Recipe, ranks: int, reason: str, problems: list[Problem], derived: list[Derived]) -> int | None:
    """Return the number, where the program has no other of its own."""
    limits = recipe.family.limits
    if ranks and limits is not None and limits.ranks_per_node not in (None, ranks):
        expected = f"{limits.ranks_per_node}: {limits.why}"
        problems.append(Problem("smoke", "smoke.ranks_per_node", str(ranks), expected))
    derived.append(Derived(name="ranks per node", value=str(ranks), why=reason))
    return ranks or None


def _beyond(gpus: list[int], requested: int | None, counts: Mapping[str, int | None]) -> Iterator[Problem]:
    """GPUs that a node has not, and as many ranks as there are GPUs."""
    shown = ",".join(map(str, gpus))
    if requested is not None and requested != len(gpus):
        yield Problem("smoke", "visible GPUs", shown, f"{requested} of them, one for each rank of a node")
    for name, count in counts.items():
        if count is not None and max(gpus) >= count:
            yield Problem(name, "gpus", str(count), f"at least {max(gpus) + 1}: GPU {max(gpus)} was chosen")


def node_count(draft: PlanDraft) -> None:
    """Where the program ends, and for how many nodes the recipe was documented."""
    count, limits, described = len(draft.states), draft.recipe.family.limits, draft.recipe.entry.nodes
    if limits and limits.max_nodes is not None and count > limits.max_nodes:
        draft.refuse("plan", "nodes", count, f"at most {limits.max_nodes} with {draft.recipe.name}: {limits.why}")
    elif draft.alone and draft.recipe.not_alone:
        draft.refuse("smoke", "smoke.scope", EACH, draft.recipe.not_alone)
    elif described not in (None, count):
        draft.note("nodes", count, f"{draft.recipe.document} describes {draft.recipe.name} for {described}")


def supported_gpus(draft: PlanDraft) -> None:
    """GPU models that the program was made for."""
    limits = draft.recipe.family.limits
    if limits is None or not limits.gpus:
        return
    for name, desired in draft.desired.items():
        model = desired.gpu.profile
        if model in limits.partial_gpus:
            draft.note(f"{name}: warning", model, f"supported in part: {limits.why}")
        elif model not in limits.gpus:
            expected = (
                f"one of {', '.join([*limits.gpus, *limits.partial_gpus])} with {draft.recipe.name}: {limits.why}"
            )
            draft.refuse(name, "gpu.profile", model, expected)
