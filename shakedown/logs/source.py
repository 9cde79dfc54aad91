"""A log from anywhere as a stream of UTF-8 bytes: plain, gzip or bzip2, UTF-16 with its mark, or standard input.

What is no text is refused in words, and what is not whole says so: bytes that nobody can read must never look like a
log without a failure. Nothing is held in memory but one chunk, and no more than `READ_LIMIT` is unpacked.
"""

import bz2
import codecs
import gzip
import hashlib
import io
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

CHUNK = 1 << 16  # bytes read at a time: they stay in the processor's cache
# Bytes of what is unpacked or comes over a pipe, as many as a run keeps of a log: a small file can unpack to more than
# a disk has.
READ_LIMIT = 1 << 30
STDIN = "-"

# What begins so cannot be read here; how a person can.
_PACKED = {
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
    b"7z\xbc\xaf\x27\x1c": ("7z", "7z x -so"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc"),
    b"\x1f\x9d": ("compress", "zcat"),
}
_UTF8 = codecs.BOM_UTF8
# The longer marks first: UTF-32's begins as UTF-16's does.
_UNICODE = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_TEXT_CONTROLS = bytes([7, 8, 9, 10, 11, 12, 13, 27])  # bell to carriage return, and escape
_CONTROLS = bytes(set(range(32)) - set(_TEXT_CONTROLS) | {127})


class NotALog(ValueError):
    """What was given cannot be read as a log; the text says why and what to do."""


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


PIPE_S = 30  # for the first byte of a named pipe


class LogSource:
    """The chunks of one log. When all have been read, `incomplete` says why there should be more; empty: nothing is
    known to be missing, and `digest` is that of the text, unpacked, where it is wanted. Raises NotALog and OSError."""

    def __init__(self, path: str | Path, limit: int = READ_LIMIT, *, digest: bool = True) -> None:
        self.name = "standard input" if str(path) == STDIN else str(path)
        self.incomplete = ""
        self._path = path
        self._limit = limit
        self._hash = hashlib.blake2b(digest_size=32) if digest else None

    @property
    def digest(self) -> str:
        return self._hash.hexdigest() if self._hash else ""

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._all():
            if self._hash:
                self._hash.update(chunk)
            yield chunk

    def _all(self) -> Iterator[bytes]:
        if str(self._path) == STDIN:
            stream = io.BufferedReader(sys.stdin.buffer)  # type: ignore[type-var]
            try:
                yield from self._chunks(stream, self._limit)
            finally:
                stream.detach()
            return
        path = Path(self._path)
        if path.is_dir():
            raise NotALog(f"{self.name} is a folder: give the logs in it, one for each node")
        found = path.stat()
        mode = found.st_mode
        if stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and not found.st_size):  # files of /proc have no size
            yield from self._device(path)
            return
        stored = stat.S_ISREG(mode) and found.st_blocks * 512 >= found.st_size  # a hole may have more than any disk
        with self._pipe(path) if stat.S_ISFIFO(mode) else path.open("rb") as file:
            yield from self._chunks(file, None if stored else self._limit)

    def _pipe(self, path: Path) -> io.BufferedReader:
        """Return a named pipe that somebody writes to; opening one that nobody writes to waits for ever."""
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(PIPE_S * 1000):
            os.close(handle)
            raise NotALog(f"{self.name} is a pipe, and nothing was written to it within {PIPE_S} s")
        os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")

    def _device(self, path: Path) -> Iterator[bytes]:
        """Yield what a device has now: /dev/kmsg and /proc/kmsg give some records, and then wait for the next."""
        handle, left = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), self._limit
        try:
            while left > 0:
                with suppress(BrokenPipeError):  # a record was overwritten before it was read
                    if not (chunk := os.read(handle, CHUNK)):
                        return
                    if left == self._limit and (why := _no_text(chunk)):
                        raise NotALog(f"{self.name} {why}")
                    left -= len(chunk)
                    yield chunk
            self.incomplete = f"only the first {self._limit} bytes of {self.name} were read"
        except BlockingIOError:
            return
        finally:
            os.close(handle)

    def _chunks(self, file: io.BufferedReader | BinaryIO, limit: int | None) -> Iterator[bytes]:
        head = file.peek(8)[:8]  # type: ignore[union-attr]
        for magic, (what, command) in _PACKED.items():
            if head.startswith(magic):
                raise NotALog(f"{self.name} is packed with {what}: unpack it first ({command}); - reads a pipe")
        reader, limit = self._unpacked(file, head, limit)
        chunks = self._read(reader, limit)
        first = next(chunks, b"")
        for mark, encoding in _UNICODE.items():
            if first.startswith(mark):
                yield from _recoded(first, chunks, encoding)
                return
        first = first.removeprefix(_UTF8)
        if why := _no_text(first):
            raise NotALog(f"{self.name} {why}")
        yield first
        yield from chunks

    def _unpacked(self, file: BinaryIO, head: bytes, limit: int | None) -> tuple[_Reader, int | None]:
        if head.startswith(b"\x1f\x8b"):
            return gzip.GzipFile(fileobj=file, mode="rb"), self._limit
        if head.startswith(b"BZh"):
            return bz2.BZ2File(file), self._limit
        return file, limit

    def _read(self, reader: _Reader, limit: int | None) -> Iterator[bytes]:
        left = limit
        while chunk := self._next(reader.read, CHUNK if left is None else min(CHUNK, left + 1)):
            if left is not None and len(chunk) > left:
                self.incomplete = f"only the first {limit} bytes of {self.name} were read"
                yield chunk[:left]
                return
            left = None if left is None else left - len(chunk)
            yield chunk

    def _next(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except EOFError:
            self.incomplete = f"{self.name} was cut: its packed data has no end"
        except (gzip.BadGzipFile, zlib.error) as error:
            self.incomplete = f"{self.name} is damaged: {error}"
        except OSError as error:
            if error.errno is not None:  # without one it is bz2's word for damaged data
                raise
            self.incomplete = f"{self.name} is damaged: {error}"
        return b""


def _recoded(first: bytes, rest: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for chunk in rest:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _no_text(block: bytes) -> str:
    """Why the first block of a file is no text; empty: it may be. A stretch of NUL bytes in a text is a hole, which a
    crash or a truncated log leaves behind; that is no reason here."""
    text = block.replace(b"\0", b"")
    nul = len(block) - len(text)
    if nul and not text:
        return "holds only NUL bytes: the content is lost"
    if nul * 3 > len(block) and b"\0\0" not in block[:64] and nul <= len(text) + 1:
        return "looks like UTF-16 without a byte-order mark: convert it with iconv -f UTF-16LE -t UTF-8 (or UTF-16BE)"
    controls = len(text) - len(text.translate(None, _CONTROLS))
    if controls > 4 and controls * 50 > len(text):
        return "is not text: the file is binary, or packed by an unknown program"
    return ""
