"""One reading of several devices, compared with one wanted value: one finding, which names the devices that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shakedown.checks.compare import read_again
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import Reading, Unreadable, is_unreadable

NO_DEVICE = Remedy(text="bring the devices up first, then check again")


def compare_several(
    wanted: Any,
    readings: Mapping[str, Reading[Any]],
    right: Callable[[Any], bool],
    *,
    otherwise: Verdict = Verdict.FAIL,
    unit: str | None = None,
    evidence: str = "",
    remedy: Remedy | None = None,
) -> Comparison:
    """Judge `readings` (device -> reading) in one finding. `actual` maps only the devices that differ to what they
    have; where all are right it is their common value. Without any device nothing was seen to be right: unknown (see
    `nothing_there` for a caller that knows why there is none)."""
    read = {key: value for key, value in readings.items() if not is_unreadable(value)}
    wrong = {key: value for key, value in read.items() if not right(value)}
    unread = {key: value for key, value in readings.items() if is_unreadable(value)}
    parts = [evidence, *(f"{key}: {value}" for key, value in unread.items())]
    if not readings:
        parts.append("there is no such device")
    if wrong:
        verdict, actual = otherwise, wrong
    elif unread or not readings:
        verdict, actual = Verdict.UNKNOWN, None
        remedy = read_again(next(iter(unread.values()))) if unread else NO_DEVICE
    else:
        verdict, actual = Verdict.OK, common(read)
    return Comparison(
        verdict=verdict,
        wanted=wanted,
        actual=actual,
        unit=unit,
        evidence="; ".join(part for part in parts if part),
        remedy=None if verdict is Verdict.OK else remedy,
    )


def nothing_there(wanted: Any, *, count: int, why: str, unit: str | None = None) -> Comparison:
    """Judge a request about devices of which there are none. Where `count` of them are wanted, nothing was seen to be
    right: unknown, and `why` names the finding that says more. Where none is wanted all is well."""
    return Comparison(
        verdict=Verdict.UNKNOWN if count else Verdict.OK,
        wanted=wanted,
        actual=None if count else "none wanted",
        unit=unit if count else None,
        evidence=why if count else "none is wanted: count is 0",
        remedy=NO_DEVICE if count else None,
    )


def common(values: Mapping[str, Any]) -> Any:
    """Return the one value that all have, or the mapping itself where they differ."""
    different = list(dict.fromkeys(str(value) for value in values.values()))
    return next(iter(values.values())) if len(different) == 1 else dict(values)


def missing(reading: object) -> bool:
    """Tell whether the reading says that the thing itself is not there, which is knowledge, not ignorance."""
    return isinstance(reading, Unreadable) and reading.unreadable == "missing"
