"""Many states in little memory: what is equal in them is held once."""

from types import NoneType
from typing import Any

from pydantic import BaseModel

from shakedown.state.node.document import NodeState

_MOST_SHARED, _LONGEST_SHARED = 100_000, 200  # texts, and characters of one
_texts: dict[str, str] = {}
_field_names: dict[frozenset[str], set[str]] = {}


def shared(state: NodeState) -> NodeState:
    """Return the same state, with texts and sets of field names held once that other nodes' states have too. A thousand
    nodes take a quarter of the memory so. Parts are frozen: a change of a shared value cannot happen."""
    _share(state)
    return state


def share_given(model: BaseModel) -> None:
    """Hold equal sets of names of set fields once for all models: the set is larger than most of their values."""
    names = model.__pydantic_fields_set__
    object.__setattr__(model, "__pydantic_fields_set__", _field_names.setdefault(frozenset(names), names))


def _share(value: Any) -> Any:
    if value.__class__ is str:
        if len(_texts) >= _MOST_SHARED or len(value) > _LONGEST_SHARED:
            return _texts.get(value, value)
        return _texts.setdefault(value, value)
    if isinstance(value, BaseModel):
        share_given(value)
        _share_items(value.__dict__)
    elif value.__class__ is dict:
        _share_items(value)
    elif value.__class__ is list:
        value[:] = map(_share, value)
    elif value.__class__ is tuple:
        return tuple(map(_share, value))
    return value


def _share_items(items: dict[str, Any]) -> None:
    for key, value in items.items():
        if value.__class__ not in (int, float, bool, NoneType):
            items[key] = _share(value)
