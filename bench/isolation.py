"""python -m bench.isolation [--seeds 200] [--only shared]: how often the search is right, and what it costs.

Simulated racks behind the same strategy as real ones, with seeds: the same tables every time. They stand in
docs/developers/accuracy.md between their marks, which `--write` rewrites.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.plays import halving, least_trainings, play
from shakedown.runs.isolation import Noise

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "developers" / "accuracy.md"
MARKS = "<!-- simulation: begin -->", "<!-- simulation: end -->"
MARKS_SLOW = "<!-- slow: begin -->", "<!-- slow: end -->"
MARKS_SHARED = "<!-- shared: begin -->", "<!-- shared: end -->"
MARKS_PRINTED = "<!-- printed: begin -->", "<!-- printed: end -->"
HEAD = (
    *("nodes", "bad", "exactly right", "an innocent named", "trainings", "rounds", "at most"),
    *("log2 C(n, k)", "plain halving: right", "trainings", "rounds"),
)
HEAD_SLOW = (
    *("nodes", "slow", "scatter", "exactly right", "undecided", "an innocent named", "a slow one cleared"),
    *("trainings", "rounds"),
)
HEAD_SHARED = (
    *("nodes", "in racks of", "bad", "exactly right", "an innocent named", "undecided"),
    *("trainings", "rounds", "at most"),
)
HEAD_PRINTED = ("probability printed", "times", "its mean", "was so")
FAULTS = {"nothing": (0, 0, 0), "node": (1, 0, 0), "link": (0, 1, 0), "uplink": (0, 0, 1), "trunk": (0, 0, 2)}
"""What is bad: nodes, links, and of how many racks what they share."""


@dataclass(frozen=True)
class Case:
    """So many nodes, so many of them bad; `share` of the seeds are played: large racks take longer."""

    nodes: int
    bad: int
    share: float = 1.0


CASES = (
    *(Case(8, bad) for bad in (0, 1)),
    *(Case(16, bad) for bad in (0, 1)),
    *(Case(32, bad) for bad in (0, 1, 2)),
    *(Case(64, bad) for bad in (0, 1, 3)),
    *(Case(128, bad) for bad in (0, 1, 6)),
    Case(232, 5),
    *(Case(256, bad, share=0.25) for bad in (0, 3, 13)),
    *(Case(512, bad, share=0.1) for bad in (0, 5, 26)),
    *(Case(1024, bad, share=0.05) for bad in (0, 10, 51)),
)
SHARED = tuple(
    (nodes, rack, fault, 0.2 if nodes > 64 else 1.0)
    for nodes, rack in ((16, 4), (32, 8), (64, 8), (512, 16))
    for fault in FAULTS
)
"""Nodes, in racks of so many, what is bad, and the share of the seeds that is played."""
SLOW = tuple((nodes, bad, scatter) for nodes in (6, 16, 64) for bad in (0, 1) for scatter in (0.05, 0.2, 0.4))
"""Nodes, of which so many take twice the time, and how the time of one scatters."""


def slow_row(nodes: int, bad: int, scatter: float, seeds: int) -> tuple[str, ...]:
    """The figures of one case where all that is seen of a bad node is that it is slow."""
    played = [play(nodes, bad, seed, scatter=scatter) for seed in range(seeds)]
    return (
        str(nodes),
        str(bad),
        f"{scatter:.0%}",
        _share(sum(entry.right for entry in played), seeds),
        _share(sum(not entry.decided for entry in played), seeds),
        _share(sum(entry.innocent for entry in played), seeds),
        _share(sum(entry.missed for entry in played), seeds),
        f"{sum(entry.trainings for entry in played) / seeds:.1f}",
        f"{sum(entry.rounds for entry in played) / seeds:.1f}",
    )


def row(case: Case, seeds: int, noise: Noise) -> tuple[str, ...]:
    """The figures of one case: means over the seeds, and the most rounds that one took."""
    count = max(1, round(seeds * case.share))
    played = [play(case.nodes, case.bad, seed, noise) for seed in range(count)]
    plain = [halving(case.nodes, case.bad, seed, noise) for seed in range(max(count, 200))]
    return (
        str(case.nodes),
        str(case.bad),
        _share(sum(entry.right for entry in played), count),
        _share(sum(entry.innocent for entry in played), count),
        f"{sum(entry.trainings for entry in played) / count:.1f}",
        f"{sum(entry.rounds for entry in played) / count:.1f}",
        str(max(entry.rounds for entry in played)),
        str(least_trainings(case.nodes, case.bad)),
        _share(sum(right for right, _, _ in plain), len(plain)),
        f"{sum(trainings for _, trainings, _ in plain) / len(plain):.1f}",
        f"{sum(rounds for _, _, rounds in plain) / len(plain):.1f}",
    )


def shared_row(nodes: int, rack: int, fault: str, count: int) -> tuple[str, ...]:
    """The figures of one case where racks are known and one cause is bad."""
    bad, links, between = FAULTS[fault]
    played = [play(nodes, bad, seed, links=links, rack=rack, between=between) for seed in range(count)]
    return (
        str(nodes),
        str(rack),
        fault,
        _share(sum(entry.right for entry in played), count),
        _share(sum(entry.innocent for entry in played), count),
        _share(sum(not entry.decided for entry in played), count),
        f"{sum(entry.trainings for entry in played) / count:.1f}",
        f"{sum(entry.rounds for entry in played) / count:.1f}",
        str(max(entry.rounds for entry in played)),
    )


def printed(searches: int, nodes: int = 16, rack: int = 4) -> Iterator[tuple[str, ...]]:
    """What the probabilities that searches print are worth: of suspects, and of nodes that are undecided. A fault of
    each kind by turns; half of the searches may take all rounds, the others end after four."""
    output: list[tuple[float, bool]] = []
    kinds = [kind for kind in FAULTS if kind != "nothing"]
    for seed in range(searches):
        bad, links, between = FAULTS[kinds[seed % len(kinds)]]
        rounds = None if seed % 2 else 4
        output += play(nodes, bad, seed, links=links, rack=rack, between=between, rounds=rounds).printed
    for least, most in ((0.0, 0.05), (0.05, 0.25), (0.25, 0.75), (0.75, 0.95), (0.95, 0.995), (0.995, 1.01)):
        its = [entry for entry in output if least <= entry[0] < most]
        if its:
            mean, true = (sum(entry[place] for entry in its) / len(its) for place in (0, 1))
            yield f"{least:.3g} to {min(most, 1):.3g}", str(len(its)), f"{mean:.3f}", f"{true:.3f}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % of {whole}"


def table(head: Sequence[str], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " ---: |" * len(head)
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"


TABLES = {
    "nodes": (MARKS, HEAD),
    "shared": (MARKS_SHARED, HEAD_SHARED),
    "printed": (MARKS_PRINTED, HEAD_PRINTED),
    "slow": (MARKS_SLOW, HEAD_SLOW),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[2], prog="python -m bench.isolation")
    parser.add_argument("--seeds", type=int, default=200, help="searches of each case; fewer of the large ones")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(PROJECT)}")
    given = parser.parse_args()
    noise, seeds = Noise(), given.seeds
    rows: dict[str, Callable[[], Iterator[tuple[str, ...]]]] = {
        "nodes": lambda: (row(case, seeds, noise) for case in CASES),
        "shared": lambda: (
            shared_row(nodes, rack, fault, max(round(seeds * share), 1)) for nodes, rack, fault, share in SHARED
        ),
        "slow": lambda: (slow_row(*case, max(seeds // (4 if case[0] > 32 else 1), 1)) for case in SLOW),
        "printed": lambda: printed(5 * seeds),
    }
    tables = {}
    for name, (marks, head) in TABLES.items():
        if given.only in (None, name):
            found = []
            for cells in rows[name]():
                found.append(cells)
                print(" | ".join(cells), file=sys.stderr, flush=True)
            tables[marks] = "\n".join(table(head, found))
    print("\n\n".join(tables.values()))
    if given.write:
        page = PAGE.read_text()
        for (begin, end), lines in tables.items():
            before, _, rest = page.partition(begin)
            page = f"{before}{begin}\n{lines}\n{end}{rest.partition(end)[2]}"
        PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
