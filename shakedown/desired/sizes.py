"""Sizes people write: "64G", "512MiB", 1073741824."""

import re

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*$", re.IGNORECASE)


def parse_size(value: object) -> object:
    """Bytes of a size as docker and people write it (powers of 1024); anything else is returned as it came, for the
    model to refuse."""
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    return int(float(match[1]) * _UNITS[match[2].upper()]) if match else value


def format_size(count: float) -> str:
    """Return a size for a person: 1536 -> "1.5K"."""
    for unit in ("", "K", "M", "G", "T"):
        if abs(count) < 1024 or unit == "T":
            return f"{count:.1f}{unit}" if unit and count < 100 else f"{count:.0f}{unit}"
        count /= 1024
    raise AssertionError
