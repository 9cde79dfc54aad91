"""Plain files in a compressed tar archive, with a manifest of their digests: written the same way every time, and read
strictly.

The reader takes nothing but regular files with ustar headers. Links, devices, folders, sparse files and the extension
headers of GNU and POSIX (whose sizes a reader would have to believe) are refused by their type, before anything of
them is read.
"""

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import AfterValidator, Field

from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.logs.kept_logs import LOG_LIMIT
from shakedown.runs.archive import MANIFEST
from shakedown.state.findings import Verdict

MEMBERS = 100_000  # of one archive; a run over 512 nodes has some thousands
MANIFEST_LIMIT = 64 << 20  # bytes
DEPTH = 6  # folders above a file
_PART = re.compile(r"[A-Za-z0-9@_][A-Za-z0-9@._~-]{0,99}")


def safe_path(path: str) -> str:
    """Return a member's path: relative, of parts that are names on every file system. Raises ValueError."""
    parts = path.split("/")
    if len(path) > 240 or len(parts) > DEPTH + 1 or not all(_PART.fullmatch(part) for part in parts):
        raise ValueError(f"{printable(path, 200)!r} is not a valid path of a member")
    return path


class Member(Frozen):
    """One file of an archive."""

    path: Annotated[str, AfterValidator(safe_path)]
    size: Annotated[int, Field(ge=0, le=LOG_LIMIT)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Frozen):
    """manifest.json."""

    schema_version: Literal[1] = 1
    shakedown: Annotated[str, Field(max_length=100)]  # the version that made it
    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    verdict: Verdict  # what judging the run came to then
    pseudonyms: bool = False
    masked: Annotated[int, Field(ge=0)] = 0  # places in which a secret stood
    left_out: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=1000)] = []
    members: Annotated[list[Member], Field(max_length=MEMBERS)]

    def text(self) -> bytes:
        """Return the file, always the same for the same manifest."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def digest(text: bytes) -> str:
    """Return what a receiver compares: SHA-256 of manifest.json."""
    return hashlib.sha256(text).hexdigest()


_BLOCK = 512
_CHUNK = 1 << 18
_KINDS = {b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a FIFO"}


class Refused(ValueError):
    """An archive that is none of ours, or a hostile one; says why."""


def pack(file: BinaryIO, top: str, members: Iterable[tuple[str, BinaryIO, int]]) -> None:
    """Write members (path below `top`, content, size) in their order. Raises OSError."""
    # Level 6 makes logs 20 % smaller, in twice the time.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=3, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path, content, size in members:
            member = tarfile.TarInfo(f"{top}/{path}")
            member.size, member.mode = size, 0o600
            tar.addfile(member, content)


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
        if header[257:265] != b"ustar\x0000":
            raise Refused("it is damaged, or no archive of plain ustar headers")
        if header[124] & 0x80:  # GNU's binary numbers, for files of 8 GiB and more
            raise Refused("it is damaged, or has numbers that are not ustar's")
        try:
            member = tarfile.TarInfo.frombuf(header, "latin-1", "strict")
        except tarfile.HeaderError:
            raise Refused("it is damaged, or no archive of plain ustar headers") from None
        name, kind = printable(member.name, 200), header[156:157]
        if kind != tarfile.REGTYPE:
            raise Refused(f"{name!r} is {_KINDS.get(kind, 'no plain file')}: nothing of it was read")
        if header[157:257].strip(b"\0"):
            raise Refused(f"{name!r} names a link")
        top, _, path = member.name.partition("/")
        try:
            safe_path(top)
            safe_path(path)
        except ValueError:
            raise Refused(f"{name!r} is not a valid path of a member: nothing was unpacked") from None
        if self.top not in ("", top):
            raise Refused(f"{name!r} is not below {self.top}")
        self.top = top
        return path, member.size


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
    return header[257:262] == b"ustar" and header[:100].rstrip(b"\0").endswith(b"/" + MANIFEST.encode())
