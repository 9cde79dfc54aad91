"""The source documents' commands, as data: tests/data/documents."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "data" / "documents"


def commands(name: str) -> dict[str, list[list[str]]]:
    """The commands of a file by their titles, each split into words as a shell would."""
    found: dict[str, list[list[str]]] = {}
    title = ""
    for line in (_FOLDER / name).read_text("utf-8").splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line and not line.startswith("#"):
            found.setdefault(title, []).append(shlex.split(line))
    return found


def variables(words: list[str]) -> dict[str, str]:
    """The NAME=value words before the command."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            break
        found[name] = value
    return found


def configuration(name: str) -> dict[str, Any]:
    """One of the JSON files of CVS' documentation."""
    return dict(json.loads((_FOLDER / name).read_text("utf-8")))
