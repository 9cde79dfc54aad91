"""How often trials name an innocent part, and how often the slow one: the same code over simulated figures, with the
fresh run of what the first one names. And how often `shakedown reliability` names a planted lemon, and a healthy node.

Every part has its own offset (`between`) and every repetition its own noise (`within`), both normal on a logarithmic
scale; busy hosts also have repetitions that are far worse than others (`spikes`: one in ten, half the figure).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from shakedown.evidence import peers
from shakedown.ledger.reliability import LEMON, lemon_odds
from shakedown.trials import judge, matrix, plan
from shakedown.trials.models import Named

SLOWER = 0.10
PEERS = plan.PEERS


@dataclass(frozen=True)
class Noise:
    """Of figures, as fractions."""

    name: str
    between: float
    within: float
    spikes: float = 0.0


QUIET = Noise("GPUs: 1 % between, 1 % within", 0.01, 0.01)
USUAL = Noise("hosts: 3 % between, 3 % within", 0.03, 0.03)
BUSY = Noise("a busy host: 5 %, 20 %, spikes", 0.05, 0.20, 0.1)


@dataclass(frozen=True)
class Row:
    """One line of the table: shares of runs."""

    parts: int
    noise: str
    slow: float  # of the figure that one part has; 1: no part is slow
    found: float
    innocent: float


def own_of(chosen: random.Random, noise: Noise, factor: float) -> float:
    """What a part has of its own, in every run."""
    return factor * math.exp(chosen.gauss(0, noise.between))


def figures(chosen: random.Random, noise: Noise, factor: float, repetitions: int) -> list[float]:
    """The repetitions of one part, in its only run."""
    return in_a_run(chosen, noise, own_of(chosen, noise, factor), repetitions)


def in_a_run(chosen: random.Random, noise: Noise, own: float, repetitions: int = 3) -> list[float]:
    """The repetitions of one part in one run of several."""
    taken = [own * math.exp(chosen.gauss(0, noise.within)) for _ in range(repetitions)]
    return [value * (0.5 if chosen.random() < noise.spikes else 1.0) for value in taken]


def of_parts(parts: int, noise: Noise, slow: float, runs: int, seed: int = 1, repetitions: int = 3) -> Row:
    """One part is slow by a factor, or none (1)."""
    chosen = random.Random(f"{seed} {parts} {noise} {slow}")
    found = innocent = 0
    for _ in range(runs):
        own = [own_of(chosen, noise, slow if n == 0 else 1.0) for n in range(parts)]

        def run(which: list[int], own: list[float] = own) -> set[int]:
            values = {n: in_a_run(chosen, noise, own[n], repetitions) for n in which}
            places = peers.places(values, lower_is_better=False, slower=SLOWER)
            return {n for n, place in places.items() if place.standing(SLOWER)[0] == "named"}

        first = run(list(range(parts)))
        others = [n for n in range(parts) if n not in first]
        named = first & run(sorted([*first, *chosen.sample(others, min(PEERS, len(others)))])) if first else first
        found += slow < 1 and 0 in named
        innocent += bool(named - ({0} if slow < 1 else set()))
    return Row(parts, noise.name, slow, found / runs, innocent / runs)


def of_pairs(nodes: int, noise: Noise, slow: float, runs: int, seed: int = 1) -> Row:
    """One node sends slowly by a factor, or none (1)."""
    chosen = random.Random(f"{seed} {nodes} {noise} {slow}")
    found = innocent = 0
    for _ in range(runs):
        own = {
            (a, b): own_of(chosen, noise, slow if a == 0 else 1.0) for a in range(nodes) for b in range(nodes) if a != b
        }

        def run(which: list[int], seed: str, own: dict[tuple[int, int], float] = own) -> list[Named]:
            met = [(which[a], which[b]) for entry in plan.schedule(len(which), seed) for a, b in entry]
            values = {
                (f"n{a}", f"n{b}"): in_a_run(chosen, noise, own[a, b]) for pair in met for a, b in (pair, pair[::-1])
            }
            read = matrix.read(
                values, figure="bandwidth", lower_is_better=False, slower=SLOWER, nodes=[f"n{n}" for n in which]
            )
            return [entry for entry in read.named if entry.kind != "unnamed"]

        first = run(list(range(nodes)), "bench")
        suspects = {int(node[1:]) for entry in first for node in entry.nodes}
        again = run(plan.beside(sorted(suspects), nodes, [], "bench"), "again") if first else []
        named = {(entry.kind, entry.what) for entry in first if any(judge.same(entry, other) for other in again)}
        found += slow < 1 and ("sender", "n0") in named
        innocent += bool(named - {("sender", "n0")}) if slow < 1 else bool(named)
    return Row(nodes, f"pairs, {noise.name}", slow, found / runs, innocent / runs)


def table(runs: int = 2000) -> Iterator[Row]:
    """The rows that the page has."""
    for noise in (QUIET, USUAL, BUSY):
        for parts in (4, 8, 64):
            for slow in (1.0, 0.85, 0.6, 0.25):
                yield of_parts(parts, noise, slow, runs)
    for noise in (QUIET, USUAL, BUSY):
        for nodes in (4, 8, 32):
            for slow in (1.0, 0.6):
                yield of_pairs(nodes, noise, slow, max(runs // 20, 20))


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """As a table of Markdown."""
    yield "| parts | noise | slow part has | named | an innocent one named |"
    yield "|---|---|---|---|---|"
    for row in rows:
        found = "-" if row.slow == 1 else f"{row.found:.1%}"
        has = "no part is slow" if row.slow == 1 else f"{row.slow:.0%}"
        yield f"| {row.parts} | {row.noise} | {has} | {found} | {row.innocent:.2%} |"


@dataclass(frozen=True)
class Lemons:
    """Of fleets with planted bad nodes: how many nodes were named, how many of these are bad, and in how many fleets a
    healthy node was named."""

    nodes: int
    bad: int
    times: float  # the failures of the others
    fleets: int
    named: int
    right: int
    blamed: int


def lemons(nodes: int, bad: int, times: float, fleets: int, seed: int = 1) -> Lemons:
    """Simulate fleets: a failure each 2,000 h under load, and more often on the bad nodes, the first ones."""
    chosen, named, right, blamed = random.Random(f"{seed} {nodes} {bad} {times}"), 0, 0, 0
    for _ in range(fleets):
        hours = {f"n{number}": chosen.uniform(500, 3000) for number in range(nodes)}
        failures: dict[str, int] = {}
        for number, (node, left) in enumerate(hours.items()):
            while (left := left - chosen.expovariate((times if number < bad else 1) / 2000)) > 0:
                failures[node] = failures.get(node, 0) + 1
        odds = lemon_odds(hours, failures)
        found = {node for node, count in failures.items() if count > 1 and odds[node][1] <= LEMON}
        innocent = found - {f"n{number}" for number in range(bad)}
        named, right, blamed = named + len(found), right + len(found - innocent), blamed + bool(innocent)
    return Lemons(nodes, bad, times, fleets, named, right, blamed)


def lemon_lines(fleets: int = 200) -> Iterator[str]:
    """As a table of Markdown."""
    yield "| nodes | bad | times the failures | bad ones named | of the named, bad | fleets with a healthy one named |"
    yield "|---|---|---|---|---|---|"
    for nodes in (64, 128, 512):
        for bad, times in ((0, 1.0), (2, 6.0), (5, 10.0), (10, 15.0)):
            found = lemons(nodes, bad, times, fleets)
            named = f"{found.right / (bad * fleets):.0%}" if bad else "-"
            right = f"{found.right / found.named:.1%}" if bad and found.named else "-"
            yield f"| {nodes} | {bad} | {times:g} | {named} | {right} | {found.blamed / fleets:.1%} |"


if __name__ == "__main__":
    for line in (*lines(table()), "", *lemon_lines()):
        print(line)
