"""From an inventory's layers to one DesiredState per host, with every error of every host at once."""

from __future__ import annotations

import copy
import difflib
import getpass
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from shakedown.desired import profiles
from shakedown.desired.home import HOME
from shakedown.desired.layers import Layer, Merged, asked, leaves, merge
from shakedown.desired.models import NO_PROMISE, DesiredState
from shakedown.desired.problems import DesiredStateError, Problem

if TYPE_CHECKING:
    from shakedown.desired.cvs import Imported

# What a site writes at the top of its layers. `nic` chooses the NIC family, as `gpu` chooses the GPU model, and `cvs`
# names a CVS configuration file, which is one more layer below the site's own.
KEYS = (*DesiredState.model_fields, "nic", "cvs")


@dataclass(frozen=True)
class HostLayers:
    """A host of an inventory with the site's own layers, lowest first: all, groups, host, command line."""

    name: str
    layers: Sequence[Layer]
    user: str = field(default_factory=getpass.getuser)  # who runs jobs there, for {user-id} and {home}


@dataclass(frozen=True)
class Resolved:
    """The desired state of every host, the merged layers it was read from (for `shakedown show`), and what a reader of
    the CVS files among them should know."""

    states: dict[str, DesiredState]
    merged: dict[str, Merged]
    notes: dict[str, None] = field(default_factory=dict)  # in order, each once


@dataclass(frozen=True)
class Feature:
    """What a feature asks of a desired state beyond the types of its section. The layer of each value is added here."""

    of_host: Callable[[DesiredState], Iterable[Problem]] = lambda state: ()
    of_hosts: Callable[[Mapping[str, DesiredState], bool, bool], Iterable[tuple[str, Problem]]] = (
        lambda states, whole, to_train: ()
    )
    """Over the states by host, with `whole` and `to_train` as in `resolve`: (the host whose layer is meant, problem)"""


def resolve(
    hosts: Iterable[HostLayers], features: Sequence[Feature], whole: bool = False, to_train: bool = False
) -> Resolved:
    """Merge and validate. Raises DesiredStateError with all the problems of all hosts.

    `whole`: these are all the hosts of the inventory, so their number counts. `to_train`: a job over just these hosts
    is to be started, so it must divide among them; a comparison needs no job.
    """
    found: dict[Problem, list[str]] = defaultdict(list)
    resolved = Resolved({}, {})
    before: HostLayers | None = None
    for host in hosts:
        if before is None or (host.layers, host.user) != (before.layers, before.user):  # most are as the one before
            merged, state, problems = _of_host(host, features, resolved.notes)
        before = host
        resolved.merged[host.name] = merged
        if state is not None:
            resolved.states[host.name] = state
        for problem in problems:
            found[problem].append(host.name)
    for feature in features:
        for name, problem in feature.of_hosts(resolved.states, whole, to_train):
            found[_placed(problem, resolved.merged[name])].append(name)
    if found:
        raise DesiredStateError(
            [
                Problem(problem.where, problem.path, problem.value, problem.expected, tuple(names))
                for problem, names in sorted(found.items())
            ]
        )
    return resolved


def _of_host(
    host: HostLayers, features: Sequence[Feature], notes: dict[str, None]
) -> tuple[Merged, DesiredState | None, list[Problem]]:
    """A host's layers merged, its desired state where it is valid, and what is wrong; remarks go to the notes."""
    imported, problems = _import_cvs(host.layers)
    lacking = {"smoke"} if problems else set()  # sections that a file was to bring
    if imported is not None:
        notes.update(dict.fromkeys(f"{imported.name}: {remark}" for remark in imported.remarks))
    merged, more = merge_host(host, imported)
    problems += more
    try:
        state = DesiredState.model_validate(asked(merged.values))
    except ValidationError as error:
        # What a placeholder or an unknown profile leads to is not a second error.
        reported = tuple(problem.path for problem in problems)
        sections = lacking | {path.split(".")[0] for path in reported if path in ("gpu.profile", "rdma.family")}
        problems += [
            problem
            for problem in _validation_problems(error, merged)
            if not problem.path.startswith(reported)
            and not (problem.value == "nothing" and problem.path.split(".")[0] in sections)
        ]
        return merged, None, problems + list(_beside(problems, _asked_by(features, _usable(merged), merged)))
    return merged, state, problems + _asked_by(features, state, merged)


