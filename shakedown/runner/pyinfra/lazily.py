"""What others load on the way and seldom use is loaded when it is used, and what they read again and again is read
once. See docs/developers/pyinfra.md."""

import functools
import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands for a module until somebody asks for something of it. importlib's LazyLoader is loaded by the next import
    statement already, which looks at the module's specification (Python 3.11)."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def lazily(name: str) -> None:
    """Have a module load at its first use. Call it before any import; a module that is there or absent stays so."""
    if name not in sys.modules and find_spec(name) is not None:
        sys.modules[name] = _Later(name)


def entry_points_once() -> None:
    """Have the entry points of the installed packages read once by all who ask: gevent's patches ask two dozen times,
    typeguard and pyinfra too, and each time one file of every package is opened. What is installed while we run is not
    seen. To be called before they are imported."""
    everything = functools.cache(metadata.entry_points)

    def known(**params: Any) -> Any:
        return everything().select(**params) if params else everything()

    metadata.entry_points = known
