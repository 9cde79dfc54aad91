"""One entry of the catalogue: a kind of line, what the line means, and what to do."""

import re
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from shakedown.common.frozen import Frozen

Log = Literal["kernel", "job", "rccl"]
Part = Literal[
    "GPU",
    "NIC",
    "PCIe",
    "memory",
    "CPU",
    "disk",
    "file system",
    "network",
    "kernel",
    "software",
    "program",
    "access",
    "scheduler",
]
Severity = Literal["fatal", "error", "corrected", "user", "noise"]
Role = Literal["origin", "echo", "either"]
"""What a line proves of the node that shows the line. See docs/reference/catalogue.md."""

_WILD = re.compile(r"(?<!\\)\*")


class Entry(Frozen):
    """One kind of line. docs/reference/catalogue.md explains every field."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{2,60}$")
    log: Log
    part: Part
    severity: Severity
    text: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    pattern: str | None = None
    unless: str | None = None
    level: int | None = Field(default=None, ge=0, le=7)
    general: bool = False
    link: Literal["down", "up"] | None = None
    bank: Literal["aca", "mce"] | None = None
    group: str | None = None
    detail: bool = False
    begins: bool = False
    role: Role | None = None
    symptom: bool = False
    common: bool = False
    survivable: bool = False
    late_s: float = 0.0
    rdma: bool = False
    cause: str = Field(min_length=1)
    remedy: str = Field(min_length=1)
    source: str = Field(min_length=1)
    shows: tuple[str, ...] = Field(min_length=1)
    shows_not: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.log == "job" and self.role is None:
            raise ValueError(f"{self.name}: an entry of a job's log needs a role")
        if not (self.text or (self.frames and self.log == "job")):
            raise ValueError(f"{self.name}: an entry needs a text, or a job's frames")
        return self

    @cached_property
    def forms(self) -> tuple[tuple[str, ...], ...]:
        """Return the literal pieces of each text, in their order; a kernel's in lower case."""
        forms = tuple(pieces(text) for text in self.text)
        return tuple(tuple(text.lower() for text in form) for form in forms) if self.log == "kernel" else forms

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        """Return the literal pieces of each of the frames."""
        return tuple(pieces(frame) for frame in self.frames)

    @property
    def anchors(self) -> tuple[str, ...]:
        """Return the longest piece of each text: a line without any of them cannot match."""
        return tuple(max(form, key=len) for form in self.forms)

    def matches(self, line: str) -> bool:
        """Return whether a line of a job's log is of this kind."""
        return (
            any(holds(line, form) for form in self.forms)
            and (self.pattern is None or self._compiled[0].search(line) is not None)
            and not self.refuses(line)
        )

    def refuses(self, line: str) -> bool:
        """Return whether a line holds what speaks against the entry."""
        return self.unless is not None and self._compiled[1].search(line) is not None

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        return re.compile(self.pattern or ""), re.compile(self.unless or "")


def pieces(text: str) -> tuple[str, ...]:
    """Return what stands between the asterisks of a text; a backslash keeps an asterisk."""
    return tuple(piece.replace("\\*", "*") for piece in _WILD.split(text) if piece)


def holds(line: str, form: tuple[str, ...]) -> bool:
    """Return whether a line holds the pieces in their order."""
    at = 0
    for piece in form:
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True
