"""What pure functions of a node's state return, remembered by what they read of it.

Nodes of a rack are equal in nearly all that a check looks at. Nobody declares what that is: the first time, a function
runs once more over a stand-in for the state that notes which fields it reads. Where another state has equal values in
all of these, the function reads the same there and returns the same.
"""

from collections.abc import Callable
from marshal import dumps
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

_MOST_WAYS, _MOST_RESULTS, _MOST_FUNCTIONS = 4, 256, 1200
_TRIES = 16  # states of which a function's results are remembered before one is found again; later one for 16 found
_KIND = "__class__.__name__"


class Memory:
    """Results by function and desired state, which is compared by identity. A result must not be changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, int], _Known] = {}

    def ask(self, function: Callable[[Any, Any], Any], desired: Any, state: BaseModel) -> Any:
        """Return what the function returns of the two; what it raises is not remembered. A function may ask for others:
        while what it reads is found, nothing is remembered of these."""
        if isinstance(state, _Standin):
            return function(desired, state)
        place = function, id(desired)
        known = self._known.get(place)
        if known is None:
            if len(self._known) >= _MOST_FUNCTIONS:
                return function(desired, state)
            known = self._known[place] = _Known(desired)
        for read, results in known.ways:
            try:
                result = results.get(dumps(read(state), 2), known)
            except (AttributeError, TypeError, ValueError):  # the state has another shape
                continue
            if result is not known:
                known.found += 1
                return result
        result = function(desired, state)
        if known.tries < _TRIES + known.found // 16:
            known.add(function, state, result)
        elif not known.found:
            known.ways = []
        return result


class _Known:
    """`ways`: what the function read, by which values, of one state after the other. Version 2 of marshal writes equal
    bytes for equal values of equal types alone: 1, 1.0, and True differ, and so do 0.0 and -0.0."""

    def __init__(self, desired: Any) -> None:
        self.desired, self.tries, self.found = desired, 0, 0  # held, so that no other gets its identity
        self.ways: list[tuple[Callable[[Any], Any], dict[bytes, Any]]] = []
        self._paths: list[str] = []

    def add(self, function: Callable[[Any, Any], Any], state: BaseModel, result: Any) -> None:
        self.tries += 1
        top = _Read()
        try:
            if function(self.desired, _Standin(state, top)) != result:
                return
            paths, read = repr(top), top.reader()
            key = dumps(read(state), 2)
        except Exception:  # as above: it does more with the state than reading fields
            return
        if paths not in self._paths:
            if len(self.ways) == _MOST_WAYS:
                return
            self._paths.append(paths)
            self.ways.append((read, {}))
        _, results = self.ways[self._paths.index(paths)]
        if len(results) < _MOST_RESULTS:
            results[key] = result


class _Read:
    """What was read of a value: the fields of a model, or what was read of the items of a list or a dictionary. Of
    nothing but that it is there its kind counts, and of what is no model all of it."""

    def __init__(self) -> None:
        self.fields: dict[str, _Read] = {}
        self.items: _Read | None = None
        self.kind: type = BaseModel

    def __repr__(self) -> str:
        fields = ",".join(f"{name}:{read!r}" for name, read in sorted(self.fields.items()))
        return f"{self.kind.__name__}({fields}){self.items or ''}"

    def seen(self, value: Any) -> Any:
        """Return the value, or what stands for it."""
        if isinstance(value, BaseModel):
            return _Standin(value, self)
        self.kind = value.__class__
        inner = list(value.values() if self.kind is dict else value if self.kind is list else ())
        if not any(isinstance(item, (BaseModel, list, dict)) for item in inner):
            return value
        self.items = self.items or _Read()
        standins = [self.items.seen(item) for item in inner]
        return standins if self.kind is list else dict(zip(value, standins, strict=True))

    def all_of(self, value: Any) -> None:
        """Note that all of a value was read."""
        if isinstance(value, BaseModel):
            self.fields.setdefault(_KIND, _Read())
            for name, part in value.__dict__.items():
                self.fields.setdefault(name, _Read()).all_of(part)
            return
        self.seen(value)
        if self.items:
            for item in value.values() if self.kind is dict else value:
                self.items.all_of(item)

    def reader(self) -> Callable[[Any], Any]:
        """Return a function that takes the same out of another value. It raises AttributeError or TypeError for a
        value of another shape."""
        if self.items:
            return _of_items(self.kind, self.items.reader())
        if self.kind is not BaseModel:
            return lambda value: value
        leaves: list[str] = []
        parts: list[tuple[str, Callable[[Any], Any]]] = []
        self._sort("", leaves, parts)
        if not parts:
            return attrgetter(*leaves)
        get, count = attrgetter(*leaves, _KIND, *(path for path, _ in parts)), len(leaves) + 1
        readers = [read for _, read in parts]

        def read(value: Any) -> Any:
            values = get(value)
            return values[:count], [read(part) for read, part in zip(readers, values[count:], strict=True)]

        return read

    def _sort(self, path: str, leaves: list[str], parts: list[tuple[str, Callable[[Any], Any]]]) -> None:
        """Sort what was read of a model into dotted paths to a value, and paths to lists and dictionaries of models."""
        for name, read in sorted(self.fields.items()) or [(_KIND, _Read())]:  # whichever was read first
            if read.items:
                parts.append((path + name, read.reader()))
            elif read.kind is BaseModel and name != _KIND:
                read._sort(f"{path}{name}.", leaves, parts)
            else:
                leaves.append(path + name)


def _of_items(kind: type, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of_list(value: Any) -> Any:
        found: type = value.__class__
        if found is not kind:
            raise TypeError
        return list(map(read, value)) if kind is list else [*value, *map(read, value.values())]

    return of_list


class _Standin:
    """Stands for a part of the state, and notes which fields of it are read."""

    __slots__ = ("_of",)

    def __init__(self, part: BaseModel, read: _Read) -> None:
        object.__setattr__(self, "_of", (part, read))

    def __getattribute__(self, name: str) -> Any:
        part, read = object.__getattribute__(self, "_of")
        kind = part.__class__
        if name == "__class__":
            return kind
        if name in kind.model_fields:
            return read.fields.setdefault(name, _Read()).seen(getattr(part, name))
        if isinstance(own := getattr(kind, name, None), property):
            return own.__get__(self)
        read.all_of(part)
        return getattr(part, name)

    def __eq__(self, other: object) -> bool:
        return bool(_whole(self) == _whole(other))

    def __hash__(self) -> int:
        return hash(_whole(self))

    def __str__(self) -> str:
        return str(_whole(self))

    def __format__(self, form: str) -> str:
        return format(_whole(self), form)

    __repr__ = __str__


def _whole(value: Any) -> Any:
    """Return what a stand-in stands for, all of which counts as read then."""
    if type(value) is not _Standin:
        return value
    part, read = object.__getattribute__(value, "_of")
    read.all_of(part)
    return part
