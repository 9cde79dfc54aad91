"""How often the gate `steady` fails an even run, and how often it passes an uneven one: the product's own judgement
over drawn runs, and over the public runs of the corpus that have times.

    python -m bench.steady
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.corpus import CURVES, Run, runs, wilson
from shakedown.gates.steadiness import BAD, paces, steadiness

LENGTHS = (13, 20, 50, 200)  # iterations, of which the first two and the last are not judged
DRAWS = 400
Draw = Callable[[random.Random, int], list[float]]  # the times of so many iterations, around 1


@dataclass(frozen=True)
class Row:
    """One line of the table: shares of runs of that length."""

    family: str
    iterations: int
    bad: float
    unknown: float


def _normal(scatter: float) -> Draw:
    return lambda chosen, count: [max(0.2, chosen.gauss(1, scatter)) for _ in range(count)]


def _heavy(chosen: random.Random, count: int) -> list[float]:
    return [chosen.lognormvariate(0, 0.08) * (3 if chosen.random() < 0.02 else 1) for _ in range(count)]


def _with(slow: Callable[[random.Random, int, int], float]) -> Draw:
    """An even run of which some iterations take longer: `slow` gives the factor of iteration `at` of `count`."""

    def draw(chosen: random.Random, count: int) -> list[float]:
        return [max(0.2, chosen.gauss(1, 0.02)) * slow(chosen, at, count) for at in range(count)]

    return draw


def _share(share: float, factor: float) -> Draw:
    """Exactly that share of slow iterations, anywhere."""

    def draw(chosen: random.Random, count: int) -> list[float]:
        slow = set(chosen.sample(range(2, count - 1), round(share * (count - 3))))
        return [max(0.2, chosen.gauss(1, 0.02)) * (factor if at in slow else 1) for at in range(count)]

    return draw


EVEN: dict[str, Draw] = {
    "normal, 2 %": _normal(0.02),
    "normal, 8 %": _normal(0.08),
    "heavy tails, 2 % of the iterations three times as long": _heavy,
    "a checkpoint every 10 iterations, five times as long": _with(lambda _, at, __: 5 if at % 10 == 9 else 1),
    "garbage collection every 7 iterations, 1.5 times as long": _with(lambda _, at, __: 1.5 if at % 7 == 6 else 1),
    "one iteration 50 times as long": _with(lambda _, at, count: 50 if at == count // 2 else 1),
    "two slow iterations more after the warm-up": _with(lambda _, at, __: 1.6 if at < 4 else 1),
}
UNEVEN: dict[str, Draw] = {
    "30 % twice as long": _share(0.3, 2),
    "40 % ten times as long": _share(0.4, 10),
    "60 % ten times as long": _share(0.6, 10),
    "80 % three times as long": _share(0.8, 3),
    "every other iteration 1.5 times as long": _with(lambda _, at, __: 1.5 if at % 2 else 1),
    "the last third 1.5 times as long": _with(lambda _, at, count: 1.5 if at >= count * 2 // 3 else 1),
    "a fifth of the run in one stretch three times as long": _with(
        lambda _, at, count: 3 if count // 3 <= at < count // 3 + max(3, count // 5) else 1
    ),
}


def words(draw: Draw, count: int, draws: int, seed: int) -> list[str]:
    """Return what the gate calls each of so many drawn runs."""
    chosen = random.Random(f"{seed}/{count}")
    found: list[str] = []
    for _ in range(draws):
        times = draw(chosen, count)
        run = Run("", "", "", True, 1, 1, losses=(1.0,) * count, times=tuple(times))
        given = paces(run.iterations(), 2)
        assert given is not None
        found.append(steadiness(given).word)
    return found


def row(families: dict[str, Draw], family: str, count: int, draws: int = DRAWS, seed: int = 1) -> Row:
    """Return the shares of a family's runs of one length that fail and that are unknown."""
    seen = words(families[family], count, draws, seed)
    return Row(family, count, sum(word in BAD for word in seen) / draws, seen.count("uneven") / draws)


def table(families: dict[str, Draw]) -> list[Row]:
    """Return the rows of all families and lengths."""
    return [row(families, family, count) for family in families for count in LENGTHS]


def corpus() -> list[tuple[Run, str]]:
    """Return each healthy public run with times enough, and what the gate calls it."""
    found: list[tuple[Run, str]] = []
    for path in sorted(CURVES.glob("*.toml")):
        for run in runs(path):
            if run.healthy and run.times and (given := paces(run.iterations(), 2)):
                found.append((run, steadiness(given).word))
    return found


def main() -> None:
    """Print the tables."""
    for title, families in (("even", EVEN), ("uneven", UNEVEN)):
        print(f"| {title} | iterations | fails % | unknown % |\n|---|---|---|---|")
        for seen in table(families):
            print(f"| {seen.family} | {seen.iterations} | {100 * seen.bad:.1f} | {100 * seen.unknown:.1f} |")
        print()
    public = corpus()
    failed = [run.name for run, word in public if word in BAD]
    low, high = wilson(len(failed), len(public))
    print(f"corpus: {len(failed)} of {len(public)} healthy runs fail ({low:.1%} to {high:.1%}): {', '.join(failed)}")
    print("unknown: " + ", ".join(run.name for run, word in public if word == "uneven"))


if __name__ == "__main__":
    main()
