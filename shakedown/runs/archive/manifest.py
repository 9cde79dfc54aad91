"""What is in an archive, by digests."""

import hashlib
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.logs.kept_logs import LOG_LIMIT
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
