"""Travels with scripts that run on a node: what a server or an engine said, as it may be shown."""

from __future__ import annotations

REPLACED = chr(0xFFFD)  # spelt so: a node whose locale is not UTF-8 gets this file as an argument


def clean(text: object, limit: int = 2000) -> str:
    """One line without control characters, escapes and what reorders text, of at most `limit` characters."""
    kept = " ".join(str(text)[: 4 * limit].split())[:limit]
    return "".join(letter if letter.isprintable() else REPLACED for letter in kept)


def say(text: str) -> None:
    """A line of progress on standard output."""
    print(clean(text), flush=True)
