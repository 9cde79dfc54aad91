"""Many states in little memory: what is equal in them is held once."""

from typing import Any

from pydantic import BaseModel

from shakedown.state.node.document import NodeState

_MOST_SHARED, _LONGEST_SHARED = 100_000, 200  # texts, and characters of one
_MOST_PARTS = 20_000
_LARGEST = 1 << 64  # of a number: the largest counters of the kernel are below
_texts: dict[str, str] = {}
_field_names: dict[frozenset[str], set[str]] = {}
_parts: dict[tuple[Any, ...], BaseModel] = {}
_apart: set[type] = set()  # kinds of parts with lists or dictionaries in them


def shared(state: NodeState, odd: list[Any] | None = None) -> NodeState:
    """Return the same state, with texts, parts and sets of field names held once that other nodes' states have too. A
    thousand nodes take a sixth of the memory so. Parts are frozen: a change of a shared value cannot happen. `odd`
    collects the values that `sound` would look at: texts that are not plain, and numbers of more than 64 bits."""
    share_given(state)
    _share_items(state.__dict__, [] if odd is None else odd)
    return state


def share_given(model: BaseModel) -> None:
    """Hold equal sets of names of set fields once for all models: the set is larger than most of their values."""
    names = model.__pydantic_fields_set__
    object.__setattr__(model, "__pydantic_fields_set__", _field_names.setdefault(frozenset(names), names))


def share_texts(model: BaseModel) -> None:
    """Hold the texts of a model once that others have too."""
    share_given(model)
    _share_items(model.__dict__, [])


def _share_items(items: dict[Any, Any], odd: list[Any]) -> None:
    for key, value in items.items():
        kind = value.__class__
        if kind is str:
            items[key] = _share_text(value, odd)
        elif kind is int or kind is float:
            if not -_LARGEST <= value <= _LARGEST:
                odd.append(value)
        elif kind is list:
            held = dict(enumerate(value))
            _share_items(held, odd)
            value[:] = held.values()
        elif kind is dict:
            odd += [name for name in value if not (name.isascii() and name.isprintable())]
            _share_items(value, odd)
        elif isinstance(value, BaseModel):
            share_given(value)
            _share_items(value.__dict__, odd)
            items[key] = _share_part(value)


def _share_part(part: BaseModel) -> BaseModel:
    """Return an equal part that is held, where its values can be looked up: lists and dictionaries cannot."""
    kind = part.__class__
    if kind in _apart:
        return part
    values = part.__dict__.values()
    try:
        key = (kind, id(part.__pydantic_fields_set__), *values, *map(type, values))
        return _parts.setdefault(key, part) if len(_parts) < _MOST_PARTS else _parts.get(key, part)
    except TypeError:
        _apart.add(kind)
        return part


def _share_text(text: str, odd: list[Any]) -> str:
    if not (text.isascii() and text.isprintable()):
        odd.append(text)
    if len(_texts) >= _MOST_SHARED or len(text) > _LONGEST_SHARED:
        return _texts.get(text, text)
    return _texts.setdefault(text, text)
