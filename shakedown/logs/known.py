"""Which entry of the catalogue a line of a job's log is of: entries are found by the texts that a line holds."""

from collections.abc import Iterable
from functools import cache

from shakedown.catalogue import Entry, entries
from shakedown.logs.lines import Marks


def texts_of(signatures: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(text for signature in signatures for text in signature.anchors)


marks_of = cache(Marks)  # made once: each scanner of a job looks for the same texts


@cache
def _by_text() -> tuple[Marks, list[list[int]]]:
    """Return the texts of a job's entries, and for each of them the places of the entries that it belongs to."""
    texts = Marks(texts_of(entries("job")))
    at = {text: place for place, text in enumerate(texts.texts)}
    found: list[list[int]] = [[] for _ in texts.texts]
    for place, signature in enumerate(entries("job")):
        for anchor in signature.anchors:
            found[at[anchor]].append(place)
    return texts, found


def known_line(*lines: str) -> Entry | None:
    """Return the first entry that one of the lines matches: of hundreds, those are tried that have a text of a line."""
    texts, entries_of = _by_text()
    places = sorted({place for line in lines for text in texts.those_in(line) for place in entries_of[text]})
    return next((known for at in places if any(map((known := entries("job")[at]).matches, lines))), None)
