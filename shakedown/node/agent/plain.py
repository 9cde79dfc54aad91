"""What the checks' modules are written with, for a node: it has no pydantic, may be Python 3.8, and should not pay for
`dataclasses` (8 ms) at every run. `shakedown/agent/carried.py` has their imports lead here.

Nothing is validated: a document that gets here was made by the probe of the same program, or by the controller from
a validated desired state. Which of its parts are objects of what kind says the shape that the controller compiles from
the models themselves.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, Type

REQUIRED = object()
MAYBE = "?"  # the shape of a plain value that may be an unreadable part; None: of one that is what it is
MODELS: Dict[str, Dict[str, Any]] = {}  # name -> the shapes of its fields, where they are not plain
DEFAULTS: Dict[str, Dict[str, Any]] = {}  # name -> what a field has that a document leaves out
_KINDS: Dict[str, Type[BaseModel]] = {}


class Made:
    """A default that is made anew for each object."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def value(self, given: Dict[str, Any]) -> Any:
        takes = getattr(getattr(self.make, "__code__", None), "co_argcount", 0)
        return self.make(given) if takes else self.make()


def Field(default: Any = REQUIRED, default_factory: Any = None, **_: Any) -> Any:
    return default if default_factory is None else Made(default_factory)


field = Field
ConfigDict = dict


def model_validator(mode: str) -> Callable[[Any], Any]:
    """Only those that run after an object was made: the checks' findings have one."""
    if mode != "after":
        raise ValueError("model_validator: " + mode)

    def mark(function: Any) -> Any:
        function.is_validator = True
        return function

    return mark


def _fields(kind: type) -> Dict[str, Any]:
    """The fields of a class with their defaults: carried.py writes down those of each class body."""
    found: Dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found.update(each.__dict__.get("__fields__", {}))
    return found


def _fill(thing: Any, given: Dict[str, Any]) -> None:
    values = thing.__dict__
    for name, default in _fields(type(thing)).items():
        if name in given:
            values[name] = given.pop(name)
        elif default is REQUIRED:
            raise TypeError("{}: no {}".format(type(thing).__name__, name))
        else:
            values[name] = default.value(values) if isinstance(default, Made) else default
    if given:
        raise TypeError("{}: unknown {}".format(type(thing).__name__, ", ".join(given)))


class BaseModel:
    """An object made from values, or seen through its document, whose parts become objects when they are asked for."""

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    def __init__(self, **given: Any) -> None:
        _fill(self, given)
        for validate in _validators(type(self)):
            validate(self)

    def __getattr__(self, name: str) -> Any:
        raw = self.__dict__.get("_raw")
        if raw is None:
            raise AttributeError(name)
        kind = self.__dict__["_kind"]
        value = raw[name] if name in raw else DEFAULTS.get(kind, {}).get(name, REQUIRED)
        if value is REQUIRED:
            raise AttributeError("{} has no {}".format(kind, name))
        value = self.__dict__[name] = view(value, MODELS.get(kind, {}).get(name))
        return value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash(repr(self.model_dump()))

    @classmethod
    def model_validate(cls, values: Dict[str, Any]) -> Any:
        return cls(**values)

    def model_dump(self, exclude_none: bool = False, mode: str = "json") -> Dict[str, Any]:
        """The document; of the probe's objects the one that they were made from, which nobody may change."""
        raw = self.__dict__.get("_raw")
        if raw is not None:
            whole = dict(DEFAULTS.get(self.__dict__["_kind"], {}), **raw)
            return {name: value for name, value in whole.items() if value is not None} if exclude_none else whole
        values = {name: dumped(self.__dict__[name]) for name in _fields(type(self))}
        return {name: value for name, value in values.items() if value is not None} if exclude_none else values


def _validators(kind: type) -> Iterator[Callable[[Any], Any]]:
    for each in kind.__mro__:
        for value in each.__dict__.values():
            if getattr(value, "is_validator", False):
                yield value


def dumped(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return {str(key): dumped(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [dumped(each) for each in value]
    return value


def is_unreadable(raw: Any) -> bool:
    return isinstance(raw, dict) and "unreadable" in raw and set(raw) <= {"unreadable", "detail"}


def view(raw: Any, shape: Any) -> Any:
    """A part of a document as the checks see it."""
    if raw is None or shape is None:
        return raw
    if shape == MAYBE:
        return _KINDS["Unreadable"](**raw) if is_unreadable(raw) else raw
    if isinstance(shape, str):
        return part(raw, shape)
    form, inner = shape
    if form == MAYBE:
        return view(raw, MAYBE if is_unreadable(raw) else inner)
    if inner is None:
        return raw
    if form == "list":
        return [view(each, inner) for each in raw]
    return {key: view(each, inner) for key, each in raw.items()}


def part(raw: Dict[str, Any], kind: str) -> Any:
    """A model's document as an object: of its own class where the checks ask for that, else of any."""
    if not isinstance(raw, dict):
        raise TypeError("{} is no document: {!r}".format(kind, raw))
    made = _KINDS.get(kind, BaseModel)
    thing = made.__new__(made)
    thing.__dict__.update(_raw=raw, _kind=kind)
    return thing


class _Named(type):
    """Makes the texts in a class body its members: `enum` costs 2 ms to load."""

    def __new__(mcs, name: str, bases: Any, body: Dict[str, Any]) -> Any:
        texts = {key: value for key, value in body.items() if key[:1] != "_" and isinstance(value, str)}
        kind: Any = super().__new__(mcs, name, bases, {key: body[key] for key in body if key not in texts})
        kind.members = {}
        for key, text in texts.items():
            member = str.__new__(kind, text)
            member.name, member.value = key, text
            kind.members[text] = member
            setattr(kind, key, member)
        return kind

    def __call__(cls, value: str) -> Any:
        members: Dict[str, Any] = cls.__dict__["members"]
        if value not in members:
            raise ValueError("{!r} is not a {}".format(value, cls.__name__))
        return members[value]

    def __iter__(cls) -> Any:
        return iter(cls.__dict__["members"].values())


class StrEnum(str, metaclass=_Named):
    """As of enum, of Python 3.11."""

    value: str

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return "<{}: {!r}>".format(type(self).__name__, self.value)


def dataclass(frozen: bool = False) -> Callable[[type], type]:
    """Objects with fields, equal where these are."""

    def made(kind: Any) -> Any:
        names = list(_fields(kind))

        def begin(self: Any, *values: Any, **given: Any) -> None:
            _fill(self, dict(zip(names, values), **given))

        def same(self: Any, other: Any) -> bool:
            return type(self) is type(other) and vars(self) == vars(other)

        kind.__init__, kind.__eq__ = begin, same
        kind.__hash__ = lambda self: hash(tuple(vars(self).values()))
        return kind

    return made


def replace(thing: Any, **changes: Any) -> Any:
    return type(thing)(**dict(vars(thing), **changes))
