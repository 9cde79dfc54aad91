"""A regular expression that is tried only on a text that holds one of the literals that any match holds.

Most of a log's lines hold none of them, and looking for a literal costs a hundredth of trying an expression.
"""

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from re import _casefix, _parser  # type: ignore[attr-defined]
from typing import Any

_MOST = 64  # literals of one place
_FEW = 2  # characters: nearly every text holds a shorter one
_FOLDED = (("\u017f", "s"), ("\u0131", "i"), ("\u0130", "i"), ("\u212a", "k"))  # what is an ASCII letter without case


def plain(text: str) -> str:
    """Return the text with the letters for which an expression without case takes characters beyond ASCII."""
    for odd, letter in () if text.isascii() else _FOLDED:
        text = text.replace(odd, letter)
    return text


@lru_cache(16)  # several expressions are tried on a line, on its own words, and on its clauses
def _small(text: str) -> str:
    return plain(text).lower()


class Expression:
    """An expression that is compiled when a text first holds one of its literals."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return it compiled."""
        return re.compile(self._text, self._flags)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Return texts, in small letters, of which whatever matches holds one; empty: there are none."""
        found = _best(_parser.parse(self._text, self._flags))
        least = [text for text in found if not any(other in text for other in found - {text})]
        return tuple(sorted(least)) if min(map(len, least), default=0) >= _FEW else ()

    def search(self, text: str) -> re.Match[str] | None:
        """Search as re does."""
        return self.pattern.search(text) if self._may_match(text) else None

    def match(self, text: str) -> re.Match[str] | None:
        """Match as re does."""
        return self.pattern.match(text) if self._may_match(text) else None

    def _may_match(self, text: str) -> bool:
        return not self.literals or any(map(_small(text).__contains__, self.literals))


def _best(items: Iterable[Any]) -> set[str]:
    """Return the literals, in small letters, of which each match of a sequence holds one: the set whose shortest is the
    longest. Empty: there are none."""
    found, run = [set[str]()], {""}
    for kind, given in items:
        name = str(kind)
        characters = _characters(name, given)
        if characters and len(run) * len(characters) <= _MOST:
            run = {text + character for text in run for character in characters}
            continue
        if name in ("AT", "ASSERT_NOT"):  # of no width
            continue
        found.append(run)
        run = {""}
        if name == "BRANCH":
            parts = [_best(part) for part in given[1]]
            found.append(set().union(*parts) if all(parts) else set())
        elif name.endswith("_REPEAT") and given[0]:
            found.append(_best(given[2]))
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT"):
            found.append(_best(given if name == "ATOMIC_GROUP" else given[-1]))
    return max((*found, run), key=lambda texts: (min(map(len, texts), default=0), -len(texts)))


def _characters(name: str, given: Any) -> set[str]:
    """Return the characters, in small letters, of which one stands there; empty: any of many."""
    members = [(name, given)] if name == "LITERAL" else given if name == "IN" else []
    found = {chr(code).lower() if str(kind) == "LITERAL" else "" for kind, code in members}
    plain = all(len(letter) == 1 and (letter.isascii() or ord(letter) not in _casefix._EXTRA_CASES) for letter in found)
    return found if plain else set()
