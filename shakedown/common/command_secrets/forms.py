"""Secrets that say by their form what they are, and the finding of known ones: the work grows with the text alone."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache

from ahocorasick_rs import BytesAhoCorasick, Implementation

from shakedown.common import expression
from shakedown.common.data import kept_toml
from shakedown.common.frozen import Frozen

Span = tuple[int, int]


class Signs:
    """Texts of which a line must hold one, in small or capital letters, to be looked at. None holds a line end.

    Of the logs of a rack a thousandth of the lines can hold a secret. All others are passed over as they come.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted({plain(text) for text in texts})
        self._automaton = BytesAhoCorasick(self.texts, implementation=Implementation.DFA)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where each of the texts stands, by its end; one may stand in another."""
        for _, begin, end in self._automaton.find_matches_as_indexes(plain(text), overlapping=True):
            yield begin, end

    def begins(self, text: bytes) -> set[int]:
        """Return where the texts begin in a `plain` one."""
        return {at for _, at, _ in self._automaton.find_matches_as_indexes(text, overlapping=True)}

    def within(self, text: str) -> set[bytes]:
        """Return which of the texts, in small letters, a text holds."""
        found = self._automaton.find_matches_as_indexes(plain(text), overlapping=True)
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


@lru_cache(1)  # the passes over a text follow each other
def plain(text: str) -> bytes:
    """Return the text with small letters and with a byte for each character."""
    return expression.plain(text).encode("ascii", "replace").lower()


KEY_LIMIT = 16384  # characters of a private key
_BEGINS = 256  # characters that are looked up of a known value
_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}KEY(?: BLOCK)? ?-{4,5}")
_BODY = re.compile(r"(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{16,4096}){0,400}")  # of a key whose end is missing
_NEGATED = re.compile(r"\[\^(?:\\.|[^\]])*\]")  # none of them takes a line end
_PLAIN = re.compile(r"[a-z]+(?:_[a-z]+)*")


class Form(Frozen):
    """One entry of forms.toml."""

    name: str
    texts: tuple[str, ...]
    pattern: re.Pattern[str]
    source: str
    date: str

    def without(self, text: str, mask: str) -> tuple[str, int]:
        """Return the text without what has this form, and how many places there were."""
        if not self.texts:  # it begins with the line end before it: what begins so is found fastest
            found, count = self.pattern.subn(lambda found: _with(found, mask), f"\n{text}")
            return (found[1:], count) if count else (text, 0)
        if r"\s" in _NEGATED.sub("", self.pattern.pattern):  # it may go on on the next line
            return self.pattern.subn(lambda found: _with(found, mask), text)
        return replaced(
            text,
            _signs(*self.texts).lines(text),
            lambda line: self.pattern.subn(lambda found: _with(found, mask), line),
        )


class Words(Frozen):
    """Words of names, in capitals, as forms.toml has them."""

    keys: frozenset[str]
    public: frozenset[str]
    behind: frozenset[str]
    names: frozenset[str]


@cache
def forms() -> tuple[Form, ...]:
    """Return what is known of forms."""
    return tuple(
        Form.model_validate(entry) for entry in kept_toml("shakedown.common.command_secrets", "forms.toml")["form"]
    )


@cache
def known() -> Words:
    """Return what is known of names."""
    return Words.model_validate(kept_toml("shakedown.common.command_secrets", "forms.toml")["words"])


def without(text: str, mask: str) -> tuple[str, int]:
    """Return the text without what a form gives away, and how many places there were."""
    text, count = _without_keys(text, mask)
    within = _all_signs().within(text)
    for number in sorted({number for sign in (b"", *within) for number in _numbers()[sign]}):
        text, more = forms()[number].without(text, mask)
        count += more
    return text, count


@cache
def _numbers() -> dict[bytes, set[int]]:
    """Text -> the numbers of the forms that have it; b"" -> of those that have none."""
    numbers: dict[bytes, set[int]] = defaultdict(set)
    for number, form in enumerate(forms()):
        for sign in form.texts or ("",):
            numbers[sign.lower().encode()].add(number)
    return numbers


@cache
def _signs(*texts: str) -> Signs:
    return Signs(texts)


@cache
def _all_signs() -> Signs:
    return Signs(sign for form in forms() for sign in form.texts)


def replaced(text: str, lines: Iterable[Span], replace: Callable[[str], tuple[str, int]]) -> tuple[str, int]:
    """Return the text with some of its lines replaced, and the sum of what `replace` counts in them."""
    pieces, done, count = [], 0, 0
    for begin, end in lines:
        line, more = replace(text[begin:end])
        pieces += [text[done:begin], line]
        done, count = end, count + more
    return "".join([*pieces, text[done:]]), count


def _with(found: re.Match[str], mask: str) -> str:
    """Return the match with the mask in the place of its group, or of all of it."""
    group = 1 if found.re.groups else 0
    begin, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:begin] + mask + found[0][end:]


def _without_keys(text: str, mask: str) -> tuple[str, int]:
    if "PRIVATE KEY" not in text:
        return text, 0
    pieces, done, count = [], 0, 0
    for found in _BEGIN.finditer(text):
        if found.start() < done:
            continue
        end = _END.search(text, found.end(), found.end() + KEY_LIMIT) or _BODY.match(text, found.end())
        pieces += [text[done : found.start()], mask]
        done, count = end.end() if end else found.end(), count + 1
    return "".join([*pieces, text[done:]]), count


class Values:
    """Known secrets, found wherever they stand, by their first characters in one pass. There they are looked up by
    their lengths, so that their number decides nothing about the work."""

    def __init__(self, values: Iterable[str], shortest: int) -> None:
        self._shortest = shortest
        self._first: dict[str, dict[int, dict[str, list[str]]]] = {}  # first characters -> length -> begin -> values
        for value in sorted({value for value in values if len(value) >= shortest}, key=len, reverse=True):
            begin = value[:_BEGINS]
            self._first.setdefault(value[:shortest], {}).setdefault(len(begin), {}).setdefault(begin, []).append(value)
        self._signs = Signs(self._first)

    def without(self, text: str, mask: str) -> tuple[str, int]:
        """Return the text without the values, and in how many places one stood. What is masked already stays."""
        if not self._first:
            return text, 0
        parts = [self._part(part, mask) for part in text.split(mask)]
        return mask.join(part for part, _ in parts), sum(count for _, count in parts)

    def _part(self, text: str, mask: str) -> tuple[str, int]:
        pieces, done, count = [], 0, 0
        for at, _ in self._signs.spans(text):  # in order: all are equally long
            size = self._size(text, at) if at >= done else 0
            if size:
                pieces += [text[done:at], mask]
                done, count = at + size, count + 1
        return "".join([*pieces, text[done:]]), count

    def _size(self, text: str, at: int) -> int:
        """Return how long the known value is that stands there, the longest first; 0: none does. Of a very long value
        the begin is masked where the rest is another. A value that is a word is masked as a word: "iteration" is part
        of many others."""
        for length, values in self._first.get(text[at : at + self._shortest], {}).items():
            end = at + length
            known = values.get(text[at:end], [""])
            within = re.match(r"\w", text[at - 1 : at]) or re.match(r"\w", text[end : end + 1])
            if not known[0] or (within and _PLAIN.fullmatch(known[0])):
                continue
            return next((len(value) for value in known if text.startswith(value, at)), length)
        return 0
