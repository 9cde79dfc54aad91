"""Which lines of a text hold one of many texts, found in one pass however many there are.

Of the logs of a rack a thousandth of the lines can hold a secret. All others are passed over as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick, Implementation

Span = tuple[int, int]


class Signs:
    """Texts of which a line must hold one, in small or capital letters, to be looked at. None holds a line end."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted({_plain(text) for text in texts})
        self._automaton = BytesAhoCorasick(self.texts, implementation=Implementation.DFA)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where each of the texts stands, by its end; one may stand in another."""
        for _, begin, end in self._automaton.find_matches_as_indexes(_plain(text), overlapping=True):
            yield begin, end

    def within(self, text: str) -> set[bytes]:
        """Return which of the texts, in small letters, a text holds."""
        found = self._automaton.find_matches_as_indexes(_plain(text), overlapping=True)
        return {self.texts[place] for place, _, _ in found}

    def lines(self, text: str, holds: Callable[[int, int], object] = lambda _begin, _end: True) -> Iterator[Span]:
        """Yield where the lines begin and end, without their line ends, that hold a text at a place with `holds`."""
        after = -1
        for begin, end in self.spans(text):
            if begin > after and holds(begin, end):
                line = text.rfind("\n", 0, begin) + 1
                after = text.find("\n", end)
                after = len(text) if after < 0 else after
                yield line, after


def _plain(text: str) -> bytes:
    """Return the text with small letters and with a byte for each character."""
    return text.encode("ascii", "replace").lower()
