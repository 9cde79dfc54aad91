"""Values of a recipe that depend on the GPU: those of AMD's file for it, or of the site's own file."""

from collections.abc import Collection
from pathlib import Path

from shakedown.desired.models import Smoke
from shakedown.desired.problems import Problem
from shakedown.recipes.configurations import MOST, Configurations, Experiment, configurations, read_experiment
from shakedown.recipes.recipe import Recipe, recipes
from shakedown.state.mounts import host_path

CONFIG = "config"  # the option that names the file


def recipe_for(smoke: Smoke, gpus: Collection[str | None]) -> Recipe | None:
    """Return the recipe of a smoke section, with the values for GPUs of these profiles; None: no such recipe."""
    recipe = recipes().get(smoke.recipe)
    return fit(recipe, smoke, gpus)[0] if recipe else None


def fit(recipe: Recipe, smoke: Smoke, gpus: Collection[str | None]) -> tuple[Recipe, list[Problem]]:
    """Give a recipe the values for GPUs of these profiles. Return it with what cannot be."""
    if recipe.entry.experiment is None:
        return recipe, []
    known = configurations(recipe.family_name)
    config = smoke.options.get(CONFIG)
    try:
        if config is None:
            path = _published(known, recipe.entry.experiment, gpus)
            return _with(recipe, known, gpus, known.files[path], path, _origin(known, path)), []
        return _own(recipe, known, gpus, smoke, str(config))
    except ValueError as error:
        where, value = (CONFIG, repr(config)) if config is not None else ("recipe", repr(recipe.name))
        path = f"smoke.options.{where}" if config is not None else "smoke.recipe"
        return _with(recipe, known, (), None, "none", ""), [Problem("smoke", path, value, str(error))]


def _published(known: Configurations, experiment: str, gpus: Collection[str | None]) -> str:
    """Return the file for these GPUs. Raise ValueError with what AMD publishes."""
    there = known.published(experiment)
    expected = f"GPUs for which AMD publishes {experiment}: {', '.join(there)} ({_commit(known)})"
    precision = experiment.rpartition("-")[2]
    for profile in sorted(str(gpu) for gpu in gpus):
        if profile not in known.gpus:
            raise ValueError(f"{expected}; the GPU here is {'not known' if profile == 'None' else profile}")
        reason = known.unsupported.get(known.gpus[profile].arch, {}).get(precision)
        if reason or profile not in there:
            raise ValueError(f"{expected}, not for {profile}{f': {reason}' if reason else ''}")
    paths = sorted({known.file(str(profile), experiment) for profile in gpus})
    if len({str(known.files[path].options) for path in paths}) > 1:
        raise ValueError(f"GPUs of one model: the values of {' and '.join(paths)} differ")
    if not paths:
        raise ValueError(f"{expected}; the GPU here is not known")
    return paths[0]


def _own(
    recipe: Recipe, known: Configurations, gpus: Collection[str | None], smoke: Smoke, config: str
) -> tuple[Recipe, list[Problem]]:
    """Return the recipe with the values of a file that the site names: of AMD's, or of the site's own."""
    checkout = str(smoke.options.get("checkout") or recipe.family.options["checkout"].default)
    inside = config.removeprefix(f"{checkout.rstrip('/')}/")
    if inside in known.files:
        others = sorted(gpu for gpu in gpus if gpu and (gpu not in known.gpus or known.gpus[gpu].folder not in inside))
        doubt = f"; warning: not made for {', '.join(others)}" if others else ""
        return _with(recipe, known, gpus, known.files[inside], config, f"{_origin(known, inside)}{doubt}"), []
    host = host_path(config, smoke.volumes) if config.startswith("/") else None
    places = [Path(place).expanduser() for place in (host or config, config)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        fitted = _with(recipe, known, gpus, None, config, "")
        expected = f"a value, since {config} is not a file of AMD's ({_commit(known)}) or of this machine"
        roles = ("micro_batch", "global_batch", "seq_length", "tensor_parallel", "pipeline_parallel")
        absent = [name for role in roles if (name := recipe.family.role_options[role]) not in smoke.options]
        return fitted, [Problem("smoke", f"smoke.options.{name}", "nothing", expected) for name in absent]
    if path.stat().st_size > MOST:
        raise ValueError(f"an experiment file of at most {MOST} bytes")
    text = path.read_text("utf-8", "replace")
    experiment = read_experiment(text, recipe.family.options.__contains__)
    problems = []
    for name, value in experiment.options.items():
        try:
            recipe.family.options[name].parse(value)
        except ValueError as error:
            problems.append(Problem("smoke", f"{path}: {name}", repr(value), str(error)))
    if problems:
        return _with(recipe, known, gpus, None, config, ""), problems
    for gpu in gpus:
        arch = known.gpus[gpu].arch if gpu in known.gpus else ""
        if reason := known.unsupported.get(arch, {}).get(experiment.precision):
            raise ValueError(f"a file that {gpu} can run: {reason}")
    return _with(recipe, known, gpus, experiment, config, f"{path} of this machine", text), []


def _with(
    recipe: Recipe,
    known: Configurations,
    gpus: Collection[str | None],
    experiment: Experiment | None,
    config: str,
    origin: str,
    text: str = "",
) -> Recipe:
    options = dict(experiment.options) if experiment else {}
    archs = {known.gpus[gpu].arch for gpu in gpus if gpu in known.gpus}
    facts = {"arch": archs.pop()} if len(archs) == 1 else {}
    if experiment:
        facts |= {"model": experiment.model, "precision": experiment.precision}
    change = {"options": {**options, CONFIG: config}, "facts": facts, "origin": dict.fromkeys(options, origin)}
    change |= {"nodes": experiment.nodes if experiment else None, "sent": {CONFIG: text} if text else {}}
    return recipe.model_copy(update={"entry": recipe.entry.model_copy(update=change)})


def _origin(known: Configurations, path: str) -> str:
    return f"{path}, {known.files[path].source or _commit(known)}"


def _commit(known: Configurations) -> str:
    return f"{known.source.rpartition('/')[2]} at {known.commit[:7]}"
