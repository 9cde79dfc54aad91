"""What the checks use of the standard library, without what the whole modules load: `functools`, `importlib` and
`fnmatch` cost a check 2 ms of CPU, and `re` with its patterns 3, which a node as it should be has no use for."""

from __future__ import annotations

import sys
from _functools import partial  # type: ignore[import-not-found]  # CPython's own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

__all__ = ["cache", "fnmatchcase", "import_module", "partial", "wraps"]


def cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """As of functools: what was once returned for arguments is returned for them again."""
    known: Dict[Any, Any] = {}

    def cached(*arguments: Any) -> Any:
        if arguments not in known:
            known[arguments] = function(*arguments)
        return known[arguments]

    return cached


def wraps(_wrapped: Any) -> Callable[[Any], Any]:
    """Nothing on a node asks a function for its name or its text."""
    return lambda function: function


def import_module(name: str) -> Any:
    __import__(name)
    return sys.modules[name]


def fnmatchcase(name: str, pattern: str) -> bool:
    if not any(mark in pattern for mark in "*?["):
        return name == pattern
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)
