"""Which pairs of nodes measure at the same time.

The circle method has n - 1 rounds (n where n is odd) with one partner for every node; after them every pair has
measured. Beyond `ALL_PAIRS` nodes that takes too long, and only `DRAWN` of the rounds take place.
"""

import random
from collections.abc import Collection

ALL_PAIRS = 32  # nodes up to which all pairs are measured: 31 rounds
DRAWN = 8  # rounds beyond that
PEERS = 4  # nodes beside one that is measured again alone: enough to show what is usual

Pair = tuple[int, int]


def circle(nodes: int) -> list[list[Pair]]:
    """Divide all pairs of so many nodes into the fewest rounds. A pair has its lower place first."""
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
    """Make the rounds for so many nodes: all pairs, or a draw of them.

    The seed is the run's id: the same run has the same rounds, and another run has others.
    """
    rounds = circle(nodes)
    if nodes <= ALL_PAIRS:
        return rounds
    chosen = random.Random(seed)
    order = list(range(nodes))
    chosen.shuffle(order)
    drawn = chosen.sample(rounds, DRAWN)
    return [[(min(order[a], order[b]), max(order[a], order[b])) for a, b in pairs] for pairs in drawn]


def peers_for(suspects: int) -> int:
    """Return how many nodes to measure beside the suspects.

    The peers outnumber the suspects, since a node is named only beside the lower half of all others.
    """
    return max(PEERS, suspects + 2)


def beside(suspects: Collection[int], nodes: int, measured: Collection[Pair], seed: str) -> list[int]:
    """Choose the places of a fresh run: the suspects, and twice as many other nodes and two more.

    Nodes that have not yet measured with the suspects come first.
    """
    others = [node for node in range(nodes) if node not in suspects]
    random.Random(seed).shuffle(others)
    had = {frozenset(pair) for pair in measured}
    others.sort(key=lambda node: sum(frozenset((node, suspect)) in had for suspect in suspects))
    return sorted([*suspects, *others[: 2 * len(suspects) + 2]])
