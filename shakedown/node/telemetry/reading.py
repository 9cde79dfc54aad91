"""Channels, and how they are read."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List

from ..tree import attempt, is_unreadable

Reading = Callable[[], Any]
Values = Dict[str, Any]


class Source:
    """Some channels that are read together: `names` are fixed when the sampler begins, `read` gives the values that
    could be had, and an unreadable part in place of one that could not. `every`: only each so-many-th sample."""

    every = 1

    def __init__(self) -> None:
        self.names: List[str] = []

    def read(self) -> Values:
        raise NotImplementedError


def rounded(value: Any) -> Any:
    """Return a value as it is written: others than whole numbers to the thousandth. None: no value, or not finite."""
    if isinstance(value, float):
        return round(value, 3) if abs(value) < 1e300 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def together(names: Iterable[str], reading: Reading) -> Values:
    """Return what a reading gives for several channels, or in each of them why it gives nothing."""
    values = attempt(reading)
    return dict.fromkeys(names, values) if is_unreadable(values) else values
