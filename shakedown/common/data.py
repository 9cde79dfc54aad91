"""Data files of the package."""

import tomllib
from importlib.resources import files
from typing import Any


def read_toml(package: str, name: str) -> dict[str, Any]:
    """Read a data file that stands beside the modules of a package."""
    return tomllib.loads((files(package) / name).read_text("utf-8"))
