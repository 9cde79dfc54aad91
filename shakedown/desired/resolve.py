"""From an inventory's layers and profiles to one DesiredState per host, with every error of every host at once.
Pydantic's errors for members of a union become one problem at the path that a person wrote."""

import copy
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from shakedown.common.lists import grouped
from shakedown.common.nearest import nearest
from shakedown.desired import profiles
from shakedown.desired.cvs.document import Imported
from shakedown.desired.cvs.importing import import_named
from shakedown.desired.layers import HostLayers, Layer, Merged, leaves, merge, without_none
from shakedown.desired.models import NO_PROMISE, DesiredState
from shakedown.desired.problems import DesiredStateError, Problem, one_of, shown

# What a site writes at the top of its layers. `nic` chooses the NIC family, as `gpu` chooses the GPU model, and `cvs`
# names a CVS configuration file, which is one more layer below the site's own.
KEYS = (*DesiredState.model_fields, "nic", "cvs")

# Section -> the kind of the profile that it names, the key with the name, and the profile of a node that names none.
_PROFILES = {"gpu": ("gpu", "profile", "cpu"), "rdma": ("nic", "family", None)}
# Files of the controller, where {home} is the home of its own user. In any other value it is the node's.
_ON_CONTROLLER = {"hf_token_file", "password_file", "ca_file", "patches", "source"}


def merge_host(host: HostLayers, imported: Imported | None = None) -> tuple[Merged, list[Problem]]:
    """Merge a host's layers over the profiles that they name. Return also what is wrong before anything is typed."""
    problems: list[Problem] = []
    site: list[Layer] = []
    lowest = [Layer(imported.name, imported.values)] if imported is not None else []
    for layer in [*lowest, *host.layers]:
        values = {key: value for key, value in layer.values.items() if key in KEYS}
        site.append(Layer(layer.name, _substitute(_long_form(values), host.user)))

    named, unknown = _named_profiles(merge(site))
    problems += unknown
    below = [Layer("defaults", profiles.defaults()), *named]
    merged = merge([*below, *site])
    if merged.values.get("gpu") is None:  # taken back, with the profile of a lower layer: a machine without GPUs
        merged = merge([*below, *site, Layer("profile cpu", profiles.load("gpu", "cpu"))])
    problems += _placeholders(merged)
    return merged, problems


def _named_profiles(chosen: Merged) -> tuple[list[Layer], list[Problem]]:
    layers, problems = [], []
    for section, (kind, key, fallback) in _PROFILES.items():
        part = chosen.values.get(section)
        name = part.get(key, fallback) if isinstance(part, dict) else fallback
        if name is None or "<changeme>" in str(name):
            continue
        if isinstance(name, str) and name in profiles.names(kind):
            layers.append(Layer(f"profile {name}", profiles.load(kind, name)))
            continue
        path = f"{section}.{key}"
        expected = one_of(str(name), profiles.names(kind))
        problems.append(Problem(chosen.origin_of(path), path, repr(name), expected))
    return layers, problems


