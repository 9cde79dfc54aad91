"""What can be known of a smoke run from the desired states alone, and is refused before the first connection."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields

from shakedown.common.text import counted
from shakedown.desired.models import EACH, TOGETHER, DesiredState, Smoke
from shakedown.desired.problems import Problem, bounds, one_of
from shakedown.desired.resolve import HOME
from shakedown.jobs.plan.environment import chosen_gpus, gpu_variables
from shakedown.jobs.plan.participants import OWN, ranks_of, split
from shakedown.jobs.workload.arguments import Arguments, flag
from shakedown.logs.metrics import METRICS_OF
from shakedown.recipes.fitting import fit, recipe_for
from shakedown.recipes.options import ResolvedOptions, choose, documented, model_parallel
from shakedown.recipes.recipe import Recipe, recipes
from shakedown.recipes.variables import environment_problems, layer_problems
from shakedown.schedulers.registry import find, names
from shakedown.state.mounts import host_path

WORKLOAD = "shakedown.jobs.workload"


def problems_of(desired: DesiredState) -> Iterator[Problem]:
    """Of one host: its recipe, options, variables, figures, GPUs."""
    if (smoke := desired.smoke) is None:
        return
    recipe = recipes().get(smoke.recipe)
    yield from bounds("smoke.expect", smoke.expect, METRICS_OF[recipe.family.parser if recipe else "training"])
    if recipe is None:
        yield Problem("smoke", "smoke.recipe", repr(smoke.recipe), one_of(smoke.recipe, recipes()))
        return
    if smoke.via != "ssh" and find(smoke.via).no_containers and "process" not in recipe.family.runtimes:
        ways = " or ".join(["ssh", *(name for name in names() if not find(name).no_containers)])
        expected = f"{ways}: {recipe.name} starts containers, which jobs in {smoke.via} cannot"
        yield Problem("smoke", "smoke.via", repr(smoke.via), expected)
    runtime = smoke.runtime or recipe.family.runtimes[0]
    if runtime not in recipe.family.runtimes:
        expected = f"{' or '.join(recipe.family.runtimes)} with {recipe.name}"
        yield Problem("smoke", "smoke.runtime", repr(runtime), expected)
    elif runtime == "container" and smoke.image is None:
        documented = recipe.family.container.image
        hint = f" (documented: {documented})" if documented else ""
        yield Problem("smoke", "smoke.image", "nothing", f"the name of an image in images{hint}")
    recipe, unfit = fit(recipe, smoke, [desired.gpu.profile])
    yield from unfit
    chosen, problems = choose(recipe, smoke)
    yield from problems or _of_program(chosen)
    yield from environment_problems(chosen, smoke)
    yield from layer_problems(chosen, desired)
    if runtime == "container":
        yield from _data_paths(chosen, smoke)
    if recipe.family.roles:
        yield from _gpus(desired, smoke, recipe)
    if EACH in smoke.scope and recipe.not_alone:
        yield Problem("smoke", "smoke.scope", EACH, recipe.not_alone)


def _of_program(chosen: ResolvedOptions) -> Iterator[Problem]:
    """Refuse what the embedded program would refuse on the nodes, whatever the number of ranks."""
    if WORKLOAD not in chosen.recipe.family.upload:
        return
    values = {field.name: chosen.value(field.name) for field in fields(Arguments)}
    arguments = Arguments(**{name: value for name, value in values.items() if value is not None})  # type: ignore[arg-type]
    for error in arguments.errors(model_parallel(chosen)):
        words, _, reason = error.partition(": ")
        option = next((name for name in values if words == flag(name)), "")
        value, _, expected = reason.partition(" is not ")
        if option not in chosen.recipe.family.role_options.values():  # those are divided among the ranks below
            yield Problem("smoke", f"smoke.options{f'.{option}' if option else ''}", value, f"one that is {expected}")


def _data_paths(chosen: ResolvedOptions, smoke: Smoke) -> Iterator[Problem]:
    if any(HOME in target for target in smoke.volumes.values()):
        return
    for name, path in chosen.data():
        if host_path(path, smoke.volumes) is None:
            targets = ", ".join(target.partition(":")[0] for target in smoke.volumes.values()) or "none is given"
            option = chosen.option(name)
            what = option.description if option else name
            expected = f"a path below one of smoke.volumes, as the container sees it ({targets}): {what}; give "
            expected += f'"volumes": {{"FOLDER OF THE HOST": {json.dumps(path)}}} in the section smoke'
            yield Problem("smoke", f"smoke.options.{name}", path, expected)


def _gpus(desired: DesiredState, smoke: Smoke, recipe: Recipe) -> Iterator[Problem]:
    gpus, wrong = chosen_gpus(smoke.environment)
    for name, expected in wrong.items():
        yield Problem("smoke", f"smoke.environment.{name}", repr(smoke.environment[name]), expected)
    if wrong:
        return
    path = f"smoke.environment.{next(iter(gpu_variables(smoke.environment)))}" if gpus else "smoke.ranks_per_node"
    shown = ",".join(map(str, gpus)) if gpus else str(smoke.ranks_per_node)
    requested = smoke.ranks_per_node or recipe.ranks_per_node
    if gpus and requested not in (None, len(gpus)):
        yield Problem("smoke", path, shown, f"{counted(requested, 'GPU')}, one for each rank of a node")
    ranks, count = ranks_of(desired, smoke, recipe), desired.gpu.count
    if ranks is None:
        expected = f"a number, or a profile with GPUs: {recipe.name} starts one rank for each"
        yield Problem("smoke", "smoke.ranks_per_node", "nothing", expected)
    elif count and (max(gpus) >= count if gpus else ranks > count):
        most = f"GPUs 0 to {count - 1}" if gpus else f"at most {count}"
        yield Problem("smoke", path, shown, f"{most}, the {counted(count, 'GPU')} of {desired.gpu.profile}")
    limits = recipe.family.limits
    if ranks is not None and limits is not None and limits.ranks_per_node not in (None, ranks):
        yield Problem("smoke", path, str(ranks), f"{limits.ranks_per_node}: {limits.why}")


def count_problems(hosts: Mapping[str, DesiredState]) -> Iterator[tuple[str, Problem]]:
    """Fewer hosts than there must be, by the first host that says so."""
    with_smoke = {name: desired.smoke for name, desired in hosts.items() if desired.smoke is not None}
    for first, smoke in list(with_smoke.items())[:1]:
        for key in ("seen_nodes", "min_nodes"):
            least = getattr(smoke, key)
            if least is not None and least > len(with_smoke):
                hosts_told = f"at most {len(with_smoke)}, the hosts of this inventory with a smoke section"
                yield first, Problem("smoke", f"smoke.{key}", str(least), hosts_told)


def division_problems(hosts: Mapping[str, DesiredState]) -> Iterator[tuple[str, Problem]]:
    """Batches and parallel sizes that the ranks of the job cannot divide. A shape must fit one number of nodes that may
    start. A global batch of the site must fit all, down to min_nodes."""
    with_smoke = {name: desired for name, desired in hosts.items() if desired.smoke is not None}
    for first, desired in list(with_smoke.items())[:1]:
        smoke = desired.smoke
        recipe = recipe_for(smoke, [desired.gpu.profile]) if smoke else None
        shared = [own.smoke and own.smoke.model_dump(exclude=set(OWN)) for own in with_smoke.values()]
        if smoke is None or recipe is None or any(other != shared[0] for other in shared):
            continue  # it has its own error, or the plan says what differs
        ranks = ranks_of(desired, smoke, recipe)
        if TOGETHER in smoke.scope:
            least = min(smoke.min_nodes or len(with_smoke), len(with_smoke))
            numbers = range(len(with_smoke), least - 1, -1)
            found = [list(_of_count(recipe, smoke, nodes, ranks)) for nodes in numbers]
            problems = found[0] if all(found) else []
            if len(numbers) > 1 and (batch := _batch_of_counts(recipe, smoke, numbers, ranks)) is not None:
                problems = [*(problem for problem in problems if problem.path != batch.path), batch]
            yield from ((first, problem) for problem in problems)
        if EACH in smoke.scope:
            yield from ((first, problem) for problem in _of_count(recipe, smoke, 1, ranks))


def _batch_of_counts(recipe: Recipe, smoke: Smoke, counts: range, ranks: int | None) -> Problem | None:
    """Return what is wrong with the site's global batch where the job may start with any of these numbers of nodes."""
    option = recipe.family.batch_option
    chosen, wrong = choose(recipe, smoke)
    if wrong or ranks is None or option not in chosen.requested:
        return None
    parts, total = model_parallel(chosen), chosen.role("global_batch")
    micro, divided = chosen.role("micro_batch"), [nodes for nodes in counts if nodes * ranks % parts == 0]
    replicas = {nodes: micro * nodes * ranks // parts for nodes in divided}
    if all(total % replica == 0 for replica in replicas.values()):
        return None
    fit = math.lcm(*replicas.values())
    near = " or ".join(str(number * fit) for number in sorted({max(1, total // fit), total // fit + 1}))
    such_as = f", such as {near}" if fit <= 100 * max(replicas.values()) else ""
    sizes = f"{min(replicas)} to {max(replicas)} nodes, as smoke.min_nodes allows"
    steps = counted(documented(recipe).steps, "step")
    expected = f"a batch for {sizes}: a multiple of {fit}{such_as}; without {option} it follows the nodes ({steps})"
    return Problem("smoke", f"smoke.options.{option}", str(total), expected)


def _of_count(recipe: Recipe, smoke: Smoke, nodes: int, ranks: int | None) -> Iterator[Problem]:
    limits = recipe.family.limits
    if limits is not None and limits.max_nodes is not None and nodes > limits.max_nodes:
        most = f"{recipe.name} runs on at most {limits.max_nodes}, {limits.why}"
        expected = f"one that {counted(nodes, 'node')} can run: {most}"
        yield Problem("smoke", "smoke.recipe", repr(recipe.name), expected)
    if ranks is None or recipe.family.roles is None:
        return
    chosen, wrong = choose(recipe, smoke)
    if wrong:
        return
    for problem in split(chosen, nodes * ranks)[1]:
        over = f"{problem.expected} (over {nodes} x {ranks} ranks)"
        path = problem.path if problem.path.startswith("smoke.") else "smoke.options"
        value = problem.value if path == problem.path else f"{problem.path} {problem.value}"
        yield Problem("smoke", path, value, over)
