"""Misspelt names of variables: names that no library reads, and that differ by a slip from one that a library reads."""

import json
from collections.abc import Collection
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files

from shakedown.common.data import read_toml

_WHOLE = ("NCCL", "RCCL", "HSA", "HIP", "ROCR", "GLOO")  # families of which nearly all names are known
_ALIKE = 0.7  # of two parts there, as IDX and INDEX, or IFACE and IFNAME
_LONG = 5  # characters of a part of a name from which one other letter is a slip: FWD and BWD are two names


@cache
def _known() -> frozenset[str]:
    names = json.loads((files("shakedown.recipes") / "variable_names.json").read_text("utf-8"))["names"]
    return frozenset([*names, *read_toml("shakedown.recipes", "variables.toml")["known"]])


def meant(name: str, others: Collection[str] = ()) -> str:
    """Return the variable of libraries or `others` that a name was meant to be; empty: known, or like none."""
    known = _known()
    if name in known or name in others:
        return ""
    return next((other for other in sorted({*known, *others}) if _slip(name, other)), "")


def _slip(name: str, other: str) -> bool:
    """Return whether a name is another one with its case, its order, an underscore, or a letter of one part wrong."""
    if abs(len(name) - len(other)) > 2:
        return False
    parts, right = name.upper().split("_"), other.split("_")
    if "".join(parts) == "".join(right) or (sorted(parts) == sorted(right) and len(right) > 1):
        return True
    if len(parts) != len(right) or len(right) == 1:
        return False
    wrong = [(number, a, b) for number, (a, b) in enumerate(zip(parts, right, strict=True)) if a != b]
    return len(wrong) == 1 and _near(*wrong[0], right[0] in _WHOLE)


def _near(number: int, part: str, right: str, whole: bool) -> bool:
    """Return whether one letter of a part is missing, extra, exchanged or other. Digits tell a family's names apart."""
    if part.strip("0123456789") == right.strip("0123456789"):
        return False
    if sorted(part) == sorted(right):
        return sum(a != b for a, b in zip(part, right, strict=True)) == 2
    short, long = sorted((part, right), key=len)
    if len(short) == len(long) and sum(a != b for a, b in zip(part, right, strict=True)) == 1:
        return len(right) >= _LONG or number == 0 or (whole and len(right) > 2)
    if len(long) - len(short) == 1 and any(long[:place] + long[place + 1 :] == short for place in range(len(long))):
        return True
    return whole and number > 1 and SequenceMatcher(None, part, right).ratio() >= _ALIKE