def _long_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Expand short forms: gpu = "mi300x", nic = "thor2", images = {...: "name:tag"}, container_engine = "docker"."""
    long = {key: value for key, value in values.items() if key not in ("nic", "cvs")}
    if isinstance(long.get("gpu"), str):
        long["gpu"] = {"profile": long["gpu"]}
    if "nic" in values:
        rdma = long.get("rdma", {})
        long["rdma"] = {**rdma, "family": values["nic"]} if isinstance(rdma, Mapping) else rdma
    system = long.get("system")
    if isinstance(system, Mapping) and isinstance(name := system.get("container_engine"), str):
        long["system"] = {**system, "container_engine": {"name": name}}
    if isinstance(long.get("images"), Mapping):
        long["images"] = {
            name: {"reference": image} if isinstance(image, str) else image for name, image in long["images"].items()
        }
    return long


def _substitute(value: Any, user: str, on_controller: bool = False) -> Any:
    if isinstance(value, str):
        home = "~" if on_controller else "/root" if user == "root" else HOME
        return value.replace("{user-id}", user).replace(HOME, home)
    if isinstance(value, Mapping):
        return {
            _substitute(key, user): _substitute(item, user, key in _ON_CONTROLLER and not isinstance(item, Mapping))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_substitute(item, user, on_controller) for item in value]
    return value


def _placeholders(merged: Merged) -> list[Problem]:
    problems = []
    for path, value in leaves(merged.values):
        texts = [path, *(value if isinstance(value, list) else [value])]
        if any(isinstance(text, str) and "<changeme>" in text for text in texts):
            problems.append(Problem(merged.origin_of(path), path, shown(value), "a value in place of <changeme>"))
    return problems


HOME = "{home}"


def at_home(desired: DesiredState, home: str | None) -> DesiredState:
    """Return the desired state with the node's own home folder, unchanged where it needs none or none is known."""
    if home is None or HOME not in (text := desired.model_dump_json()):
        return desired
    return DesiredState.model_validate_json(text.replace(HOME, json.dumps(home)[1:-1]))


_ROUNDS = 4  # a key that was dropped may have been needed, and so may the section that needed it
# A section -> ends of the keys that are judged by it. They are wrong only because the section is.
_JUDGED_BY = {"images": (".image",), "gpu": (".ranks_per_node",)}


def validate(merged: Merged) -> tuple[DesiredState | None, list[Problem]]:
    """Return the typed desired state; None with all the problems where there is none."""
    try:
        return DesiredState.model_validate(without_none(merged.values)), []
    except ValidationError as error:
        return None, list(_problems_of(error, merged))


def usable_part(merged: Merged) -> DesiredState | None:
    """Return the desired state without the values that have no meaning, so that the others can be checked too."""
    values = copy.deepcopy(without_none(merged.values))
    for _ in range(_ROUNDS):
        try:
            return DesiredState.model_validate(values)
        except ValidationError as error:
            for item in error.errors():
                path = list(_document_path(item, values))
                _drop(values, path[:-1] if item["type"] == "missing" else path)
    return None


def _drop(values: dict[str, Any], path: Sequence[str | int]) -> None:
    """Leave out the value at a path; a list as a whole, as lists are written."""
    inside: Any = values
    for number, part in enumerate(path):
        if not isinstance(inside, dict) or part not in inside:
            return
        if number == len(path) - 1 or not isinstance(inside[part], dict):
            del inside[part]
            return
        inside = inside[part]


def independent(more: Iterable[Problem], reported: Sequence[Problem]) -> list[Problem]:
    """Return those of the further problems that remain, however the reported ones are repaired."""
    paths = [problem.path for problem in reported]
    sections = {path.split(".")[0] for path in paths}
    return [problem for problem in more if problem.value != "nothing" and not _follows(problem.path, paths, sections)]


def _follows(path: str, reported: Sequence[str], sections: set[str]) -> bool:
    """Return whether a problem may follow from one that is reported: inside it, around it, or judged by it."""
    if any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in reported):
        return True
    if any(section in sections and path.endswith(ends) for section, ends in _JUDGED_BY.items()):
        return True
    return path.startswith("smoke.environment.") and any(other.startswith("gpu") for other in reported)


def _problems_of(error: ValidationError, merged: Merged) -> Iterator[Problem]:
    grouped: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    values = without_none(merged.values)
    for item in error.errors():
        parts = list(_document_path(item, values))
        expected = _expectation(item)
        if item["type"] == "extra_forbidden":
            *section, key = parts
            near = nearest(str(key), _keys_in(section)) or " or ".join(paths_of(str(key)))
            expected += f" ({near}?)" if near else ""
        grouped[".".join(map(str, parts))].append((expected, item["input"]))
    for path, items in grouped.items():
        expected = " or ".join(dict.fromkeys(text for text, _ in items))
        missing = expected == "a value"
        yield Problem(merged.origin_of(path), path, "nothing" if missing else shown(items[0][1]), expected)


