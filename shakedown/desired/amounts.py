"""Amounts of nodes that people write as a number or as a share of all: 4, "4" or "10%"."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_AMOUNT = re.compile(r"\d{1,6}|\d{1,3}(?:\.\d+)?%")


def _written(value: object) -> object:
    """Return a number as its text, anything else as it came."""
    return str(value) if type(value) is int else value


def _amount(text: str) -> str:
    if not _AMOUNT.fullmatch(text) or (text.endswith("%") and float(text[:-1]) > 100):
        raise ValueError('a number of nodes, or a share of them as "10%", at most "100%"')
    return text


def _some(text: str) -> str:
    if not float(_amount(text).rstrip("%")):
        raise ValueError('at least one node, or a share of them as "10%"')
    return text


Amount = Annotated[str, BeforeValidator(_written), AfterValidator(_amount)]
Some = Annotated[str, BeforeValidator(_written), AfterValidator(_some)]
"""As Amount, and not none."""


def of(amount: str, total: int, least: int = 0) -> int:
    """How many nodes an amount is of `total`, rounded down, and at least `least`: 10% of 64 are 6."""
    number = int(float(amount[:-1]) * total / 100 + 1e-9) if amount.endswith("%") else int(amount)
    return max(number, least)
