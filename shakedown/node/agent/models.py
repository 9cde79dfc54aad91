"""Stands on a node for what the checks import and no node has: pydantic, and the models that are written with it.

The checks travel as they are (`shakedown/agent/program.py`). Here every model is a `Model`, a dictionary whose keys are
attributes as well, because documents were validated where they were made: by the probe of the same program, or by the
controller. `stand_in` puts this module in the place of those in `STANDS_FOR`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict, List, Optional

from ..kernel_verdict import Matcher

STANDS_FOR = (
    "pydantic", "shakedown.state.node", "shakedown.desired", "shakedown.desired.models", "shakedown.desired.profiles",
    "shakedown.recipes", "shakedown.recipes.recipe", "shakedown.recipes.documents", "shakedown.catalogue",
    "shakedown.catalogue.kernel",
)  # fmt: skip
KERNEL = "kernel.json"  # the catalogue's entries of the kernel's log, compiled, beside this module
_compiled: Dict[str, Any] = {}  # what the controller has compiled for this node
_REQUIRED = object()
# As `shakedown.desired` this module is a package, too: some of its modules are no models, and travel as they are.
__path__ = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "desired")]


def is_unreadable(reading: Any) -> bool:
    return isinstance(reading, Unreadable)


class Field:
    """A default, or one that is made anew for each object, from the object if it takes one."""

    def __init__(
        self, default: Any = None, default_factory: Optional[Callable[..., Any]] = None, exclude_if: Any = None
    ) -> None:
        self.make: Callable[..., Any] = default_factory or (lambda: default)

    def value(self, owner: Model) -> Any:
        return self.make(owner) if getattr(getattr(self.make, "__code__", None), "co_argcount", 0) else self.make()


ConfigDict = dict


def model_validator(mode: str) -> Callable[[Any], Any]:
    """Validate nothing: what breaks the rules of a model does so on the controller, where tests look for it."""
    return lambda function: function


class Model(dict):  # type: ignore[type-arg]  # of Python 3.8
    """A document, or an object of a class that the checks define: with its annotations as fields."""

    def __init__(self, *pairs: Any, **fields: Any) -> None:
        super().__init__(*pairs, **fields)
        self.__dict__ = self
        for kind in reversed(type(self).__mro__):
            for name in getattr(kind, "__annotations__", ()):
                if name not in self:
                    default = kind.__dict__.get(name, _REQUIRED)
                    if default is _REQUIRED:
                        raise TypeError("{}: no {}".format(kind.__name__, name))
                    self[name] = default.value(self) if isinstance(default, Field) else default

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(as_json(self))

    def model_copy(self, update: Dict[str, Any]) -> Model:
        return Model(self, **update)

    def model_dump(self, exclude_none: bool = False) -> Dict[str, Any]:
        document: Dict[str, Any] = json.loads(as_json(self))
        return {name: value for name, value in document.items() if value is not None or not exclude_none}


BaseModel = Model


class Unreadable(Model):
    """A reading that could not be taken."""

    unreadable: str
    detail: str = Field("")  # type: ignore[assignment]

    @classmethod
    def model_validate(cls, part: Dict[str, str]) -> Unreadable:
        return cls(**part)

    def __str__(self) -> str:
        return "unreadable ({}{})".format(self.unreadable, ": " + self.detail if self.detail else "")


NOT_READ = Unreadable(unreadable="failed", detail="the probe that took this state did not read it")


def as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=vars)


def view(document: Any) -> Any:
    """Wrap a document of plain JSON values as the checks see it."""
    if isinstance(document, list):
        return [view(item) for item in document]
    if not isinstance(document, dict):
        return document
    if "unreadable" in document and set(document) <= {"unreadable", "detail"}:
        return Unreadable(**document)
    return Model({name: view(value) for name, value in document.items()})


def stand_in() -> None:
    """Put this module in the place of the others. Before any module of the checks is imported."""
    for name in STANDS_FOR:
        sys.modules[name] = sys.modules[__name__]


def take(document: Dict[str, Any]) -> None:
    """Take what was compiled for this node. Before `shakedown.checks` is imported."""
    _compiled.update(view(document))


def recipes() -> Dict[str, Any]:
    """Return the recipe of the smoke run, by its name."""
    return dict(_compiled["recipes"])


def room(reference: Any) -> int:
    """Return the bytes that an image of the desired state takes."""
    return int(_compiled["rooms"]["{}:{}".format(reference.name, reference.tag)])


def families() -> Dict[str, Any]:
    """Return the families that caution against a variable, by name."""
    return dict(_compiled["families"])


def names(kind: str) -> List[str]:
    return sorted(_compiled["profiles"][kind])


def load(kind: str, name: str) -> Any:
    return _compiled["profiles"][kind][name]


def matcher() -> Matcher:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), KERNEL), encoding="utf-8") as file:
        return Matcher(json.load(file))


def __getattr__(name: str) -> Any:
    """Return a module of `STANDS_FOR`, or a model: any other name is one of them."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("models", "profiles", "recipe"):
        return sys.modules[__name__]
    if name == "Tuning":
        return Model(model_fields=_compiled["tuning"])
    return Model
