"""perftest between two nodes: the figures of the RDMA devices, without a library above them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .. import programs, tools
from ..programs import Failed, Link
from ..registry import Measured, Place, trial

FIRST = 20  # messages of the first run, which decides the number of the next; perftest wants at least five
BYTES = 65536  # perftest's own default, of a write
MOST = {"ib_write_bw": 20_000, "ib_read_lat": 1000}
SECONDS = 1.0
STEPS = 2
READ: dict[str, Callable[[str], float]] = {"ib_write_bw": tools.ib_bandwidth, "ib_read_lat": tools.ib_latency}


@trial(on="pairs", figures={"ib_write_bw": "Gb/s", "ib_read_lat": "us"}, seconds=4, needs_torch=False)
def perftest(place: Place) -> Iterator[Measured]:
    """Run ib_write_bw and ib_read_lat between two nodes' RDMA devices, rail by rail: a node writes to the other, and
    reads from it."""
    link = place.link
    if link is None or link.device is None:
        yield Measured("", math.nan, note="no RDMA device")
        return
    paths: dict[str, str | None] = {}
    try:
        paths = {name: programs.find(name) for name in READ}
        own = "" if all(paths.values()) else f"{', '.join(n for n, path in paths.items() if not path)} not installed"
    except Failed as error:  # the other node waits for a word
        own = str(error)
    link.tell(f"{link.rank}/lacks", own)
    other = link.hear(f"{1 - link.rank}/lacks")
    if own or other:
        yield Measured("", math.nan, note=own or f"on the other node: {other}")
        return
    for client in (0, 1):
        for name, path in paths.items():
            value = _measure(link, name, str(path), link.rank == client)
            if value is not None:
                yield Measured(name, value)


def _measure(link: Link, name: str, path: str, is_client: bool) -> float | None:
    """Run one program in one direction, first shortly where its rate is unknown; None on the server. Raises Failed."""
    common = [path, "-d", str(link.device), "-F", "-p", "{port}"]
    common += ["-x", str(link.gid_index)] if link.gid_index is not None else []
    key = f"{link.rank if is_client else 1 - link.rank}/{name}"
    if is_client:
        return _as_client(link, name, key, common)
    for step in range(STEPS + 1):
        count = int(link.hear(f"{key}/{step}/count"))
        if not count:
            break
        link.serve(f"{key}/{step}", [*common, *_options(name, count)])
    return None


def _as_client(link: Link, name: str, key: str, common: list[str]) -> float:
    step, value = 0, link.rates.get(name, math.nan)
    counts = [_count(name, value)] if value == value else [FIRST]
    try:
        while counts:
            count = counts.pop()
            link.tell(f"{key}/{step}/count", str(count))
            text = link.connect(f"{key}/{step}", [*common, *_options(name, count), "{address}"])
            value, step = READ[name](text), step + 1
            if not value > 0:  # where a run was too short perftest prints 0
                raise Failed(f"{name}: its output has no figure")
            if name not in link.rates and _count(name, value) > count:
                counts.append(_count(name, value))
            link.rates[name] = value
    finally:
        link.tell(f"{key}/{step}/count", "0")
    return value


def _options(name: str, count: int) -> list[str]:
    """Choose the options of a run: software devices lose messages where too many are under way."""
    if name == "ib_read_lat":
        return ["-n", str(count)]
    depth = min(128, max(16, count // 8))
    return ["-n", str(count), "-s", str(BYTES), "-t", str(depth), "--report_gbits"]


def _count(name: str, value: float) -> int:
    """Return how many messages fill the time, by the measured bandwidth in Gb/s or latency in us."""
    fitting = SECONDS * value * 1e9 / (8 * BYTES) if name == "ib_write_bw" else SECONDS * 1e6 / (2 * value)
    return min(max(int(fitting), FIRST), MOST[name])
