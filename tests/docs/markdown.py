"""Tables and links of Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell may hold anything."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(each) for each in line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def prose(text: str) -> str:
    """A text in which brackets are no link and no tag, but for what is code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\[<])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def code(value: object) -> str:
    """A value as an inventory has it, which is Python."""
    return f"`{value!r}`".replace("'", '"')


def as_json(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def summary(function: object) -> str:
    """The first paragraph of a docstring, as one line."""
    text = getattr(function, "__doc__", None) or ""
    return " ".join(text.strip().split("\n\n")[0].split())
