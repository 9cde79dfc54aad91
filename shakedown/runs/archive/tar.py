"""Plain files in a compressed tar archive: written the same way every time, and read strictly.

The reader takes nothing but regular files with ustar headers. Links, devices, folders, sparse files and the extension
headers of GNU and POSIX (whose sizes a reader would have to believe) are refused by their type, before anything of
them is read.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shakedown.common.text import printable
from shakedown.runs.archive import MANIFEST
from shakedown.runs.archive.manifest import safe_path

_BLOCK = 512
_CHUNK = 1 << 18
_KINDS = {b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a FIFO"}


class Refused(ValueError):
    """An archive that is none of ours, or a hostile one; says why."""


class Writer:
    """Members in the order in which they are added."""

    def __init__(self, file: BinaryIO, top: str) -> None:
        self._top = top
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w|", format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def add(self, path: str, content: BinaryIO, size: int) -> None:
        """Begin a file of that size. Raises OSError."""
        member = tarfile.TarInfo(f"{self._top}/{path}")
        member.size, member.mode = size, 0o600
        self._tar.addfile(member, content)

    def close(self) -> None:
        """Write the end."""
        self._tar.close()
        self._gzip.close()


class Unpacked:
    """The bytes of a gzip stream, never more than asked for: what a small file unpacks to is not held anywhere."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._expander = zlib.decompressobj(31)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Exactly so many bytes. Raises Refused where there are fewer, or the stream is damaged."""
        parts = []
        while size > 0:
            part = self._some(size)
            if not part:
                raise Refused("it was cut: its end is missing")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _some(self, most: int) -> bytes:
        while not self._expander.eof:
            data = self._rest or self._file.read(_CHUNK)
            if not data:
                return b""
            try:
                found = self._expander.decompress(data, most)
            except zlib.error as error:
                raise Refused(f"it is damaged: {error}") from None
            self._rest = self._expander.unconsumed_tail
            if found:
                return found
        return b""

    def end(self) -> None:
        """Nothing but zeros may follow, a block of records of them at most, and nothing behind the stream."""
        for _ in range(64):
            part = self._some(_CHUNK)
            if not part:
                break
            if part.strip(b"\0"):
                raise Refused("there is something behind its end")
        else:
            raise Refused("there is too much behind its end")
        if not self._expander.eof:
            raise Refused("it was cut: its end is missing")
        if self._expander.unused_data or self._file.read(1):
            raise Refused("there is something behind its end")


class Reader:
    """The members of an archive, one after the other: the path below the top folder, and the size; `content` gives the
    bytes of the one that came last, and has to be read to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream = Unpacked(file)
        self.top = ""

    def members(self) -> Iterator[tuple[str, int]]:
        """Raise Refused."""
        while True:
            header = self._stream.read(_BLOCK)
            if not header.strip(b"\0"):
                if self._stream.read(_BLOCK).strip(b"\0"):
                    raise Refused("it is damaged: a block of zeros and no second one")
                self._stream.end()
                return
            yield self._member(header)

    def content(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of a member, with its padding taken off."""
        rest = size
        while rest > 0:
            part = self._stream.read(min(rest, _CHUNK))
            rest -= len(part)
            yield part
        if self._stream.read(-size % _BLOCK).strip(b"\0"):
            raise Refused("it is damaged: something stands between two members")

    def _member(self, header: bytes) -> tuple[str, int]:
        if header[257:265] != b"ustar\x0000" or _number(header[148:156]) != _checksum(header):
            raise Refused("it is damaged, or no archive of plain ustar headers")
        name = b"/".join(part for part in (_text(header[345:500]), _text(header[:100])) if part).decode("latin-1")
        kind = header[156:157]
        if kind != b"0":
            raise Refused(f"{printable(name, 200)!r} is {_KINDS.get(kind, 'no plain file')}: nothing of it was read")
        if header[157:257].strip(b"\0"):
            raise Refused(f"{printable(name, 200)!r} names a link")
        top, _, path = name.partition("/")
        try:
            safe_path(top)
            safe_path(path)
        except ValueError:
            raise Refused(f"{printable(name, 200)!r} is not a valid path of a member: nothing was unpacked") from None
        if self.top not in ("", top):
            raise Refused(f"{printable(name, 200)!r} is not below {self.top}")
        self.top = top
        return path, _number(header[124:136])


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Return an octal number, as ustar has them; GNU's binary ones (of 8 GiB and more) are refused."""
    digits = field.rstrip(b"\0 ").lstrip(b" ")
    if not digits or digits.strip(b"01234567"):
        raise Refused("it is damaged, or has numbers that are not ustar's")
    return int(digits, 8)


def _checksum(header: bytes) -> int:
    return sum(header[:148]) + 8 * ord(" ") + sum(header[156:])


def is_archive(path: Path) -> bool:
    """Whether a file begins as one of ours does: its first member is a manifest."""
    try:
        with path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                return False
            file.seek(0)
            header = Unpacked(file).read(_BLOCK)
    except (OSError, ValueError):
        return False
    return header[257:262] == b"ustar" and _text(header[:100]).endswith(b"/" + MANIFEST.encode())