def _document_path(item: Any, values: Any) -> Iterable[str | int]:
    """Return an error location without pydantic's union members, and the key that is missing from it."""
    path: list[str | int] = []
    for part in item["loc"]:
        inside = dict(enumerate(values)) if isinstance(values, list) else values
        if isinstance(inside, dict) and part in inside:
            values = inside[part]
            path.append(part)
    return [*path, item["loc"][-1]] if item["type"] == "missing" else path


def _keys_in(section: Sequence[str | int]) -> list[str]:
    """Return a section's keys by its path; a site's name, or a number in a list, is no section."""
    models: list[type[BaseModel]] = [DesiredState]
    for part in section:
        fields = [model.model_fields[str(part)] for model in models if str(part) in model.model_fields]
        models = [inside for field in fields for inside in _models_in(field.annotation)] or models
    return [key for model in models for key in model.model_fields]


@cache
def _paths() -> Mapping[str, list[str]]:
    """Return the paths of the keys in sections, by the last part of each in small letters."""

    def below(model: type[BaseModel], path: str) -> Iterator[tuple[str, str]]:
        for name, key in model.model_fields.items():
            yield name, path + name
            for inside in _models_in(key.annotation):
                yield from below(inside, f"{path}{name}.{'NAME.' if 'dict[' in str(key.annotation) else ''}")

    return grouped(below(DesiredState, ""))


_FEW = 4  # paths that are spelt out


def paths_of(key: str) -> list[str]:
    """Return the full names of a key that a site wrote outside its section; nothing where there are many."""
    found = [path for path in _paths().get(key.lower(), ()) if "." in path]
    return found if len(found) <= _FEW else []


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return a dotted key as sections; in a section of names the rest is one key: tuning.sysctl.vm.swappiness."""
    *sections, last = key.split(".")
    models: list[type[BaseModel]] = [DesiredState]
    for number, part in enumerate(sections):
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        models = [inside for field in fields for inside in _models_in(field.annotation)] if fields else models
        if not models:
            sections, last = sections[: number + 1], ".".join([*sections[number + 1 :], last])
            break
    values: dict[str, Any] = {last: value}
    for part in reversed(sections):
        values = {part: values}
    return values


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


# What pydantic calls by its own words, and how a site writes it.
_WRITTEN = {
    "int_type": "a valid integer, without quotation marks",
    "float_type": "a valid number, without quotation marks",
    "bool_type": "a valid boolean, True or False",
    "list_type": 'a valid list, as ["a", "b"]',
    "string_type": 'a valid string, as "a"',
}


def _expectation(item: Any) -> str:
    if item["type"] == "missing":
        return "a value"
    if item["type"] == "extra_forbidden":
        return "no such key"
    if item["type"] in _WRITTEN:
        return _WRITTEN[item["type"]].split(", without" if not isinstance(item["input"], str) else "\n")[0]
    if item["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "a section: {KEY: VALUE}"
    message = str(item["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return message[0].lower() + message[1:]


@dataclass(frozen=True)
class Resolved:
    """The desired states, the merged layers behind them (`shakedown show`), and notes on their CVS files."""

    states: dict[str, DesiredState]
    merged: dict[str, Merged]
    notes: dict[str, None] = field(default_factory=dict)  # in order, without repetition
    of_job: tuple[Problem, ...] = ()  # what a job over all hosts would be refused for


@dataclass(frozen=True)
class Feature:
    """What a feature checks in a desired state beyond the types of its section. `resolve` adds the layer of a value."""

    of_host: Callable[[DesiredState], Iterable[Problem]] = lambda state: ()
    of_hosts: Callable[[Mapping[str, DesiredState], bool, bool], Iterable[tuple[str, Problem]]] = (
        lambda states, whole, to_train: ()
    )
    """Over the states by host, with `whole` and `to_train` as in `resolve`: (the host whose layer is meant, problem)"""


def resolve(
    hosts: Iterable[HostLayers], features: Sequence[Feature], whole: bool = False, to_train: bool = False
) -> Resolved:
    """Merge and validate. Raises DesiredStateError with all problems. `whole`: all hosts of the inventory, so their
    number counts. `to_train`: a job must divide among these hosts."""
    hosts_with: dict[Problem, list[str]] = defaultdict(list)
    resolved = Resolved({}, {})
    before: HostLayers | None = None
    for host in hosts:
        if before is None or (host.layers, host.user) != (before.layers, before.user):  # most are as the one before
            merged, state, problems = _resolve_host(host, features, resolved.notes)
        before = host
        resolved.merged[host.name] = merged
        if state is not None:
            resolved.states[host.name] = state
        for problem in problems:
            hosts_with[problem].append(host.name)
    _check_hosts(features, resolved, whole, to_train, hosts_with)
    if hosts_with:
        raise DesiredStateError(_of_hosts(hosts_with))
    of_job: dict[Problem, list[str]] = defaultdict(list)
    if whole and not to_train:
        _check_hosts(features, resolved, whole, True, of_job)
    return replace(resolved, of_job=tuple(_of_hosts(of_job)))


def _check_hosts(
    features: Sequence[Feature], resolved: Resolved, whole: bool, to_train: bool, found: dict[Problem, list[str]]
) -> None:
    """Run the features' own checks over the hosts."""
    for feature in features:
        for name, problem in feature.of_hosts(resolved.states, whole, to_train):
            found[_with_layer(problem, resolved.merged[name])].append(name)


