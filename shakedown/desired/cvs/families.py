"""The models of CVS files, and the recipes and options they become."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

_FILE = files("shakedown.desired.cvs") / "families.toml"
Value = bool | int | float | str


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RecipeChoice(_Data):
    """A recipe, for the options of `when`, and for these GPU profiles only where there are `gpus`."""

    name: str
    when: dict[str, Value]
    gpus: list[str] = []


class Family(_Data):
    """One table of families.toml, where the fields are explained."""

    models: str
    options: dict[str, str]
    fixed: dict[str, Value] = {}
    ignored: dict[str, str] = {}
    values: dict[str, dict[str, Value]] = {}
    precision: dict[str, dict[str, Value]]
    recipes: list[RecipeChoice]

    def value(self, role: str, parsed: Value) -> Value:
        """The option's value. ValueError with what was expected."""
        meanings = self.values.get(role)
        if meanings is None:
            return parsed
        key = str(int(parsed)) if isinstance(parsed, bool) else str(parsed)
        if key not in meanings:
            raise ValueError(f"one of {', '.join(meanings)}")
        return meanings[key]

    def recipe(self, options: dict[str, Any], gpu: str) -> str | None:
        """The recipe for these options on this GPU; None where there is none."""
        fitting = (each for each in self.recipes if each.when.items() <= options.items())
        return next((each.name for each in fitting if not each.gpus or gpu in each.gpus), None)


@cache
def families() -> dict[str, Family]:
    """Every family, by the name of its recipes' file."""
    tables = tomllib.loads(_FILE.read_text("utf-8"))
    like = {name: tables[table.pop("like")] if "like" in table else {} for name, table in tables.items()}
    return {name: Family.model_validate({**like[name], **table}) for name, table in tables.items()}


def family_of(model: str) -> Family | None:
    """The family of a model by its name in the file."""
    return next((each for each in families().values() if re.match(each.models, model, re.IGNORECASE)), None)
