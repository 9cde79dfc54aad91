"""Sizes people write: "64G", "512MiB", "1073741824B"."""

import re

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)\s*$", re.IGNORECASE)
_LEAST = 2**20  # bytes; a smaller number is one without its unit
UNIT = 'a size with its unit, as "64G" or "512MiB"'


def parse_size(value: object) -> object:
    """Return the bytes of a size as people write it (powers of 1024). What is no text is returned as it came, for the
    model to refuse. Raise ValueError for a text that is no size or has no unit."""
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    if not match:
        raise ValueError(UNIT)
    return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


def parse_room(value: object) -> object:
    """Return the bytes of a size, as `parse_size`. Raise ValueError for a number that can be none of bytes, too."""
    if type(value) is int and 0 < value < _LEAST:
        raise ValueError(UNIT)
    return parse_size(value)


def format_size(count: float) -> str:
    """Return a size for a person: 1536 -> "1.5K"."""
    for unit in ("", "K", "M", "G", "T"):
        if abs(count) < 1024 or unit == "T":
            return f"{count:.1f}{unit}" if unit and count < 100 else f"{count:.0f}{unit}"
        count /= 1024
    raise AssertionError
