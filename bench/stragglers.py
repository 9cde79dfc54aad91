"""How often a node that is slow while it trains is named, and how often an innocent one: the product's own judgement
over drawn runs.

The scatter is either measured (`own_times.toml`: every rank's windows over the median of its run's, drawn as they came)
or normal on a logarithmic scale, as in bench/trials.py.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.trials import QUIET, USUAL, figures
from shakedown.evidence.stragglers.judge import Layout, judged
from shakedown.evidence.stragglers.model import Limits, Measured, Window

WINDOWS = 8
Draw = Callable[[random.Random], list[float]]  # one node's own times, around 1


@dataclass(frozen=True)
class Row:
    """One line of the table: shares of runs."""

    nodes: int
    noise: str
    slow: float  # how many times as long one node needs; 1: nobody is slow
    found: float
    undecided: float
    innocent: float


def measured() -> list[list[float]]:
    """The windows of every rank that was measured, over the median of its run's in that window."""
    document = tomllib.loads(Path(__file__).with_name("own_times.toml").read_text("utf-8"))
    found = []
    for run in document["runs"]:
        middle = [median(window) for window in zip(*run["ranks"], strict=True)]
        found += [[own / usual for own, usual in zip(rank, middle, strict=True)] for rank in run["ranks"]]
    return found


def heavy(chosen: random.Random) -> list[float]:
    """Far nodes and far windows are as frequent as Student's t of 3 degrees has them; its standard deviation is 3 %."""
    between = _student(chosen)
    return [math.exp(0.03 * (between + _student(chosen))) for _ in range(WINDOWS)]


def _student(chosen: random.Random, freedom: int = 3) -> float:
    squares = sum(chosen.gauss(0, 1) ** 2 for _ in range(freedom))
    return chosen.gauss(0, 1) / math.sqrt(squares / freedom) / math.sqrt(freedom / (freedom - 2))


def correlated(chosen: random.Random) -> list[float]:
    """Each window has 0.8 of the deviation of the window before."""
    state, own = chosen.gauss(0, 1), []
    for _ in range(WINDOWS):
        own.append(math.exp(0.03 * state))
        state = 0.8 * state + 0.6 * chosen.gauss(0, 1)
    return own


def daily(chosen: random.Random) -> list[float]:
    """A node is warmer or cooler than others for as long as the run lasts."""
    offset = 0.03 * chosen.gauss(0, 1)
    return [math.exp(offset + 0.01 * chosen.gauss(0, 1)) for _ in range(WINDOWS)]


def draws() -> dict[str, Draw]:
    """The noises, by name."""
    pool = measured()

    def of_pool(chosen: random.Random) -> list[float]:
        values, begin = chosen.choice(pool), chosen.randrange(WINDOWS)
        return [values[(begin + at) % len(values)] for at in range(WINDOWS)]

    return {
        "heavy tails: Student's t of 3 degrees, 3 % between, 3 % within": heavy,
        "AR(1) of 0.8 from window to window, 3 %": correlated,
        "a node's own offset of the day, 3 %, and 1 % within": daily,
        QUIET.name: lambda chosen: figures(chosen, QUIET, 1.0, WINDOWS),
        USUAL.name: lambda chosen: figures(chosen, USUAL, 1.0, WINDOWS),
        "measured: two cores that other work shared": of_pool,
    }


def row(noise: str, nodes: int, slow: float, runs: int, seed: int = 1) -> Row:
    """One node needs `slow` times as long, or none (1)."""
    chosen, draw = random.Random(f"{seed} {nodes} {noise} {slow}"), draws()[noise]
    layout = Layout({f"n{node}": range(node, node + 1) for node in range(nodes)})
    found = doubtful = innocent = 0
    for _ in range(runs):
        shown: dict[str, Measured | None] = {}
        for node in range(nodes):
            own = [value * (slow if node == 0 else 1.0) for value in draw(chosen)]
            windows = (Window(rank=node, first=at, last=at, own=value) for at, value in enumerate(own))
            shown[f"n{node}"] = Measured(own=tuple(windows))
        values = judged(shown, layout, Limits())
        named = {item.node for item in values.named("fail", "warn", "notice")}
        found += slow > 1 and "n0" in named
        doubtful += bool(values.unknown)
        innocent += bool(named - ({"n0"} if slow > 1 else set()))
    return Row(nodes, noise, slow, found / runs, doubtful / runs, innocent / runs)


def table(runs: int = 1000) -> Iterator[Row]:
    """Every noise and size."""
    for noise in draws():
        for nodes in (4, 8, 32):
            for slow in (1.0, 1.15, 1 / 0.6, 4.0):
                yield row(noise, nodes, slow, max(runs * 4 // nodes, 100))


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """As a table of Markdown."""
    yield "| nodes | noise | one needs | named | not known | an innocent one named |"
    yield "|---|---|---|---|---|---|"
    for item in rows:
        needs = "nobody is slow" if item.slow == 1 else f"{item.slow:.2f} times as long"
        found = "-" if item.slow == 1 else f"{item.found:.1%}"
        yield f"| {item.nodes} | {item.noise} | {needs} | {found} | {item.undecided:.1%} | {item.innocent:.2%} |"


if __name__ == "__main__":
    for line in lines(table()):
        print(line)
