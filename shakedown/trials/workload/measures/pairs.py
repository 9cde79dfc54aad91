"""Between two nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..registry import Measured, Place, trial

if TYPE_CHECKING:
    import torch

BYTES = {"cuda": 1 << 26, "cpu": 1 << 20}
PINGS = 20
MOST = 64  # messages of one measurement


@trial(on="pairs", figures={"bandwidth": "GB/s", "latency": "us"}, seconds=1.5)
def pairs(place: Place) -> Iterator[Measured]:
    """Measure latency and bandwidth between two nodes, in each direction, with checked messages.

    A node measures its own sends: a number of messages, and the answer that all have arrived.
    """
    import torch

    message = torch.empty(BYTES[place.kind] // 4, device=place.device)
    token = torch.zeros(1, device=place.device)
    for sender in (0, 1):
        _ping(place, token, 2)
        latency = _ping(place, token, PINGS)
        sends = place.rank == sender
        wrong = _once(place, message, sends)
        began = time.perf_counter()
        _stream(place, message, token, 1, sends)
        count = torch.tensor([place.seconds / max(time.perf_counter() - began, 1e-6)], device=place.device)
        _give(place, count, sends)
        calls = max(1, min(MOST, int(count)))
        began = time.perf_counter()
        _stream(place, message, token, calls, sends)
        seconds = time.perf_counter() - began
        if sends:
            yield Measured("latency", latency * 1e6)
            yield Measured("bandwidth", calls * BYTES[place.kind] / seconds / 1e9, wrong)


def _pass(place: Place, data: torch.Tensor, sends: bool) -> None:
    import torch.distributed as dist

    (dist.send if sends else dist.recv)(data, 1 - place.rank)


def _give(place: Place, data: torch.Tensor, sends: bool) -> None:
    _pass(place, data, sends)
    place.wait()


def _ping(place: Place, token: torch.Tensor, count: int) -> float:
    """Measure the seconds of one way, as half of a round trip: the median, since a busy host delays some messages."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        for sender in (0, 1):
            _give(place, token, place.rank == sender)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[count // 2] / 2


def _stream(place: Place, message: torch.Tensor, token: torch.Tensor, count: int, sends: bool) -> None:
    for _ in range(count):
        _pass(place, message, sends)
    _give(place, token, not sends)  # all have arrived


def _once(place: Place, message: torch.Tensor, sends: bool) -> int:
    """Send a message with known content, and count the numbers that arrive wrong."""
    import torch

    wanted = torch.arange(message.numel(), device=message.device, dtype=torch.float32)
    message.copy_(wanted if sends else torch.zeros_like(wanted))
    _give(place, message, sends)
    wrong = torch.tensor([0.0 if sends else float((message != wanted).sum())], device=message.device)
    _give(place, wrong, not sends)
    return int(wrong)