def _of_hosts(found: Mapping[Problem, Sequence[str]]) -> list[Problem]:
    return [replace(problem, hosts=tuple(names)) for problem, names in sorted(found.items())]


def _resolve_host(
    host: HostLayers, features: Sequence[Feature], notes: dict[str, None]
) -> tuple[Merged, DesiredState | None, list[Problem]]:
    """Return a host's merged layers, its desired state where it is valid, and the problems. Remarks go to the notes."""
    imported, problems = import_named(host.layers)
    lacking = {"smoke"} if problems else set()  # sections that a file was to bring
    if imported is not None:
        notes.update(dict.fromkeys(f"{imported.name}: {remark}" for remark in imported.remarks))
    merged, more = merge_host(host, imported)
    problems += more
    state, invalid = validate(merged)
    if state is not None:
        return merged, state, problems + _check(features, state, merged)
    # What a placeholder or an unknown profile leads to is not a second error.
    reported = tuple(problem.path for problem in problems)
    sections = lacking | {path.split(".")[0] for path in reported if path in ("gpu.profile", "rdma.family")}
    problems += [
        problem
        for problem in invalid
        if not problem.path.startswith(reported)
        and not (problem.value == "nothing" and problem.path.split(".")[0] in sections)
    ]
    usable = usable_part(merged)
    return merged, None, problems + independent(_check(features, usable, merged) if usable else [], problems)


def asks(host: HostLayers) -> bool:
    """Return whether the site requests anything of this host: by the defaults alone a forgotten host would pass."""
    nothing: tuple[Any, ...] = (None, "", {}, [])
    values = (item for layer in host.layers for item in layer.values.items())
    keys = set(KEYS) - NO_PROMISE
    return any(key in keys and value not in nothing for key, value in values)


def _check(features: Sequence[Feature], state: DesiredState, merged: Merged) -> list[Problem]:
    return [_with_layer(problem, merged) for feature in features for problem in feature.of_host(state)]


def _with_layer(problem: Problem, merged: Merged) -> Problem:
    return replace(problem, where=merged.origin_of(problem.path))
