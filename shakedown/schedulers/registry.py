"""The schedulers that there are: a folder of this package each, found by its name.

    @scheduler
    class Bookings(Scheduler):
        ...

stands in the folder's module `scheduler`. A class `Settings` in its module `settings` is the scheduler's section of the
desired state. Nothing has to be registered elsewhere.
"""

import functools
import importlib
import pkgutil
from pathlib import Path
from typing import TypeVar

from shakedown.common.nearest import there_are
from shakedown.common.section import Section
from shakedown.schedulers.interface import Scheduler

_FOLDER = Path(__file__).parent
_PACKAGE = __name__.rpartition(".")[0]
_classes: dict[str, type[Scheduler]] = {}
S = TypeVar("S", bound=type[Scheduler])


def scheduler(kind: S) -> S:
    """Enter a class under the name of its folder."""
    _classes[kind.__module__.split(".")[-2]] = kind
    return kind


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all schedulers, in order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.ispkg))


@functools.cache
def sections() -> dict[str, type[Section]]:
    """Return the sections of the desired state by their schedulers: the class `Settings` of a module `settings`."""
    modules = {name: f"{_PACKAGE}.{name}.settings" for name in names() if (_FOLDER / name / "settings.py").exists()}
    return {name: importlib.import_module(module).Settings for name, module in modules.items()}


def find(name: str) -> type[Scheduler]:
    """Return the class of a scheduler. Raise ValueError for a name that no folder has."""
    if name not in names():
        raise ValueError(f"{name!r}: no such scheduler; {there_are(name, names())}")
    importlib.import_module(f"{_PACKAGE}.{name}.scheduler")
    return _classes[name]
