"""The words that make an unknown line worth reading: `words.toml`."""

import re
from functools import cache
from typing import Literal

from shakedown.common.data import read_toml


@cache
def _pattern(log: Literal["kernel", "job"]) -> re.Pattern[str]:
    lists = read_toml("shakedown.catalogue", "words.toml")[log]
    words = "|".join(map(re.escape, lists["words"]))
    stems = "|".join(map(re.escape, lists["stems"]))
    return re.compile(
        rf"(?<![A-Za-z0-9_-])(?:(?:{words})(?![A-Za-z0-9_])|(?:{stems}))", re.IGNORECASE if log == "kernel" else 0
    )


@cache
def _marks() -> tuple[str, ...]:
    return tuple(read_toml("shakedown.catalogue", "words.toml")["job"]["marks"])


def of_a_job(line: str) -> bool:
    """Return whether a line shows that the log is a job's, and not the kernel's."""
    return any(mark in line for mark in _marks())


def alarming(line: str, log: Literal["kernel", "job"]) -> bool:
    """Return whether a line without a priority holds an error word."""
    return _pattern(log).search(line) is not None
