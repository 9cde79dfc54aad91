"""docs/reference/configuration.md: every key of the desired state, from the models and the profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shakedown.desired import profiles
from shakedown.desired.layers import leaves
from shakedown.desired.models import DesiredState, Section
from shakedown.recipes.documents import documents
from tests.docs.keys import Key, keys_of
from tests.docs.markdown import code, prose, summary, table

_HEAD = ("key", "type", "default", "example", "given by", "what it asks for")
_WORDS = {bool: "`True` or `False`", int: "integer", float: "number", str: "text"}


def sections() -> str:
    """The sections and what each asks for."""
    rows = []
    for name, field in DesiredState.model_fields.items():
        model = _model(field.annotation)
        keys = ", ".join(f"`{key}`" for key in model.model_fields) if model else "a list"
        rows.append((f"[`{name}`](#{name})", prose(keys_of(DesiredState)[name].text), keys))
    return table(("section", "what it asks for", "keys"), rows)


def keys() -> str:
    """One table for each section, with the sections inside it after it."""
    given = _given()
    text = []
    for name, field in DesiredState.model_fields.items():
        model = _model(field.annotation)
        if model is None:  # a key without a section around it
            text.append(f"### {name}\n\n{table(_HEAD, [_row(name, field, keys_of(DesiredState)[name], given)])}")
            continue
        text.append(f"### {name}\n\n{summary(model)}\n")
        where = f"{name}.NAME" if get_origin(field.annotation) is dict else name
        text.append(_table(model, where, given))
    return "\n".join([*text, _references()])


def _table(model: type[BaseModel], where: str, given: Mapping[str, set[str]]) -> str:
    rows = []
    inner = []
    for name, field in model.model_fields.items():
        path = f"{where}.{name}"
        below = _model(field.annotation)
        if below is not None:
            inner.append((below, path + ("[]" if get_origin(_bare(field.annotation)) is list else "")))
        rows.append(_row(path, field, keys_of(model)[name], given))
    parts = [table(_HEAD, rows)]
    for below, path in inner:
        parts.append(f"\n`{path}`: {summary(below)}\n\n{_table(below, path, given)}")
    return "".join(parts)


def _row(path: str, field: FieldInfo, key: Key, given: Mapping[str, set[str]]) -> tuple[str, ...]:
    example = "" if key.example is None else code(key.example)
    return f"`{path}`", _kind(field, key), _default(field), example, _layers(path, given), _about(key)


def _bare(annotation: Any) -> Any:
    """The annotation without None beside it."""
    others = [each for each in get_args(annotation) if each is not NoneType]
    return others[0] if get_origin(annotation) in (Union, UnionType) and len(others) == 1 else annotation


def _model(annotation: Any) -> type[Section] | None:
    """The section that an annotation holds, once, in a list or by name."""
    bare = _bare(annotation)
    for each in (bare, *get_args(bare)):
        if isinstance(each, type) and issubclass(each, Section):
            return each
    return None


def _kind(field: FieldInfo, key: Key) -> str:
    text = " or ".join(dict.fromkeys(_words(field.annotation)))
    if key.unit == "bytes" and "G" in str(key.example):
        text += ' or a size as `"64G"`'
    return f"{text}, {key.unit}" if key.unit else text


def _words(annotation: Any) -> Iterator[str]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _words(arguments[0])
    elif origin in (Union, UnionType):
        for each in arguments:
            yield from _words(each)
    elif origin is Literal:
        yield from (code(each) for each in arguments)
    elif origin is list:
        yield f"list of {' or '.join(dict.fromkeys(_words(arguments[0])))}"
    elif origin is dict:
        first, second = (" or ".join(dict.fromkeys(_words(each))) for each in arguments)
        yield f"{first} -> {second}"
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        yield "section"
    elif annotation is not NoneType:
        yield _WORDS[annotation]


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default in (None, [], {}) or isinstance(field.default, Section):
        return ""
    return code(field.default)


def _about(key: Key) -> str:
    source = f" ([{documents()[key.source].title}][{key.source}])" if key.source else ""
    return prose(key.text) + source


def _references() -> str:
    """The addresses of the links, apart from the table that is long enough without them."""
    return "".join(f"[{name}]: {each.url}\n" for name, each in documents().items() if each.url)


def _given() -> dict[str, set[str]]:
    """Dotted path -> the layers below the site's own that give it."""
    found: dict[str, set[str]] = {}
    layers = [("defaults", profiles.defaults())]
    for kind in ("gpu", "nic"):
        layers += [(f"{kind.upper()} profile", profiles.load(kind, name)) for name in profiles.names(kind)]
    for layer, values in layers:
        for path, _ in leaves(values):
            found.setdefault(path, set()).add(layer)
    return found


def _layers(path: str, given: Mapping[str, set[str]]) -> str:
    layers = {layer for each, names in given.items() if each == path or each.startswith(f"{path}.") for layer in names}
    return ", ".join([*sorted(layers, key=("defaults", "GPU profile", "NIC profile").index), "site"])
