"""Stands for `re` in the checks: loads it when a pattern is first used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Pattern:
    """A pattern that is compiled when something of it is asked for."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._given = text, flags

    def __getattr__(self, name: str) -> Any:
        import re

        return getattr(re.compile(*self._given), name)


def compile(text: str, flags: int = 0) -> Pattern:
    return Pattern(text, flags)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # of a module, which its importer asks for
        raise AttributeError(name)
    import re

    return getattr(re, name)
