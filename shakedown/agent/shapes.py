"""Which parts of a document are objects, and of what kind: compiled out of the pydantic models, for a node without it.

A shape is None (a plain value), a model's name, ["list", shape], ["dict", shape]; ["?", shape] for what may be an
unreadable part instead, and "?" for a plain value that may; see shakedown/node/agent/plain.py.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from shakedown.node.agent.plain import MAYBE
from shakedown.state import Unreadable

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def compiled(roots: Mapping[type[BaseModel], Collection[str] | None]) -> dict[str, Any]:
    """`models`: name -> the shapes of its fields that are not plain; `defaults`: name -> what a document may leave out.
    Of these models (with None: of all their fields) and of all that are in them. Raises TypeError for a field that is
    of several kinds at once."""
    models: dict[str, dict[str, Any]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        name = name_of(model)
        if name in models:
            continue
        only = roots.get(model)
        fields = {key: field for key, field in model.model_fields.items() if only is None or key in only}
        shapes = {key: shape(field.annotation, waiting) for key, field in fields.items()}
        models[name] = {key: value for key, value in shapes.items() if value is not None}
        defaults[name] = {
            key: _ANY.dump_python(field.get_default(call_default_factory=True), mode="json")
            for key, field in fields.items()
            if not field.is_required() and not _takes_data(field.default_factory)
        }
    return {"models": models, "defaults": defaults}


def name_of(model: type[BaseModel]) -> str:
    """What a node calls a model. It has classes for some of the node state's; the others are told apart by module."""
    return model.__name__ if model.__module__ == Unreadable.__module__ else f"{model.__module__}.{model.__name__}"


def shape(annotation: Any, waiting: list[type[BaseModel]]) -> Any:
    """The shape of a field's annotation; the models in it are added to `waiting`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return shape(arguments[0], waiting)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation is Unreadable:
            return MAYBE
        waiting.append(annotation)
        return name_of(annotation)
    if origin in (Union, types.UnionType):
        kinds = [found for each in arguments if (found := shape(each, waiting)) is not None]
        objects = [each for each in kinds if each != MAYBE]
        if len(objects) > 1:
            raise TypeError(f"{annotation} is of several kinds at once")
        if not objects:
            return kinds[0] if kinds else None
        return [MAYBE, objects[0]] if MAYBE in kinds else objects[0]
    if origin in (list, tuple) or annotation is list:
        return ["list", shape(arguments[0], waiting) if arguments else None]
    if origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return ["dict", shape(arguments[1], waiting)]
    return None


def _takes_data(factory: Any) -> bool:
    return getattr(getattr(factory, "__code__", None), "co_argcount", 0) > 0
