"""What a line means by the call or component that it names and by how that failed, in whatever words: `calls.toml`."""

import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from shakedown.catalogue.model import SHORT, Entry, entry
from shakedown.common.data import kept_toml, read_patterns
from shakedown.common.expression import Expression

_LONGEST = 2_000  # characters of a line that are read
_LONG = 20  # words of a line that mentions much: a short topic there is right in less than half of the cases
_data = partial(kept_toml, "shakedown.catalogue", "calls.toml")
_forms = cache(partial(read_patterns, "shakedown.catalogue", "calls.toml"))
# What tells the lines of a storm apart, and the folder of a script that speaks: neither says what failed.
_CHANGING = re.compile(
    r"0x[0-9a-fA-F]{1,16}|\d{4,40}|(?<=^/)\S{0,200}(?=/\S{1,80}: line \d|/\w[\w.-]*(?:script|\.(?:\w*sh|SC)|\d): )"
)


class Call(NamedTuple):
    """One row: a call or component, how it failed, and the entry that this means."""

    entry: str
    about: Expression
    says: Expression | None = None
    errors: frozenset[str] = frozenset()
    weak: bool = False
    values: bool = False
    shows: tuple[str, ...] = ()
    shows_not: tuple[str, ...] = ()


@cache
def calls() -> tuple[Call, ...]:
    """Return the rows in the order in which they are tried."""
    pattern = partial(Expression, flags=re.IGNORECASE)
    made: dict[str, Callable[[Any], Any]] = {"about": pattern, "says": pattern, "errors": frozenset}
    made |= {"shows": tuple, "shows_not": tuple}
    return tuple(Call(**{key: made.get(key, lambda kept: kept)(row[key]) for key in row}) for row in _data()["call"])


@lru_cache(128)  # a storm repeats its lines
def read_call(words: str, weak: bool) -> Entry | None:
    """Return the entry that the words of a line mean. `weak`: also where they hold no more than a topic."""
    words = words[:_LONGEST]
    found = _read(_CHANGING.sub("0000", words)) if any(map(words.__contains__, marks())) else None
    known = entry(found.entry) if found and (weak or not found.weak) else None
    return None if known is None or known.refuses(words) else known


@cache
def marks() -> tuple[str, ...]:
    """Return texts of which a line must hold one to be read."""
    known = _data()["errors"]
    return (*_data()["marks"], *known, *(text for _, *texts in known.values() for text in texts))


@cache
def _named() -> Callable[[str], list[str]]:
    return re.compile(rf"\b(?:{'|'.join(_data()['errors'])})\b").findall


@lru_cache(4096)
def _read(words: str) -> Call | None:
    forms = _forms()
    if not (_errors(words) or forms["fails"].search(words)) or forms["harmless"].search(words):
        return None
    parts = forms["ends"].split(words)
    while parts[1:] and not (_errors(parts[-1]) or forms["fails"].search(parts[-1])):
        parts.pop()
    # Errors are read with their clause, what a row says and values anywhere, other topics up to the last failure.
    texts = [(part, forms["values"].sub(" ", part)) for part in (words, " ".join(parts), *parts)]
    caused = [(_errors(own), (own, plain)) for own, plain in texts[2:]]
    for call in calls():
        if call.weak and not forms["raised"].search(words):
            continue
        failed = call.says.search(words) is not None if call.says else not call.errors
        found = [texts[not (call.says or call.values)]] if failed else []
        found += [clause for errors, clause in caused if errors & call.errors]
        hits = (call.about.search(own if call.values else plain) for own, plain in found)
        if hit := next(filter(None, hits), None):
            return None if len(hit[0]) <= SHORT and len(words.split()) >= _LONG else call
    return None


@cache
def _known_errors() -> tuple[dict[int, str], tuple[tuple[str, str], ...]]:
    """Return the errors of the system by their numbers, and their texts in small letters with them."""
    known = _data()["errors"]
    texts = tuple((text.lower(), name) for name, (_, *texts) in known.items() for text in texts)
    return {number: name for name, (number, *_) in known.items()}, texts


def _errors(words: str) -> set[str]:
    """Return the errors of the system that a line names: by their texts, their numbers or their names."""
    names, texts = _known_errors()
    numbers = {int(group) for match in _forms()["number"].finditer(words) for group in match.groups() if group}
    lower = words.lower()
    named = {name for text, name in texts if text in lower}
    return named.union(_named()(words), (names[number] for number in numbers & names.keys()))
