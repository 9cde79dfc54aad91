"""The readings of one node's devices as one value, which the same readings of other nodes are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shakedown.state.node import Gpu, Reading, is_unreadable


def text_of(reading: Reading[Any]) -> Reading[str]:
    """Return a reading as text."""
    return reading if is_unreadable(reading) else f"{reading:g}" if isinstance(reading, float) else str(reading)


def different(readings: Iterable[Reading[Any]]) -> Reading[str]:
    """Return the different values of one node's devices as one text; unreadable where one of them is."""
    return _joined(list(readings), ", ", lambda texts: sorted(set(texts)))


def of_gpus(gpus: Sequence[Gpu], read: Callable[[Gpu], Reading[Any]]) -> Reading[str]:
    """Return the different values of one node's GPUs as one text: what most have, and before it what others have, each
    with their slots. Unreadable where one of them is."""
    values = [(text_of(read(gpu)), gpu.bdf) for gpu in gpus]
    (usual, count), *_ = Counter(map(str, (value for value, _ in values))).most_common()
    if count * 2 <= len(gpus) or any(is_unreadable(value) for value, _ in values):
        return different(value for value, _ in values)
    others: dict[str, list[str]] = {}
    for value, bdf in values:
        others.setdefault(str(value), []).append(bdf)
    del others[usual]
    return ", ".join([*(f"{value} ({' '.join(slots)})" for value, slots in sorted(others.items())), usual])


def in_order(readings: Iterable[Reading[Any]]) -> Reading[str]:
    """Return the values of one node's devices in their order; unreadable where one of them is."""
    return _joined(list(readings), " ", lambda texts: texts)


def _joined(readings: list[Reading[Any]], mark: str, arrange: Callable[[list[str]], Sequence[str]]) -> Reading[str]:
    unread = next((reading for reading in readings if is_unreadable(reading)), None)
    return unread or mark.join(arrange([str(text_of(reading)) for reading in readings]))
