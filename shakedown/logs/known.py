"""Which entry of the catalogue a line of a job's log is of: entries are found by the texts that a line holds."""

from collections.abc import Iterable
from functools import cache, lru_cache, reduce
from operator import or_

from shakedown.catalogue import Entry, entries
from shakedown.logs.lines import Marks


def texts_of(signatures: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(text for signature in signatures for text in signature.anchors)


marks_of = cache(Marks)  # made once: each scanner of a job looks for the same texts


@cache
def _by_entry() -> Marks:
    return Marks(*(entry.anchors for entry in entries("job")))


@lru_cache(32)  # a storm repeats a line; lines may be of a megabyte
def known_line(*lines: str) -> Entry | None:
    """Return the first entry that one of the lines matches: of hundreds, those are tried that have a text of a line."""
    held = reduce(or_, map(_by_entry().held, lines))
    while held:
        known = entries("job")[(held & -held).bit_length() - 1]
        if any(map(known.matches, lines)):
            return known
        held &= held - 1
    return None