def asks(host: HostLayers) -> bool:
    """Whether the site asks for anything on this host. The shipped defaults alone are no desired state: a host that
    was forgotten in every group would pass by them."""
    nothing: tuple[Any, ...] = (None, "", {}, [])
    values = (item for layer in host.layers for item in layer.values.items())
    keys = set(KEYS) - NO_PROMISE
    return any(key in keys and value not in nothing for key, value in values)


def _import_cvs(layers: Sequence[Layer]) -> tuple[Imported | None, list[Problem]]:
    if not any("cvs" in layer.values for layer in layers):
        return None, []
    from shakedown.desired import cvs  # here only: few sites have such files, and every command comes by here

    return cvs.import_named(layers)


def merge_host(host: HostLayers, imported: Imported | None = None) -> tuple[Merged, list[Problem]]:
    """A host's layers over the profiles that they name, and what is wrong before anything is typed."""
    problems: list[Problem] = []
    site: list[Layer] = []
    lowest = [Layer(imported.name, imported.values)] if imported is not None else []
    for layer in [*lowest, *host.layers]:
        problems += _misspelt(layer)
        values = {key: value for key, value in layer.values.items() if key in KEYS}
        site.append(Layer(layer.name, _substitute(_long_form(values), host.user)))

    chosen = merge(site)
    below = [Layer("defaults", profiles.defaults())]
    for kind, path, fallback in (("gpu", "gpu.profile", "cpu"), ("nic", "rdma.family", None)):
        section, key = path.split(".")
        part = chosen.values.get(section)
        name = part.get(key, fallback) if isinstance(part, dict) else fallback
        if name is None or "<changeme>" in str(name):
            continue
        if not isinstance(name, str) or name not in profiles.names(kind):
            expected = f"one of {', '.join(profiles.names(kind))}"
            problems.append(Problem(chosen.origin_of(path), path, repr(name), expected))
            continue
        below.append(Layer(f"profile {name}", profiles.load(kind, name)))

    merged = merge([*below, *site])
    if merged.values.get("gpu") is None:  # taken back, the profile of a lower layer too: a machine without GPUs is left
        merged = merge([*below, *site, Layer("profile cpu", profiles.load("gpu", "cpu"))])
    problems += _placeholders(merged)
    return merged, problems


def _long_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """The short forms people write: gpu = "mi300x", nic = "thor2", images = {"megatron": "name:tag"}."""
    long = {key: value for key, value in values.items() if key not in ("nic", "cvs")}
    if isinstance(long.get("gpu"), str):
        long["gpu"] = {"profile": long["gpu"]}
    if "nic" in values:
        rdma = long.get("rdma", {})
        long["rdma"] = {**rdma, "family": values["nic"]} if isinstance(rdma, Mapping) else rdma
    if isinstance(long.get("images"), Mapping):
        long["images"] = {
            name: {"reference": image} if isinstance(image, str) else image for name, image in long["images"].items()
        }
    return long


# Files of this machine, where {home} is its own user's. Anywhere else it is the node's, which the node tells.
_HERE = {"hf_token_file", "password_file", "ca_file", "patches", "source"}


def _substitute(value: Any, user: str, here: bool = False) -> Any:
    if isinstance(value, str):
        home = "~" if here else "/root" if user == "root" else HOME
        return value.replace("{user-id}", user).replace(HOME, home)
    if isinstance(value, Mapping):
        return {_substitute(key, user): _substitute(item, user, _is_here(key, item)) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, user, here) for item in value]
    return value


def _is_here(key: object, item: object) -> bool:
    return key in _HERE and not isinstance(item, Mapping)


def _misspelt(layer: Layer) -> list[Problem]:
    """Host data holds other people's keys too, so only a key that is nearly one of this project's is refused."""
    problems = []
    for key, value in layer.values.items():
        near = _near(key) if key not in KEYS else ""
        if near:
            problems.append(Problem(layer.name, key, _shown(value), f"the key {near!r}"))
    return problems


@lru_cache(maxsize=4096)
def _near(key: str) -> str:
    """The key that one was meant to be, or nothing: hosts by the thousand have the same ones."""
    return next(iter(difflib.get_close_matches(key, KEYS, n=1, cutoff=0.75)), "")


