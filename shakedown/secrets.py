"""Values that must not be shown or kept: which variables hold them, and what stands in their place.

A secret belongs into the environment of the controller or a file of its own. Where a site wrote one into a variable
all the same, the variable's name gives it away, and no output, record or digest of this project holds the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel

from shakedown import command_secrets

Model = TypeVar("Model", bound=BaseModel)

MASK = "(secret: not shown)"
_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
# How the last word of a secret's name ends. TOKENS counts them (MAX_TOKENS), a TOKENIZER has none.
_ENDS = re.compile(
    r"(?:token|key|apikeys|secrets?|passwo?r?ds?|passphrases?|credentials?|passwds?|bearer)$", re.IGNORECASE
)
_LAST = {"PASS", "SSHPASS", "PWD", "PAT", "AUTH", "AUTHORIZATION", "COOKIE"}  # only behind another word
# Words behind the one that decides: which of several secrets it is, or how it is written.
_BEHIND = {"B64", "BASE64", "VALUE", "TEXT", "PLAIN", "STRING", "OLD", "NEW", "RO", "RW", "PROD", "DEV", "TEST", "B"}
_PUBLIC = {"HOST", "PUBLIC", "PUB", "PRIMARY", "FOREIGN", "PARTITION", "CACHE", "GROUP", "PAD", "EOS", "BOS"}
"""Words in front of "key" or "token" with which it is none: a host key is everybody's to read, a pad token is text."""
_USER = re.compile(r"(?<=://)[^/\s]+(?=@)")  # of a URL: user and password
_LONG = 6  # characters: a shorter value is a word or a number that stands in other places by chance
_PLAIN = re.compile(r"[a-z]+(?:_[a-z]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str, public: Collection[str] = ()) -> bool:
    """Say whether a variable of that name holds a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY, dbPassword.

    The last word decides: --moe-token-dispatcher-type is a type, TOKEN_FILE a place. `public` holds names that were
    declared to be none.
    """
    words = [word.upper() for part in _WORD.findall(name) for word in _CAMEL.split(part)]
    if words[-3:] == ["ACCESS", "KEY", "ID"]:  # half of a pair, and enough to ask for the other half by
        return name not in public
    while len(words) > 1 and (words[-1] in _BEHIND or words[-1].isdigit()):
        words.pop()
    if not words or name in public or (len(words) > 1 and words[-1] in ("KEY", "TOKEN") and words[-2] in _PUBLIC):
        return False
    return bool(_ENDS.search(words[-1])) or (words[-1] in _LAST and (len(words) > 1 or words[-1] != "PWD"))


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


# In any text: a name that says what it holds, and a value behind it, as variables, options, JSON (also in JSON), YAML
# and headers have them. The name decides by its words. Then forms that say by themselves what they are (as issued).
_NAMED = re.compile(
    r"""(?<![A-Za-z0-9_.])(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,80})(?P<between>\\{0,3}["']?\s{0,4}(?:[=:]|=>)\s{0,4}|\\{0,3}["'],\s{0,4}(?=\\{0,3}["'])|(?<=[A-Za-z])\s{1,4})"""
    r"""(?=(?P<value>\\{1,3}["'][^"'\\\n]{1,4096}|"[^"\n]{1,4096}"|'[^'\n]{1,4096}'|(?:Bearer|Basic|Token)\s{1,4}[^\s"',;&)\]}]{1,4096}|[^\s"',;&)\]}]{1,4096}))"""
)
_FORMS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|dckr_pat_[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})"
)
KEY_LIMIT = 16384  # characters of a private key
_PRIVATE_KEY = re.compile(
    rf"-----BEGIN [A-Z ]{{0,40}}PRIVATE KEY-----.{{0,{KEY_LIMIT}}}?(?:-----END [A-Z ]{{0,40}}-----|\Z)", re.DOTALL
)
_SHOWN = re.compile(
    rf"\(?(?:secret: )?not shown\)?|\*{{3,}}|<[^>]{{0,40}}>|{command_secrets.VARIABLE}|"
    r"(?i:null|none|true|false)|[\d.]{1,8}"
)
# Behind an option that has no value. A token of random letters may begin with a dash, too.
_NEXT_OPTION = re.compile(r"-[A-Za-z]?|--([A-Za-z][A-Za-z0-9_.-]{0,80}(=.*)?)?")
_HINT = re.compile(r"(?i)token|key|secret|pass|credential|bearer|auth|cookie|pwd|pat[\W_]")  # lines worth a closer look


