"""Values that must not be shown or kept: which variables hold them, and what stands in their place.

A secret belongs into the environment of the controller or a file of its own. Where a site wrote one into a variable
all the same, the variable's name gives it away, and no output, record or digest of this project holds the value.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel

from shakedown.common import command_secrets
from shakedown.common.command_secrets import forms, named
from shakedown.common.command_secrets.forms import Signs, Span

Model = TypeVar("Model", bound=BaseModel)

MASK = "(secret: not shown)"
_USER = re.compile(r"(?<=://)[^/\s]+(?=@)")  # of a URL: user and password
_URLS = Signs(["://"])
_LETTER = re.compile("[A-Za-z]")
_LONG = 6  # characters: a shorter value is a word or a number that stands in other places by chance


def is_secret(name: str, public: Collection[str] = ()) -> bool:
    """Say whether a variable of that name holds a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY, dbPassword.

    The last word decides. `public` holds names that were declared to be none.
    """
    return bool(named.kind(name, public))


def values_of(document: Any, public: Collection[str] = ()) -> set[str]:
    """Return the values of the secrets in a document that are long enough to be recognised anywhere."""
    return {value for value in _values(document, public) if len(value) >= _LONG}


def masked(document: Any, public: Collection[str] = (), more: Collection[str] = ()) -> Any:
    """Return the document (of dicts, lists and texts, as of JSON) without the value of any secret: neither under its
    name, nor as `NAME=value` on a line of its own, nor in front of a URL's host, nor, where it is long enough to be
    recognised, anywhere else; nor any of the values `more`."""
    values = sorted(values_of(document, public).union(more), key=len, reverse=True)
    return _masked(document, public, values)


def masked_model(model: Model, public: Collection[str] = (), more: Collection[str] = ()) -> Model:
    """Mask a model: it holds the mask where a text was."""
    return type(model).model_validate(masked(model.model_dump(mode="json"), public, more))


class Masker:
    """Masks secrets in texts that nobody has structured: logs. `values` are known ones, wherever they stand."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = forms.Values(values, _LONG)

    def text(self, text: str) -> tuple[str, int]:
        """Return the text with the mask in each secret's place, and in how many places one stood."""
        text, of_commands = _without_commands(text)
        text, of_users = forms.replaced(text, _URLS.lines(text), lambda line: _USER.subn(MASK, line))
        text, known = self._values.without(text, MASK)
        text, of_forms = forms.without(text, MASK)
        text, of_names = forms.replaced(text, named.lines(text), lambda line: _without_spans(line, named.spans))
        return text, of_commands + of_users + known + of_forms + of_names


def found_in(text: str) -> Iterator[str]:
    """Yield the values of secrets that a text gives away by their names: they are masked wherever else they stand. A
    number or a date may stand anywhere by chance."""
    text = _without_masks(text)
    for lines, spans in ((command_secrets.lines, command_secrets.spans), (named.lines, named.spans)):
        for line in (text[begin:end] for begin, end in lines(text)):
            for begin, end in spans(line):
                if end - begin >= _LONG and _LETTER.search(line, begin, end):
                    yield line[begin:end]


def _without_masks(text: str) -> str:
    """Return the text with as many stars in the place of each mask: "secret:" in a mask is a name, too."""
    return text.replace(MASK, "*" * len(MASK))


def _without_spans(line: str, spans: Callable[[str], Iterable[Span]]) -> tuple[str, int]:
    pieces, done = [], 0
    for begin, end in spans(_without_masks(line)):
        pieces += [line[done:begin], MASK]
        done = end
    return "".join([*pieces, line[done:]]), len(pieces) // 2


def _without_commands(text: str) -> tuple[str, int]:
    return forms.replaced(text, command_secrets.lines(text), lambda line: _without_spans(line, command_secrets.spans))


_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]{0,80}")
_ASSIGNED = re.compile(r"(?m)^([A-Za-z_][A-Za-z0-9_]*)=(.+)$")


def _values(document: Any, public: Collection[str], name: str = "") -> Iterator[str]:
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from _values(value, public, str(key))
    elif isinstance(document, list | tuple):
        yield from (value for _, value in _of_command(document))
        for value in document:
            yield from _values(value, public)
    elif isinstance(document, str):
        if document and is_secret(name, public):
            yield document
        for key, value in _ASSIGNED.findall(document):
            if is_secret(key, public):
                yield value


def _of_command(document: Sequence[Any]) -> list[tuple[int, str]]:
    """Return where a command's words hold a secret, and which: an option's value, by its program or by its name."""
    if not document or not all(isinstance(word, str) for word in document):
        return []
    found = [(at, document[at][begin:end]) for at, (begin, end) in command_secrets.of_list(document).items()]
    for at, (word, value) in enumerate(pairwise([*document, "-"])):
        name, equals, assigned = word.partition("=")
        secret = assigned if equals else "" if named.NEXT_OPTION.fullmatch(value) else value
        if _OPTION.fullmatch(name) and is_secret(name) and secret and not named.is_shown(secret):
            found.append((at if equals else at + 1, secret))
    return [(at, value) for at, value in found if value]


def _masked(document: Any, public: Collection[str], values: Collection[str], name: str = "") -> Any:
    if isinstance(document, Mapping):
        return {key: _masked(value, public, values, str(key)) for key, value in document.items()}
    if isinstance(document, list | tuple):
        shown = list(document)
        for at, value in _of_command(document):
            shown[at] = shown[at].replace(value, MASK)
        return [_masked(value, public, values) for value in shown]
    if document not in (None, "") and is_secret(name, public) and not isinstance(document, bool):
        return MASK
    if not isinstance(document, str):
        return document
    text = _ASSIGNED.sub(lambda found: f"{found[1]}={MASK if is_secret(found[1], public) else found[2]}", document)
    text, _ = _without_commands(_USER.sub(MASK, text))
    for value in values:
        text = MASK.join(part.replace(value, MASK) for part in text.split(MASK))
    return text