def _placeholders(merged: Merged) -> list[Problem]:
    problems = []
    for path, value in leaves(merged.values):
        texts = [path, *(value if isinstance(value, list) else [value])]
        if any(isinstance(text, str) and "<changeme>" in text for text in texts):
            problems.append(Problem(merged.origin_of(path), path, _shown(value), "a value in place of <changeme>"))
    return problems


def _usable(merged: Merged) -> DesiredState | None:
    """The desired state without the values that have no meaning, so that the others can be judged beside them."""
    values = copy.deepcopy(asked(merged.values))
    for _ in range(_ROUNDS):
        try:
            return DesiredState.model_validate(values)
        except ValidationError as error:
            for item in error.errors():
                path = list(_real_path(item, values))
                _drop(values, path[:-1] if item["type"] == "missing" else path)
    return None


_ROUNDS = 4  # a key that was dropped may have been needed, and so may the section that needed it


def _drop(values: dict[str, Any], path: Sequence[str | int]) -> None:
    """Leave out the value at a path; of a list the whole, as lists are given."""
    inside: Any = values
    for number, part in enumerate(path):
        if not isinstance(inside, dict) or part not in inside:
            return
        if number == len(path) - 1 or not isinstance(inside[part], dict):
            del inside[part]
            return
        inside = inside[part]


def _beside(reported: Sequence[Problem], more: Iterable[Problem]) -> list[Problem]:
    """Those of the further problems that stand whatever the reported ones are mended to."""
    paths = [problem.path for problem in reported]
    leaning = {"images": (".image",), "gpu": (".ranks_per_node",)}  # section: ends of the keys that are held against it
    return [
        problem
        for problem in more
        if problem.value != "nothing"
        and not any(f"{problem.path}.".startswith(f"{p}.") or f"{p}.".startswith(f"{problem.path}.") for p in paths)
        and not any(
            p.split(".")[0] == section and problem.path.endswith(ends)
            for section, ends in leaning.items()
            for p in paths
        )
        and not (problem.path.startswith("smoke.environment.") and any(p.startswith("gpu") for p in paths))
    ]


def _validation_problems(error: ValidationError, merged: Merged) -> Iterable[Problem]:
    # A union reports one error per member, at paths that end in the member's name: fold them into one.
    grouped: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    values = asked(merged.values)
    for item in error.errors():
        path = ".".join(str(part) for part in _real_path(item, values))
        expected = _expectation(item)
        if item["type"] == "extra_forbidden":
            *section, key = _real_path(item, values)
            near = difflib.get_close_matches(str(key), _keys_in(section), n=1)
            expected += f" ({near[0]}?)" if near else ""
        grouped[path].append((expected, item["input"]))
    for path, items in grouped.items():
        expected = " or ".join(dict.fromkeys(text for text, _ in items))
        missing = expected == "a value"
        yield Problem(merged.origin_of(path), path, "nothing" if missing else _shown(items[0][1]), expected)


def _real_path(item: Any, values: Any) -> Iterable[str | int]:
    """The part of an error's location that stands in the document (pydantic adds the names of union members), and the
    key that is missing from it."""
    path: list[str | int] = []
    for part in item["loc"]:
        inside = dict(enumerate(values)) if isinstance(values, list) else values
        if isinstance(inside, dict) and part in inside:
            values = inside[part]
            path.append(part)
    return [*path, item["loc"][-1]] if item["type"] == "missing" else path


def _keys_in(section: Sequence[str | int]) -> list[str]:
    """The keys that stand in a section of the desired state, by its path. A name that a site gives, or a number in a
    list, is no section of its own."""
    models: list[type[BaseModel]] = [DesiredState]
    for part in section:
        fields = [model.model_fields[str(part)] for model in models if str(part) in model.model_fields]
        models = [inside for field in fields for inside in _models_in(field.annotation)] or models
    return [key for model in models for key in model.model_fields]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _expectation(item: Any) -> str:
    if item["type"] == "missing":
        return "a value"
    if item["type"] == "extra_forbidden":
        return "no such key"
    if item["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "a section: {KEY: VALUE}"
    message = str(item["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _asked_by(features: Sequence[Feature], state: DesiredState | None, merged: Merged) -> list[Problem]:
    if state is None:
        return []
    return [_placed(problem, merged) for feature in features for problem in feature.of_host(state)]


def _placed(problem: Problem, merged: Merged) -> Problem:
    """The problem with the layer that its value came from."""
    return replace(problem, where=merged.origin_of(problem.path))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
