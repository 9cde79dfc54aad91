"""Which pairs of nodes measure at the same time.

The circle method: n - 1 rounds (n where n is odd) in which every node has one partner, and after which each has had
every other. Beyond `ALL_PAIRS` nodes that is too long: so many rounds of it are drawn, in which each node has as many
partners.
"""

from __future__ import annotations

import random
from collections.abc import Collection

ALL_PAIRS = 32  # nodes up to which all pairs are measured: 31 rounds
DRAWN = 8  # rounds beyond that
PEERS = 4  # nodes beside one that is measured again by itself: enough to say what is usual

Pair = tuple[int, int]


def circle(nodes: int) -> list[list[Pair]]:
    """All pairs of so many nodes in as few rounds as there can be. Each pair has its lower place first."""
    if nodes < 2:
        return []
    ring: list[int | None] = [*range(nodes), *([None] if nodes % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def schedule(nodes: int, seed: str) -> list[list[Pair]]:
    """The rounds for so many nodes: all pairs, or a draw of them. The seed is the run's id, so that the same run has
    the same rounds and another run others."""
    rounds = circle(nodes)
    if nodes <= ALL_PAIRS:
        return rounds
    chosen = random.Random(seed)
    order = list(range(nodes))
    chosen.shuffle(order)
    drawn = chosen.sample(rounds, DRAWN)
    return [[(min(order[a], order[b]), max(order[a], order[b])) for a, b in each] for each in drawn]


def peers_for(suspects: int) -> int:
    """How many nodes to measure beside so many that are measured again: more than them, since a node is named only
    beside the lower half of all others."""
    return max(PEERS, suspects + 2)


def beside(suspects: Collection[int], nodes: int, known: Collection[Pair], seed: str) -> list[int]:
    """The places of a fresh run of what stood out: those, and twice as many that nobody suspects and two more, so that
    what is usual is theirs; first such that the suspects have not measured with."""
    others = [node for node in range(nodes) if node not in suspects]
    random.Random(seed).shuffle(others)
    had = {frozenset(pair) for pair in known}
    others.sort(key=lambda node: sum(frozenset((node, suspect)) in had for suspect in suspects))
    return sorted([*suspects, *others[: 2 * len(suspects) + 2]])
