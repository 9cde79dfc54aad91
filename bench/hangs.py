"""python -m bench.hangs [--times 5] [WAY...]: how often a training over four nodes that comes to a standstill is told
rightly. Real nodes of the lab (tests/lab/hangs.py), so it needs root; half a minute each.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.lab import namespaces
from tests.lab.hangs import WAYS, Played, play

_SAID = {
    "stopped": "a rank is stopped (SIGSTOP)",
    "loop": "a rank is in a Python loop",
    "another": "a rank is in another collective",
    "shorter": "a rank comes with half of the elements",
    "longer": "a rank comes with twice the elements",
    "link": "two nodes no longer hear each other",
}
_PAIRS = (("node2", "node3"), ("node3", "node4"), ("node1", "node2"), ("node1", "node4"))  # gloo's ring


def lines(every: Iterable[Sequence[Played]]) -> Iterator[str]:
    """As a table of Markdown."""
    yield "| what happens | played | right | undecided | another node named | evidence complete | at most, in s |"
    yield "|---|---|---|---|---|---|---|"
    for plays in every:
        right = sum(item.right for item in plays)
        wrong = sum(item.wrong for item in plays)
        whole = sum(not item.missing for item in plays)
        seconds = max(item.seconds for item in plays)
        yield (
            f"| {_SAID[plays[0].way]} | {len(plays)} | {right} | {len(plays) - right - wrong} | {wrong} | {whole}"
            f" | {seconds:.1f} |"
        )


def played(way: str, times: int) -> list[Played]:
    """One way, so many times; a link is another one each time."""
    with tempfile.TemporaryDirectory() as folder, namespaces.rack(4) as lab:
        return [play(lab, Path(folder) / f"{way}{turn}", way, _PAIRS[turn % len(_PAIRS)]) for turn in range(times)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hangs")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    for line in lines(played(way, given.times) for way in given.ways or WAYS):
        print(line, flush=True)


if __name__ == "__main__":
    main()
