"""Things with something in common as one, and the first few of many."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")

QUOTED = 8  # items of a list that are named before the text says how many more there are


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return the items by what they have in common, both in the order in which they first came."""
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def some(items: Sequence[Any], most: int = QUOTED) -> str:
    """Format the items, the first few of many."""
    text = ", ".join(str(item) for item in items[:most])
    return f"{text} and {len(items) - most} more" if len(items) > most else text