class Masker:
    """Masks secrets in texts that nobody has structured: logs. `values` are known ones, wherever they stand."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= _LONG}, key=len, reverse=True)
        # A value that is a word is masked as a word: "iteration" is part of many others.
        forms = [rf"\b{value}\b" if _PLAIN.fullmatch(value) else re.escape(value) for value in known]
        self._values = re.compile("|".join(forms)) if known else None

    def text(self, text: str) -> tuple[str, int]:
        """The text with the mask in each secret's place, and in how many places one stood."""
        counts = [0, 0, 0, 0, 0]
        text, of_commands = _without_commands(text)
        if self._values is not None:
            parts = [self._values.subn(MASK, part) for part in text.split(MASK)]
            text, counts[0] = MASK.join(part for part, _ in parts), sum(count for _, count in parts)
        if "PRIVATE KEY-----" in text:
            text, counts[1] = _PRIVATE_KEY.subn(MASK, text)
        text, counts[2] = _FORMS.subn(MASK, text)
        if "://" in text:
            text, counts[3] = _USER.subn(MASK, text)
        if _HINT.search(text):
            lines = text.split("\n")
            for at, line in enumerate(lines):
                if _HINT.search(line):
                    lines[at] = _without_values(line)
                    counts[4] += lines[at] != line
            text = "\n".join(lines)
        return text, sum(counts) + of_commands


def found_in(text: str) -> Iterator[str]:
    """The values of secrets that a text gives away by their names: they are masked wherever else they stand."""
    for line in _without_masks(text).split("\n"):
        yield from (value for begin, end in command_secrets.spans(line) if len(value := line[begin:end]) >= _LONG)
        if _HINT.search(line):
            yield from (value for found in _NAMED.finditer(line) if len(value := _bare_value(found)) >= _LONG)


def _without_masks(text: str) -> str:
    """The text with what nobody takes for a secret, as long, in the place of each mask: "secret:" is a name, too."""
    return text.replace(MASK, "*" * len(MASK))


def _bare_value(found: re.Match[str]) -> str:
    """The secret in a match of _NAMED; empty: there is none."""
    name, value = found["name"], found["value"].lstrip("\\").strip("\"'")
    is_option = found.string[max(found.start() - 1, 0) : found.start()] == "-"
    if not found["between"].strip("\\\"', \t") and not is_option:
        return ""  # two words of a sentence, or of a list
    if is_option and not found["between"].strip("\\\"', \t") and _NEXT_OPTION.fullmatch(value):
        return ""
    value = re.sub(r"^(?:Bearer|Basic|Token)\s+", "", value)
    if name.endswith(("Error", "Exception")) or not is_secret(name) or _SHOWN.fullmatch(value):
        return ""
    return value


def _without_commands(text: str) -> tuple[str, int]:
    """The text without the secrets that stand on command lines, and how many there were."""
    count, lines = 0, text.split("\n")
    for at, line in enumerate(lines):
        said, done = [], 0
        for begin, end in command_secrets.spans(_without_masks(line)):
            said += [line[done:begin], MASK]
            done, count = end, count + 1
        lines[at] = "".join([*said, line[done:]])
    return "\n".join(lines), count


def _without_values(line: str) -> str:
    said, done, bare = [], 0, _without_masks(line)
    for found in _NAMED.finditer(bare):
        value = _bare_value(found)
        if value and (begin := bare.index(value, found.start("value"))) >= done:
            said += [line[done:begin], MASK]
            done = begin + len(value)
    return "".join([*said, line[done:]])


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
    """Where in a list that is a command a secret stands, and which: of a program's options, or behind an option whose
    name gives it away."""
    if not document or not all(isinstance(word, str) for word in document):
        return []
    found = [(at, document[at][begin:end]) for at, (begin, end) in command_secrets.of_list(document).items()]
    for at, (word, value) in enumerate(pairwise([*document, "-"])):
        name, equals, assigned = word.partition("=")
        secret = assigned if equals else "" if _NEXT_OPTION.fullmatch(value) else value
        if _OPTION.fullmatch(name) and is_secret(name) and secret and not _SHOWN.fullmatch(secret):
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
