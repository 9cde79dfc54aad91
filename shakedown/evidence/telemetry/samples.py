"""The samples of one node, out of a file that the node has sent: input, bounded and typed."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BeforeValidator, ConfigDict, Field

from shakedown.common.frozen import Frozen, first_problem
from shakedown.common.text import counted, printable

READ_LIMIT = 16 << 20  # bytes: the sampler writes a quarter of it
_LINE_LIMIT = 1 << 20
_FAULTS = 5  # lines that are quoted
_CHANNELS = 4096
_LARGEST = float(1 << 64)
_LEAST_S = 1e-6  # between two samples; what grew in no time at all grew without end

Name = Annotated[str, BeforeValidator(lambda text: printable(text, 200) if isinstance(text, str) else text)]
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]


class Begin(Frozen):
    """The first line: what the columns are."""

    kind: Literal["begin"]
    schema_: Literal[1] = Field(alias="schema")
    t: Number  # seconds of the node's monotonic clock
    wall: Number  # the node's own Unix time then
    boot_id: Name
    interval_s: Number
    cpus: Annotated[int, Field(ge=1, le=1 << 20)]
    channels: Annotated[list[Name], Field(max_length=_CHANNELS)]


class Unread(Frozen):
    """Channels that could not be read, and why."""

    kind: Literal["unreadable"]
    t: Number
    why: Annotated[str, BeforeValidator(lambda text: printable(text, 500) if isinstance(text, str) else text)]
    channels: Annotated[list[Name], Field(max_length=_CHANNELS)]


class Risen(Frozen):
    """An error counter that rose."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    kind: Literal["risen"]
    t: Number
    counter: Name
    before: Number = Field(alias="from")
    after: Number = Field(alias="to")


class End(Frozen):
    """The last line."""

    kind: Literal["end"]
    t: Number
    why: Name
    samples: Annotated[int, Field(ge=0, le=1 << 40)]
    thinned: Annotated[int, Field(ge=0, le=64)]
    interval_s: Number
    cpu_s: Number  # of the sampler itself


_KINDS: dict[str, type[Begin | Unread | Risen | End]] = {"unreadable": Unread, "risen": Risen, "end": End}


@dataclass
class Series:
    """The samples of a node: `times` by its monotonic clock, and a column for each channel, None where there was no
    value. `incomplete` says why it is not all; empty: it is."""

    begin: Begin | None = None
    times: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)  # channel -> why
    risen: list[Risen] = field(default_factory=list)
    end: End | None = None
    incomplete: str = ""


def read(chunks: Iterable[bytes]) -> Series:
    """Read the samples of a file. The content raises no error."""
    series, count = Series(), 0
    faults: list[str] = []
    order: list[list[float | None]] = []
    for number, line in enumerate(_lines(chunks), 1):
        try:
            _take(series, order, line)
        except (ValueError, RecursionError) as error:
            count += 1
            if len(faults) < _FAULTS:
                faults.append(f"line {number}: {first_problem(error)}")
    gaps = [f"{counted(count, 'line')} of it cannot be used ({'; '.join(faults)})"] if count else []
    if series.begin is None:
        gaps.append("the first line is missing")
    elif series.end is None:
        gaps.append("the end was not written")
    series.incomplete = "; ".join(gaps)
    return series


def _take(series: Series, order: list[list[float | None]], line: bytes) -> None:
    if len(line) > _LINE_LIMIT:
        raise ValueError("too long")
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("no object")
    if series.begin is None:
        series.begin = Begin.model_validate(document)
        if len(set(series.begin.channels)) != len(series.begin.channels):
            series.begin = None
            raise ValueError("a channel is listed twice")
        series.columns = {name: [] for name in series.begin.channels}
        order += series.columns.values()
    elif "v" in document:
        when, values = _sample(document, len(order))
        if series.times and when - series.times[-1] < _LEAST_S:
            raise ValueError("the time is not after that of the sample before")
        series.times.append(when)
        for column, value in zip(order, values, strict=True):
            column.append(value)
    else:
        known = _KINDS.get(str(document.get("kind")))
        if known is None:
            raise ValueError("neither a sample nor a known kind")
        found = known.model_validate(document)
        if isinstance(found, Unread):
            series.unreadable |= {name: found.why for name in found.channels if name in series.columns}
        elif isinstance(found, Risen):
            series.risen.append(found)
        elif isinstance(found, End):
            series.end = found


def _sample(document: dict[str, Any], channels: int) -> tuple[float, list[float | None]]:
    """Check a sample by hand: there are thousands, each with hundreds of values."""
    when, values = document.get("t"), document["v"]
    if len(document) != 2 or not _is_number(when):
        raise ValueError("a sample is a time and its values")
    if not isinstance(values, list) or len(values) != channels:
        raise ValueError(f"a sample has a value for each of the {channels} channels")
    if not all(value is None or _is_number(value) for value in values):
        raise ValueError("a value is no number of 64 bits")
    return float(when), values


def _is_number(value: Any) -> TypeGuard[float]:
    known = type(value) is int or (type(value) is float and math.isfinite(value))
    return known and -_LARGEST <= value <= _LARGEST


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest, size = b"", 0
    for chunk in chunks:
        size += len(chunk)
        if size > READ_LIMIT:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line)
    if rest:
        yield rest
