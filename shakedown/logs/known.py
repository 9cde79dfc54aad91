"""Which entry of the catalogue a line of a job's log is of: entries are found by the texts that a line holds."""

from collections.abc import Iterable
from functools import cache, lru_cache, reduce
from operator import or_

from shakedown.catalogue import Entry, calls, entries
from shakedown.catalogue.model import SHORT, holds
from shakedown.common.data import read_toml
from shakedown.logs.lines import Marks, unprefixed

LAST_WORDS = 100  # lines behind a warning or an end: after more, a program goes on
_DATA = read_toml("shakedown.logs", "signatures.toml")


def texts_of(signatures: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(text for signature in signatures for text in signature.anchors)


def follows(name: str, end: str, lines: int) -> bool:
    """Return whether a kind of failure is no cause so many lines behind one of another kind."""
    return (lines < LAST_WORDS and name in _DATA["behind"].get(end, ())) or (name in _DATA["script"] and name != end)


marks_of = cache(Marks)  # made once: each scanner of a job looks for the same texts


@cache
def _by_entry() -> Marks:
    return Marks(*(entry.anchors for entry in entries("job")))


def known_line(*lines: str) -> Entry | None:
    """Return the first entry that one of the lines matches: of hundreds, those are tried that have a text of a line."""
    return (_short if sum(map(len, lines)) < 1000 else _known)(*dict.fromkeys(lines))


def _known(*lines: str) -> Entry | None:
    held = reduce(or_, map(_by_entry().held, lines))
    while held:
        known = entries("job")[(held & -held).bit_length() - 1]
        if any(map(known.matches, lines)):
            return known
        held &= held - 1
    return None


_short = lru_cache(256)(_known)  # a storm repeats lines, and explain looks twice


def is_sure(entry: Entry, line: str) -> bool:
    """Return whether a line states what an entry says, and no call in the line speaks of another entry.

    A name by a call, a place or a subject alone is a guess. A general entry claims no more than its line.
    """
    least = SHORT + 1 if entry.frames else min(SHORT + 1, len(line) / 4)  # "KeyError: " is half of a line
    states = any(len(max(form, key=len)) >= least and holds(line, form) for form in entry.forms)
    return entry.general or (states and calls.read_call(unprefixed(line), weak=False) in (None, entry))


@cache
def _of_rccl() -> Marks:
    return Marks(texts_of(entries("rccl")))


@lru_cache(128)  # a storm repeats its lines
def tuning(line: str) -> Entry | None:
    """Return the entry of a line of RCCL that shows that a tuning did not take."""
    found = (entry for entry in entries("rccl") if entry.matches(line))
    return next(found, None) if _of_rccl().held(line) else None
