"""The name that a mistyped word stands for."""

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path

_MANY = 20  # names that fill lines


def nearest(word: str, known: Iterable[str], before: str = "", after: str = "") -> str:
    """Return the known name that is nearest to a word, between these two texts; nothing where none is near."""
    names = list(known)
    near = [name for name in names if name.lower() == word.lower()] or difflib.get_close_matches(word, names, 1)
    return f"{before}{near[0]}{after}" if near else ""


def there_are(word: str, known: Collection[str]) -> str:
    """Return the question whether the nearest name is meant, and the names that there are."""
    return f"{nearest(word, known, 'did you mean ', '? ')}there are {names_of(word, known)}"


def refuse_unknown(words: Iterable[str], known: Collection[str], kind: str) -> None:
    """Raise ValueError for words that are no names of this kind."""
    if unknown := [f"{word} ({there_are(word, known)})" for word in words if word not in known]:
        raise ValueError(f"no such {kind}: {', '.join(unknown)}")


def names_of(word: str, known: Collection[str]) -> str:
    """Return the names that there are; of very many those that are near, where any is."""
    near = difflib.get_close_matches(word, known, 5) if len(known) > _MANY else []
    return ", ".join([*near, "..."] if near else known)


def meant(name: str, others: Iterable[str] = ()) -> str:
    """Return the question that follows the name of a missing file: is one of the others meant, or one beside it?"""
    path = Path(name)
    try:
        beside = {file.name: file for file in path.parent.iterdir() if not file.name.startswith(".")}
    except OSError:
        beside = {}
    near = nearest(name, others) or beside.get(nearest(path.name, beside))
    return f" (did you mean {near}?)" if near else ""
