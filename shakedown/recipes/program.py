"""What programs take: their arguments and variables at the commits that were read, one file each under `programs/`.

The files are written by tests/program_arguments.py from the programs themselves. Recipes are held against them, and
what no recipe names can be given as an option all the same.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from shakedown.common.data import read_toml

if TYPE_CHECKING:
    from shakedown.recipes.recipe import Family

_ROOT = files("shakedown.recipes") / "programs"


@dataclass(frozen=True)
class Program:
    """A program at one commit. `arguments` are without their dashes; of a script, `variables` are those that it takes
    from its environment, and `sets` those that it sets whatever is there."""

    name: str
    source: str
    commit: str
    date: str  # of the commit
    arguments: dict[str, dict[str, Any]]
    variables: dict[str, dict[str, str]]  # script -> variable -> default, as written there
    sets: dict[str, list[str]]  # script -> variables

    def names(self, script: str | None) -> list[str]:
        """Its arguments, and the variables of one of its scripts."""
        return [*self.arguments, *self.variables.get(script or "", {})]

    def takes(self, name: str, script: str | None) -> bool:
        """Is this one of its arguments, or a variable of the script?"""
        return name in self.arguments or name in self.variables.get(script or "", {})


@cache
def program(name: str) -> Program:
    """Return a program of `programs/`."""
    document = tomllib.loads((_ROOT / f"{name}.toml").read_text("utf-8"))
    scripts = document.get("scripts", {})
    return Program(
        name,
        document["source"],
        document["commit"],
        document["date"],
        document["arguments"],
        {script: values["variables"] for script, values in scripts.items()},
        {script: values["sets"] for script, values in scripts.items()},
    )


def of_image(family: Family, reference: str | None) -> list[Program]:
    """Return the versions of a family's program that may be in an image: the documented one, or any that was read."""
    own = family.images.get(reference or "")
    return [program(name) for name in ([own] if own else family.programs)]


@cache
def _gated() -> list[str]:
    return list(read_toml("shakedown.recipes", "gated.toml")["models"])


def gated(model: str) -> bool:
    """Return whether Hugging Face requires a token of an account that has accepted the model's licence."""
    return any(fnmatchcase(model, pattern) for pattern in _gated())
