"""The options of recipes: what each may be, and how it is written for the program."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from shakedown.common.section import Section

Value = bool | int | float | str
Text = Annotated[str, Field(min_length=1)]


def as_text(value: Value) -> str:
    """Return a value as scripts take it: flags as 1 and 0, numbers without loss."""
    if isinstance(value, bool):
        return str(int(value))
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


class Option(Section):
    """One documented option of a family: the environment variable of its own name, or an argument."""

    type: Literal["flag", "int", "float", "choice", "text", "path"]
    description: Text
    default: Value | None = None  # the program's own: planned with, and passed only where a role needs it
    values: list[int | str] = []  # the only ones allowed; empty: any of the type
    aliases: dict[str, int | str] = {}  # spellings of the document that the program itself does not take
    minimum: float | None = None
    maximum: float | None = None
    argument: Text | None = None  # "--seq-length": appended to a command line; see Family.arguments
    placed: bool = False  # stands in command or workdir as {name}, and nowhere else
    micro_batches: int | None = None  # a global batch that no document gives: the recipes' accumulation steps
    required: bool = False  # the site has to say: a path of its own data
    affects_figures: bool = True  # a changed value makes the expected figures void
    many: bool = False  # an argument that takes several values, given with spaces between them
    loose: bool = False  # a text that may be written as a number
    in_volume: bool = False  # data of the site: a container sees them through one of its volumes

    def parse(self, value: Value) -> Value:
        """Return the value as the program takes it. Raise ValueError with what was expected."""
        if isinstance(value, str):
            value = self.aliases.get(value, value)
        if self.many:
            return self._parse_many(value)
        if self.loose and type(value) in (int, float):
            value = as_text(value)
        kind = type(value)
        if self.type == "flag" and value in (0, 1) and kind in (bool, int) and self._allows(value):
            return bool(value)
        if self.type == "int" and kind is int and self._allows(value):
            return value
        if self.type == "float" and kind in (int, float) and math.isfinite(float(value)) and self._allows(value):
            return float(value)
        if self.type in ("choice", "text", "path") and kind is str and value and self._allows(value):
            return value
        raise ValueError(self.expected())

    def _parse_many(self, value: Value) -> str:
        single = self.model_copy(update={"many": False})
        words = value.split() if isinstance(value, str) else [as_text(value)]
        if not words:
            raise ValueError(self.expected())
        for word in words:
            try:
                single.parse({"int": int, "float": float}.get(self.type, str)(word))
            except ValueError:
                raise ValueError(self.expected()) from None
        return " ".join(words)

    def _allows(self, value: Value) -> bool:
        if self.values and value not in self.values:
            return False
        if isinstance(value, str):
            return value.isprintable()
        low, high = self.minimum, self.maximum
        return (low is None or value >= low) and (high is None or value <= high)

    def expected(self) -> str:
        """Describe what may stand here, for a person."""
        if self.many:
            single = self.model_copy(update={"many": False}).expected()
            return f"one or more values with spaces between them, each {single}"
        if self.values:
            return f"one of {', '.join(str(value) for value in [*self.values, *self.aliases])}"
        words = {"flag": "0 or 1", "int": "a whole number", "float": "a number", "text": "a text", "path": "a path"}
        bounds = [("at least", self.minimum), ("at most", self.maximum)]
        return ", ".join([words[self.type], *(f"{word} {bound:g}" for word, bound in bounds if bound is not None)])
