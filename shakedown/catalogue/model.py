"""The entries of the catalogue (a kind of line, what the line means, and what to do), its advice and error words."""

import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from shakedown.common.data import kept_toml, read_toml
from shakedown.common.expression import Expression
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

SHORT = 12  # characters of a text that may stand in a line about something else
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
    yields: tuple[str, ...] = ()
    link: Literal["down", "up"] | None = None
    bank: Literal["aca", "mce"] | None = None
    group: str | None = None
    detail: bool = False
    begins: bool = False
    role: Role | None = None
    symptom: bool = False
    common: bool = False
    survivable: bool = False
    warns: bool = False
    again: bool = False
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

    @cached_property
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
    def _compiled(self) -> tuple[Expression, Expression]:
        return Expression(self.pattern or ""), Expression(self.unless or "")


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


_HARMLESS = "nothing: the line is harmless"
_NO_SIGN = ("corrected", "noise")  # severities that explain no failure
_FILES: dict[Log, str] = {"kernel": "kernel_", "job": "job_", "rccl": "rccl"}


@cache
def entries(log: Log) -> tuple[Entry, ...]:
    """Return the entries of one kind of log in the order in which they are tried: noise first, general ones last."""
    found = [Entry.model_validate(table) for table in _tables(log)]
    return tuple(sorted(found, key=_rank))


def _rank(entry: Entry) -> int:
    harmless = entry.log == "kernel" and entry.severity == "noise"
    return 2 * entry.general + (not harmless)


@cache
def _by_name(log: Log) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries(log)}


def entry(name: str) -> Entry | None:
    """Return the entry of that name; None for a name that the catalogue does not have."""
    logs: tuple[Log, ...] = ("job", "kernel", "rccl")
    return next((found for log in logs if (found := _by_name(log).get(name))), None)


def advice(name: str) -> str:
    """Return the advice of that name, about what no single line shows. Raise KeyError."""
    return _advice()[name]


@cache
def _advice() -> dict[str, str]:
    return {table["name"]: table["text"] for table in read_toml("shakedown.catalogue", "advice.toml")["advice"]}


def _tables(log: Log) -> Iterator[dict[str, Any]]:
    """Yield each entry of the files of a log, with what the file says of all its entries."""
    names = [file.name for file in resources.files("shakedown.catalogue").iterdir()]
    for name in sorted(name for name in names if name.startswith(_FILES[log]) and name.endswith(".toml")):
        document = read_toml("shakedown.catalogue", name)
        common = {"log": log, **{key: value for key, value in document.items() if key != "entry"}}
        for table in document["entry"]:
            given = common | table
            if "unless" in common and "unless" in table:
                given["unless"] = f"{common['unless']}|{table['unless']}"
            harmless = given.get("severity") == "noise"
            yield ({"remedy": _HARMLESS} if harmless else {}) | _role(log, given) | given


def _role(log: Log, given: dict[str, Any]) -> dict[str, str]:
    """Return the role of a kernel's line that states none: nothing on another node makes a kernel write the line."""
    return {"role": "origin"} if log == "kernel" and given.get("severity") not in _NO_SIGN else {}


@cache
def error_words(log: Literal["kernel", "job"]) -> Expression:
    """Return the expression that finds the error words of a line without a priority."""
    lists = kept_toml("shakedown.catalogue", "words.toml")[log]
    words = "|".join(map(re.escape, lists["words"]))
    stems = "|".join(map(re.escape, lists["stems"]))
    pattern = rf"(?<![A-Za-z0-9_-])(?:(?:{words})(?![A-Za-z0-9_])|(?:{stems}))"
    return Expression(pattern, re.IGNORECASE if log == "kernel" else 0)


def of_a_job(line: str) -> bool:
    """Return whether a line shows that the log is a job's, and not the kernel's."""
    return any(mark in line for mark in kept_toml("shakedown.catalogue", "words.toml")["job"]["marks"])


@lru_cache(128)  # a storm repeats its lines
def is_daemon(program: str) -> bool:
    """Return whether the writer of a syslog's line is a daemon of the node, whose troubles are no end of a job."""
    return program.partition("(")[0] in kept_toml("shakedown.catalogue", "words.toml")["job"]["daemons"]


def alarming(line: str, log: Literal["kernel", "job"]) -> bool:
    """Return whether a line without a priority holds an error word."""
    return error_words(log).search(line) is not None
