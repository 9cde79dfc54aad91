"""The name that a mistyped word stands for."""

import difflib
from collections.abc import Iterable
from pathlib import Path


def nearest(word: str, known: Iterable[str], before: str = "", after: str = "") -> str:
    """Return the known name that is nearest to a word, between these two texts; nothing where none is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"{before}{near[0]}{after}" if near else ""


def meant(name: str, others: Iterable[str] = ()) -> str:
    """Return the question that follows the name of a missing file: is one of the others meant, or one beside it?"""
    path = Path(name)
    try:
        beside = {file.name: file for file in path.parent.iterdir() if not file.name.startswith(".")}
    except OSError:
        beside = {}
    near = nearest(name, others) or beside.get(nearest(path.name, beside))
    return f" (did you mean {near}?)" if near else ""
