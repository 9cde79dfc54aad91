"""The table of known parameters, and how the file's strings become values."""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

_FILE = files("shakedown.desired.cvs") / "parameters.toml"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_EXPECTED = {
    "text": "a text",
    "flag": "True or False",
    "int": "a whole number",
    "number": "a number",
    "names": "names with commas between them",
    "list": "a list of texts",
    "mapping": "an object",
}


class Parameter(BaseModel):
    """One row of parameters.toml, where the fields are explained."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: Literal["text", "flag", "int", "number", "names", "list", "mapping"] = "text"
    to: str | None = None
    option: str | None = None
    derived: str | None = None
    refused: str | None = None
    only: list[int | float | str] | None = None
    why: str = ""
    reader: str | None = None
    open: str | None = None
    one_node: str | None = None
    required: list[Literal["sections", "sweep", "distributed"]] = []

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Parameter:
        if not (self.to or self.option or self.derived or self.refused or self.only or self.reader):
            raise ValueError("a parameter that means nothing")
        return self

    def parse(self, value: Any) -> Any:
        """The typed value. ValueError with what was expected."""
        parsed = _parse(self.type, value)
        if parsed is None:
            raise ValueError(_EXPECTED[self.type])
        wrong = [each for each in (parsed if isinstance(parsed, list) else [parsed]) if each not in (self.only or [])]
        if self.only is not None and wrong:
            raise ValueError(f"{' or '.join(str(each) for each in self.only)}: {self.why}")
        return parsed


@cache
def table() -> dict[str, Parameter]:
    """Every known parameter, by name."""
    rows = tomllib.loads(_FILE.read_text("utf-8"))
    return {name: Parameter.model_validate(row) for name, row in rows.items()}


def _parse(kind: str, value: Any) -> Any:
    """None for what is not of the kind. Files of this suite write numbers and booleans as strings."""
    if kind == "mapping":
        return value if isinstance(value, dict) else None
    if kind == "list":
        return value if isinstance(value, list) and all(type(each) in (str, int, float) for each in value) else None
    if isinstance(value, dict | list) or value is None:
        return None
    text = str(value).strip()
    if kind == "flag":
        return _FLAGS.get(text.lower())
    if kind in ("int", "number"):
        return number(value, whole=kind == "int")
    if isinstance(value, bool):
        return None
    return [name for part in text.split(",") if (name := part.strip())] if kind == "names" else text


def number(value: Any, whole: bool = False) -> int | float | None:
    """A number, or the number that a text is; None for anything else, NaN and infinity too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
        if not math.isfinite(found):
            return None
        return int(value) if whole and not isinstance(value, float) else None if whole else found
    except (ValueError, OverflowError):
        return None
