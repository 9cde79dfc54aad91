"""A text, a log or a document as it may leave the house: without secrets, and where it is asked for without names."""

import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from shakedown.common import secrets
from shakedown.common.command_secrets.forms import KEY_LIMIT
from shakedown.runs.archive.pseudonyms import Pseudonyms

LINE_LIMIT = 8 << 20  # bytes; nobody can say what stands in half a line
_CHUNK = 1 << 20
_REPEATED = 20_000  # texts of documents: nodes of a rack say the same
_LINES = 3  # that a refusal names, of a file


@dataclass
class Written:
    """What was written of a file."""

    size: int = 0
    sha256: str = ""


class Redactor:
    """`values`: secrets that are known; `names`: None leaves them as they are; `own`: keys and names of the run's own
    documents, which are never masked there."""

    def __init__(
        self, values: Iterable[str] = (), names: Pseudonyms | None = None, own: Collection[str] = frozenset()
    ) -> None:
        self.masked = 0  # places in which a secret stood
        self.lines: dict[str, list[int]] = {}  # file -> the first of its lines in which one stood
        self._masker = secrets.Masker(value for value in values if value not in own)
        self._masked = functools.lru_cache(_REPEATED)(self._masker.text)
        self._own = own
        self._names = names

    def text(self, text: str) -> str:
        """Redact a text of any length."""
        found, count = self._masker.text(text)
        self.masked += count
        return self._names.text(found) if self._names else found

    def path(self, path: str) -> str:
        """Redact a member's path, part by part."""
        return "/".join(self._names.value(part) for part in path.split("/")) if self._names else path

    def document(self, value: Any, key: str = "") -> Any:
        """Redact a document of JSON: keys and texts; of a key with a secret's name, the whole text."""
        if isinstance(value, dict):
            return {self._word(name): self.document(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.document(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if value not in ("", secrets.MASK) and secrets.is_secret(key):
            self.masked += 1
            return secrets.MASK
        return self._word(value)

    def _word(self, text: str) -> str:
        found, count = (text, 0) if text in self._own else self._masked(text)
        self.masked += count
        return self._names.value(found) if self._names else found

    def copy(self, source: BinaryIO, write: Callable[[bytes], Any], name: str = "") -> Written:
        """Copy the log `name`, line by line. What is no UTF-8 stays as it is."""
        digest, size, line = hashlib.sha256(), 0, 1
        for block in blocks(source):
            text = block.decode("utf-8", "surrogateescape")
            found, count = self._masker.text(text)
            self.masked += count
            if count and len(known := self.lines.setdefault(name, [])) < _LINES:
                pairs = zip(text.split("\n"), found.split("\n"), strict=False)
                known += [at for at, (before, after) in enumerate(pairs, line) if before != after][:_LINES]
            line += block.count(b"\n")
            data = (self._names.text(found) if self._names else found).encode("utf-8", "surrogateescape")
            digest.update(data)
            size += len(data)
            write(data)
        return Written(size, digest.hexdigest())


def blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, about a megabyte at a time, and no key in two of them."""
    rest = b""
    while chunk := source.read(_CHUNK):
        whole, newline, rest = (rest + chunk).rpartition(b"\n")
        if (begin := _open_key(whole)) is not None:
            whole, newline, rest = whole[:begin], b"", whole[begin:] + newline + rest
        if whole or newline:
            yield whole + newline
        if len(rest) > LINE_LIMIT:
            size = len(rest)
            while (chunk := source.read(_CHUNK)) and b"\n" not in chunk:
                size += len(chunk)
            end, newline, rest = chunk.partition(b"\n")
            yield b"(a line of %d bytes was left out: it is too long to be searched for secrets)" % (size + len(end))
            rest = newline + rest
    if rest:
        yield rest


def _open_key(text: bytes) -> int | None:
    """Where the line stands that begins a private key without an end yet; None: there is none, or it is too long."""
    at = text.rfind(b"PRIVATE KEY")
    line = text.rfind(b"\n", 0, at) + 1
    is_begin = at >= 0 and b"BEGIN " in text[line:at]
    return line if is_begin and len(text) - line <= KEY_LIMIT else None
