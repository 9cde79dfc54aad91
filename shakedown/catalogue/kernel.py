"""The catalogue's entries of the kernel's log, compiled for the matcher that controller and nodes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from ahocorasick_rs import AhoCorasick, Implementation

from shakedown.catalogue.load import entries
from shakedown.catalogue.model import Entry
from shakedown.node.kernel_match import Matcher


@cache
def matcher() -> Matcher:
    """Return the matcher of all kernel messages."""
    return Matcher(compiled(), _search)


def compiled() -> list[dict[str, Any]]:
    """Return the entries as `Matcher` takes them, and as a node's agent carries them."""
    return [_compile(entry) for entry in entries("kernel")]


_FIELDS = {
    *("name", "part", "severity", "pattern", "unless", "level"),
    *("link", "bank", "group", "detail", "general", "remedy"),
}


def _compile(entry: Entry) -> dict[str, Any]:
    return {
        **entry.model_dump(include=_FIELDS),
        "forms": [list(form) for form in entry.forms],
        "drivers": [driver.lower() for driver in entry.drivers],
    }


def _search(anchors: Sequence[str]) -> Callable[[str], Iterable[int]]:
    """Return a function that finds all anchors of a text in one pass."""
    indexes: dict[str, list[int]] = {}
    for index, anchor in enumerate(anchors):
        indexes.setdefault(anchor, []).append(index)
    distinct = list(indexes)
    automaton = AhoCorasick(distinct, implementation=Implementation.ContiguousNFA)

    def find(text: str) -> Iterable[int]:
        found = {pattern for pattern, _, _ in automaton.find_matches_as_indexes(text, overlapping=True)}
        return [index for pattern in found for index in indexes[distinct[pattern]]]

    return find
