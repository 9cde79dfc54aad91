"""The words that a node looks for in its kernel's log: a file of the catalogue that is made from its entries."""

from __future__ import annotations

import json
import re

from ahocorasick_rs import AhoCorasick, Implementation

from shakedown.catalogue.model import Entry, entries
from shakedown.common.data import read_toml
from shakedown.node.kernel_log import ERROR


def text() -> str:
    """Return the file."""
    return json.dumps(words(), indent=0) + "\n"


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
    harmless = entry.severity == "noise" and not (entry.link or entry.group)
    return not (harmless or entry.general or (entry.level is not None and entry.level <= ERROR))
