"""Values that must not be shown or kept: which variables hold them, and what stands in their place.

A secret belongs into the environment of the controller or a file of its own. Where a site wrote one into a variable
all the same, the variable's name gives it away, and no output, record or digest of this project holds the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

MASK = "(secret: not shown)"
_WORD = re.compile(r"[A-Za-z0-9]+")
# What a word of a variable's name ends with. TOKENS counts them (MAX_TOKENS), a TOKENIZER has none.
_ENDS = re.compile(
    r"(?:token|key|apikeys|secrets?|passwo?r?ds?|passphrases?|credentials?|passwds?|bearer)$", re.IGNORECASE
)
_LAST = {"PASS", "SSHPASS", "PWD", "PAT", "AUTH", "AUTHORIZATION", "COOKIE"}  # as the last of several words
_PLACES = {"FILE", "PATH", "DIR", "ENV"}  # last words: the value says where the secret is
_USER = re.compile(r"(?<=://)[^/\s]+(?=@)")  # of a URL: user and password
_LONG = 6  # characters: a shorter value is a word or a number that stands in other places by chance
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str, public: Collection[str] = ()) -> bool:
    """Whether a variable of that name holds a secret, by its words: HF_TOKEN, AWS_SECRET_ACCESS_KEY, dbPassword.
    `public` holds names that were declared to be none."""
    words = [word for part in _WORD.findall(name) for word in _CAMEL.split(part)]
    if not words or name in public or words[-1].upper() in _PLACES:
        return False
    return any(_ENDS.search(word) for word in words) or _is_last(words)


def _is_last(words: list[str]) -> bool:
    last = words[-1].upper()
    return last in _LAST and (len(words) > 1 or last != "PWD")  # alone it is the current folder


def values_of(document: Any, public: Collection[str] = ()) -> set[str]:
    """The values of the secrets in a document that are long enough to be recognised anywhere."""
    return {value for value in _values(document, public) if len(value) >= _LONG}


def masked(document: Any, public: Collection[str] = (), more: Collection[str] = ()) -> Any:
    """The document (of dicts, lists and texts, as of JSON) without the value of any secret: neither under its name, nor
    as `NAME=value` on a line of its own, nor in front of a URL's host, nor, where it is long enough to be recognised,
    anywhere else; nor any of the values `more`."""
    values = sorted(values_of(document, public).union(more), key=len, reverse=True)
    return _masked(document, public, values)


def masked_model(model: Model, public: Collection[str] = (), more: Collection[str] = ()) -> Model:
    """The same for a model: it holds the mask where a text was."""
    return type(model).model_validate(masked(model.model_dump(mode="json"), public, more))


_ASSIGNED = re.compile(r"(?m)^([A-Za-z_][A-Za-z0-9_]*)=(.+)$")


def _values(document: Any, public: Collection[str], name: str = "") -> Iterator[str]:
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from _values(value, public, str(key))
    elif isinstance(document, list | tuple):
        for value in document:
            yield from _values(value, public)
    elif isinstance(document, str):
        if document and is_secret(name, public):
            yield document
        for key, value in _ASSIGNED.findall(document):
            if is_secret(key, public):
                yield value


def _masked(document: Any, public: Collection[str], values: Collection[str], name: str = "") -> Any:
    if isinstance(document, Mapping):
        return {key: _masked(value, public, values, str(key)) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_masked(value, public, values) for value in document]
    if document not in (None, "") and is_secret(name, public) and not isinstance(document, bool):
        return MASK
    if not isinstance(document, str):
        return document
    text = _ASSIGNED.sub(lambda found: f"{found[1]}={MASK if is_secret(found[1], public) else found[2]}", document)
    text = _USER.sub(MASK, text)
    for value in values:
        text = text.replace(value, MASK)
    return text
