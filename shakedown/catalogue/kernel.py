"""The catalogue's entries of the kernel's log, compiled for the matcher that controller and nodes share."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from ahocorasick_rs import AhoCorasick, Implementation

from shakedown.catalogue.load import entries
from shakedown.catalogue.model import Entry
from shakedown.common.data import read_toml
from shakedown.node.kernel_log import ERROR
from shakedown.node.kernel_match import Matcher


@cache
def matcher() -> Matcher:
    return Matcher(compiled(), _search)


def compiled() -> list[dict[str, Any]]:
    """Return the entries as `Matcher` takes them, and as a node's agent carries them."""
    return [_compile(entry) for entry in entries("kernel")]


def words() -> list[str]:
    """Return a few words of which each line that can matter has one: a node sends a record of a low priority only where
    the record holds one of them. Records of a high priority are sent in any case."""
    forms = {form for entry in entries("kernel") if _matters(entry) for form in entry.forms}
    common = set(read_toml("shakedown.catalogue", "words.toml")["node"]["common"])
    words = sorted({word for form in forms for piece in form for word in _WORD.findall(piece)} - common)
    automaton = AhoCorasick(words, implementation=Implementation.ContiguousNFA)
    holders: dict[str, set[tuple[str, ...]]] = {}
    for form in forms:
        found = automaton.find_matches_as_indexes("\n".join(form), overlapping=True)
        for word in {words[index] for index, _, _ in found} or [max(form, key=len)]:
            holders.setdefault(word, set()).add(form)
    return _cover(holders)


def _cover(holders: dict[str, set[tuple[str, ...]]]) -> list[str]:
    """Return words that together stand in all forms: always the word next that stands in most of the others."""
    found = []
    while holders:
        word = max(holders, key=lambda word: (len(holders[word]), word))
        covered = holders.pop(word)
        found.append(word)
        holders = {other: left for other, held in holders.items() if (left := held - covered)}
    return sorted(found)


_WORD = re.compile(r"[a-z]{4,20}")


def _matters(entry: Entry) -> bool:
    """Return whether a record of a low priority can matter."""
    harmless = entry.severity == "noise" and not (entry.link or entry.group)
    return not (harmless or entry.general or (entry.level is not None and entry.level <= ERROR))


_FIELDS = {
    *("name", "part", "severity", "pattern", "unless", "level"),
    *("link", "bank", "group", "detail", "begins", "general", "remedy"),
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
