"""The two data files: parameters.toml, every known parameter, and families.toml, the recipes that models become."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, Literal

from shakedown.common.data import read_toml
from shakedown.common.section import Section
from shakedown.desired import profiles

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

Value = bool | int | float | str


class Parameter(Section):
    """One row of parameters.toml, where the fields are explained."""

    also: list[str] = []
    type: Literal["text", "flag", "int", "number", "names", "list", "mapping"] = "text"
    to: str | None = None
    option: str | None = None
    derived: str | None = None
    refused: str | None = None
    only: list[int | float | str] | None = None
    profile: Literal["gpu", "nic"] | None = None
    why: str = ""
    reader: str | None = None
    open: str | None = None
    one_node: str | None = None
    required: list[Literal["sections", "sweep", "distributed"]] = []

    def parse(self, value: Any) -> Any:
        """Return the typed value. Raise ValueError with what was expected."""
        parsed = _parse(self.type, value)
        if parsed is None:
            raise ValueError(_EXPECTED[self.type])
        only = profiles.names(self.profile) if self.profile else self.only
        if only is not None and any(item not in only for item in (parsed if isinstance(parsed, list) else [parsed])):
            raise ValueError(f"{' or '.join(str(item) for item in only)}: {self.why}")
        return parsed


@cache
def known_parameters() -> dict[str, Parameter]:
    """Every known parameter, by name."""
    rows = read_toml("shakedown.desired.cvs", "parameters.toml")
    return {name: Parameter.model_validate(row) for name, row in rows.items()}


@cache
def other_names() -> dict[str, str]:
    """Return the present form's names of known parameters, each with the name of its row."""
    return {also: name for name, row in known_parameters().items() for also in row.also}


def _parse(kind: str, value: Any) -> Any:
    """None for what is not of the kind. Files of this suite write numbers and booleans as strings."""
    if kind == "mapping":
        return value if isinstance(value, dict) else None
    if kind == "list":
        return value if isinstance(value, list) and all(type(item) in (str, int, float) for item in value) else None
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
    """Return a number, or the number that a text is; None for anything else, NaN and infinity too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = float(value)
        if not math.isfinite(parsed):
            return None
        return int(value) if whole and not isinstance(value, float) else None if whole else parsed
    except (ValueError, OverflowError):
        return None


class RecipeChoice(Section):
    """A recipe, for the options of `when`, and for these GPU profiles only where there are `gpus`."""

    name: str
    when: dict[str, Value]
    gpus: list[str] = []


class ModelFamily(Section):
    """One table of families.toml, where the fields are explained."""

    models: str
    image: str = ""
    alone: str = "(?!)"
    recipe_name: str = ""
    version: str = "(?!)"
    file: str = ""
    options: dict[str, str]
    fixed: dict[str, Value] = {}
    ignored: dict[str, str] = {}
    values: dict[str, dict[str, Value]] = {}
    precision: dict[str, dict[str, Value]]
    untrained: dict[str, str] = {}
    recipes: list[RecipeChoice] = []

    def value(self, role: str, parsed: Value) -> Value:
        """Return the option's value. Raise ValueError with what was expected."""
        meanings = self.values.get(role)
        if meanings is None:
            return parsed
        key = str(int(parsed)) if isinstance(parsed, bool) else str(parsed)
        if key not in meanings:
            raise ValueError(f"one of {', '.join(meanings)}")
        return meanings[key]

    def recipe(self, options: dict[str, Any], gpu: str, model: str, precision: str) -> str | None:
        """Return the recipe for these options on this GPU; None where there is none."""
        if self.recipe_name:
            model = re.sub(self.version, "", model)
            return self.recipe_name.format(model=model, precision=precision).lower().replace("_", "-")
        fitting = (choice for choice in self.recipes if choice.when.items() <= options.items())
        return next((choice.name for choice in fitting if not choice.gpus or gpu in choice.gpus), None)


@cache
def families() -> dict[str, ModelFamily]:
    """Every family, by the name of its recipes' file."""
    tables = read_toml("shakedown.desired.cvs", "families.toml")
    like = {name: tables[table.pop("like")] if "like" in table else {} for name, table in tables.items()}
    return {name: ModelFamily.model_validate({**like[name], **table}) for name, table in tables.items()}


def family_of(model: str, image: str) -> ModelFamily | None:
    """Return the family of a model by its name in the file and, as CVS does, by a word in the image's name."""
    fitting = [family for family in families().values() if re.match(family.models, model, re.IGNORECASE)]
    for family in (family for family in fitting if family.image):
        if family.image in image.lower() or ("<changeme>" in image and re.match(family.alone, model, re.IGNORECASE)):
            return family
    return next((family for family in fitting if not family.image), None)
