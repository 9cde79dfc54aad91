"""Travels with scripts that run on a node: messages of a server or an engine, as they may be shown."""

from __future__ import annotations

REPLACED = chr(0xFFFD)  # spelt so: a node whose locale is not UTF-8 gets this file as an argument


# Fillers, joiners and variation selectors: letters and marks to Python, and nothing to a reader.
_UNSEEN = (
    *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0000, 0xE0FFF)),
)


class Failure(Exception):
    """What could not be had. `kind` chooses the advice (operations/advice.toml)."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


def is_seen(letter: str) -> bool:
    return letter.isprintable() and not any(first <= ord(letter) <= last for first, last in _UNSEEN)


def clean(text: object, limit: int = 2000) -> str:
    """Return one line without control characters, escapes and what reorders text, of at most `limit` characters."""
    kept = " ".join(str(text)[: 4 * limit].split())[:limit]
    return "".join(letter if is_seen(letter) else REPLACED for letter in kept)


def say(text: str) -> None:
    print(clean(text), flush=True)
