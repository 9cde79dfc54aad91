"""From a merged document to the typed desired state, or to problems in the words of the document.

Pydantic reports one error per member of a union, at locations that no document has. Here each becomes one problem at
the path that a person wrote.
"""

import copy
import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from shakedown.desired.layers import Merged, without_none
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem, shown

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
            near = difflib.get_close_matches(str(key), _keys_in(section), n=1)
            expected += f" ({near[0]}?)" if near else ""
        grouped[".".join(map(str, parts))].append((expected, item["input"]))
    for path, items in grouped.items():
        expected = " or ".join(dict.fromkeys(text for text, _ in items))
        missing = expected == "a value"
        yield Problem(merged.origin_of(path), path, "nothing" if missing else shown(items[0][1]), expected)


def _document_path(item: Any, values: Any) -> Iterable[str | int]:
    """Return the part of an error's location that stands in the document, and the key that is missing from it.

    Pydantic adds the names of union members to a location.
    """
    path: list[str | int] = []
    for part in item["loc"]:
        inside = dict(enumerate(values)) if isinstance(values, list) else values
        if isinstance(inside, dict) and part in inside:
            values = inside[part]
            path.append(part)
    return [*path, item["loc"][-1]] if item["type"] == "missing" else path


def _keys_in(section: Sequence[str | int]) -> list[str]:
    """Return the keys of a section of the desired state, by its path.

    A name that a site gives, or a number in a list, is no section of its own.
    """
    models: list[type[BaseModel]] = [DesiredState]
    for part in section:
        fields = [model.model_fields[str(part)] for model in models if str(part) in model.model_fields]
        models = [inside for field in fields for inside in _models_in(field.annotation)] or models
    return [key for model in models for key in model.model_fields]


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return a dotted key as sections: smoke.iterations. What a section of names holds is one key of it, with its dots:
    tuning.sysctl.vm.swappiness."""
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


def _expectation(item: Any) -> str:
    if item["type"] == "missing":
        return "a value"
    if item["type"] == "extra_forbidden":
        return "no such key"
    if item["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "a section: {KEY: VALUE}"
    message = str(item["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return message[0].lower() + message[1:]
