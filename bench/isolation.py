"""python -m bench.isolation [--seeds 400]: how often the search for bad nodes is right, and what it costs.

Simulated racks behind the same strategy as real ones, with seeds: the same tables every time. They stand in
docs/isolation.md between their marks, which `--write` rewrites.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shakedown.isolation.model import Noise
from shakedown.isolation.simulate import halving, least_trainings, play

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "isolation.md"
MARKS = "<!-- simulation: begin -->", "<!-- simulation: end -->"
MARKS_SLOW = "<!-- slow: begin -->", "<!-- slow: end -->"
HEAD = (
    *("nodes", "bad", "links", "exactly right", "an innocent named", "trainings", "rounds", "at most"),
    *("log2 C(n, k)", "plain halving: right", "trainings", "rounds"),
)
HEAD_SLOW = (
    *("nodes", "slow", "scatter", "exactly right", "undecided", "an innocent named", "a slow one cleared"),
    *("trainings", "rounds"),
)


@dataclass(frozen=True)
class Case:
    """So many nodes, so many of them bad; `share` of the seeds are played: large racks take longer."""

    nodes: int
    bad: int
    links: int = 0
    share: float = 1.0


CASES = (
    *(Case(8, bad) for bad in (0, 1)),
    *(Case(16, bad) for bad in (0, 1)),
    *(Case(32, bad) for bad in (0, 1, 2)),
    *(Case(64, bad) for bad in (0, 1, 3)),
    *(Case(128, bad) for bad in (0, 1, 6)),
    Case(232, 5),
    *(Case(256, bad, share=0.5) for bad in (0, 3, 13)),
    *(Case(512, bad, share=0.5) for bad in (0, 5, 26)),
    *(Case(1024, bad, share=0.25) for bad in (0, 10, 51)),
    *(Case(nodes, 0, 1, share=0.5) for nodes in (8, 32, 64, 256)),
)
SLOW = tuple((nodes, bad, scatter) for nodes in (6, 16, 64) for bad in (0, 1) for scatter in (0.05, 0.2, 0.4))
"""Nodes, of which so many take twice the time, and how the time of one scatters."""


def slow_row(nodes: int, bad: int, scatter: float, seeds: int) -> tuple[str, ...]:
    """The figures of one case where all that is seen of a bad node is that it is slow."""
    played = [play(nodes, bad, seed, scatter=scatter) for seed in range(seeds)]
    return (
        str(nodes),
        str(bad),
        f"{scatter:.0%}",
        _share(sum(each.right for each in played), seeds),
        _share(sum(not each.decided for each in played), seeds),
        _share(sum(each.innocent for each in played), seeds),
        _share(sum(each.missed for each in played), seeds),
        f"{sum(each.trainings for each in played) / seeds:.1f}",
        f"{sum(each.rounds for each in played) / seeds:.1f}",
    )


def row(case: Case, seeds: int, noise: Noise) -> tuple[str, ...]:
    """The figures of one case: means over the seeds, and the most rounds that one took."""
    count = max(1, round(seeds * case.share))
    played = [play(case.nodes, case.bad, seed, noise, case.links) for seed in range(count)]
    plain = [halving(case.nodes, case.bad, seed, noise) for seed in range(max(count, 200))] if not case.links else []
    return (
        str(case.nodes),
        str(case.bad),
        str(case.links),
        _share(sum(each.right for each in played), count),
        _share(sum(each.innocent for each in played), count),
        f"{sum(each.trainings for each in played) / count:.1f}",
        f"{sum(each.rounds for each in played) / count:.1f}",
        str(max(each.rounds for each in played)),
        str(least_trainings(case.nodes, case.bad)) if not case.links else "",
        *(
            (
                _share(sum(right for right, _, _ in plain), len(plain)),
                f"{sum(trainings for _, trainings, _ in plain) / len(plain):.1f}",
                f"{sum(rounds for _, _, rounds in plain) / len(plain):.1f}",
            )
            if plain
            else ("", "", "")
        ),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % of {whole}"


def table(head: Sequence[str], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " ---: |" * len(head)
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[2], prog="python -m bench.isolation")
    parser.add_argument("--seeds", type=int, default=400, help="searches of each case; fewer of the large ones")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(PROJECT)}")
    given = parser.parse_args()
    noise = Noise()
    rows = []
    for case in CASES:
        rows.append(row(case, given.seeds, noise))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    slow = []
    for case_slow in SLOW:
        slow.append(slow_row(*case_slow, seeds=max(given.seeds // (4 if case_slow[0] > 32 else 1), 1)))
        print(" | ".join(slow[-1]), file=sys.stderr, flush=True)
    tables = {MARKS: "\n".join(table(HEAD, rows)), MARKS_SLOW: "\n".join(table(HEAD_SLOW, slow))}
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
