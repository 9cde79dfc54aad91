"""Data files of the package."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


def read_toml(package: str, name: str) -> dict[str, Any]:
    """Read a data file that stands beside the modules of a package."""
    return tomllib.loads((files(package) / name).read_text("utf-8"))


kept_toml = cache(read_toml)  # the same, read once, for who looks things up in it: nobody may change what it gives


def read_patterns(package: str, name: str) -> dict[str, re.Pattern[str]]:
    """Compile the expressions of a data file."""
    return {key: re.compile(text) for key, text in pattern_texts(package, name).items()}


def pattern_texts(package: str, name: str) -> dict[str, str]:
    """Return the expressions of a data file, its table `pattern`: texts, or lists of a text's parts. `<<name>>` stands
    for the expression of that name above it."""
    texts: dict[str, str] = {}
    for key, parts in read_toml(package, name)["pattern"].items():
        texts[key] = re.sub(r"<<(\w+)>>", lambda found: texts[found[1]], "".join(parts))
    return texts
