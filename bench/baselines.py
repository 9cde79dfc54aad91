"""python -m bench.baselines [--trials 2000] [--seed 1]: how often a baseline errs, by simulation, as Markdown tables.

Runs are played one after the other as the ledger keeps them: what a rule fails is no pass, and is in nobody's history.
The noise from run to run has a standard deviation of 1 % unless a table says otherwise; each number is a percentage.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import MINIMUM, Pass, Past
from shakedown.gates.baselines.scan import PRIOR, Prior, scan

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rule = Callable[[Array], Flags]

FALSE_ALARM = 0.01
_NORMAL = 2.3263  # its quantile of 1 - FALSE_ALARM
_SKEW = 0.314  # of the logarithm: a skewness of 1, longer towards slow
_METRIC = "throughput_per_gpu"
_RUNS, _BEFORE, _LOSS, _WITHIN = 100, 20, 0.03, 6
FAMILIES = (
    "AR(1) of 0.8, 1 %",
    "daily offsets of 1 %, 0.5 % within",
    "a clock at one of two levels, 2 %",
    "season, 1 %",
)
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.standard_normal(shape)


def student(freedom: float) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Student's t with a standard deviation of 1."""
    return lambda random, shape: random.standard_t(freedom, shape) / math.sqrt(freedom / (freedom - 2))


def lognormal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Skewed: slow runs are further away than fast ones."""
    mean = math.exp(_SKEW**2 / 2)
    spread = mean * math.sqrt(math.exp(_SKEW**2) - 1)
    drawn: Array = np.exp(_SKEW * random.standard_normal(shape))
    return (mean - drawn) / spread


@dataclass(frozen=True)
class Noise:
    """What differs from run to run, in standard deviations; a share of the runs is slow besides, by up to 8 of them."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    slow: float = 0.0


NOISES = (
    Noise("normal", normal),
    Noise("Student's t, 4 degrees of freedom", student(4)),
    Noise("Student's t, 3 degrees of freedom", student(3)),
    Noise("lognormal, skewness 1", lognormal),
    Noise("normal, 3 % outliers", normal, 0.03),
)


def baseline(values: Array, prior: Prior = PRIOR) -> Flags:
    """Apply the rule that ships, one history after the other."""
    return np.array([any(window.lost for window in scan(row, 1, prior)) for row in values.tolist()], dtype=bool)


def five_percent(values: Array) -> Flags:
    """Fails what is 5 % below the mean."""
    found: Flags = values[..., -1] < 0.95 * values[..., :-1].mean(-1)
    return found


def three_sigma(values: Array) -> Flags:
    """Fails what is 3 standard deviations below the mean."""
    earlier = values[..., :-1]
    found: Flags = values[..., -1] < earlier.mean(-1) - 3 * earlier.std(-1, ddof=1)
    return found


RULES: dict[str, Rule] = {"baseline": baseline, "mean - 5 %": five_percent, "mean - 3 sigma": three_sigma}


class Series:
    """Many series of runs of the same job, each with the passes that it has so far."""

    def __init__(self, rule: Rule, noise: Noise, trials: int, random: np.random.Generator, sigma: float = 0.01) -> None:
        self.rule, self.noise, self.random, self.sigma = rule, noise, random, sigma
        self.passes = self._draw(trials, MINIMUM)[0]

    def _draw(self, trials: int, runs: int) -> tuple[Array, Flags]:
        """Healthy runs, and which of them are outliers."""
        drawn = self.noise.draw(self.random, (trials, runs))
        odd: Flags = self.random.random(drawn.shape) < self.noise.slow
        return 1 + self.sigma * (drawn - np.where(odd, 8 * self.random.random(drawn.shape), 0.0)), odd

    def healthy(self, passes: int) -> float:
        """Healthy runs until each series has so many passes: the share that failed, of those that are no outliers."""
        failed = runs = 0
        while self.passes.shape[-1] < passes:
            last = np.empty((len(self.passes), 1))
            waiting = np.arange(len(self.passes))
            while len(waiting):
                last[waiting], odd = self._draw(len(waiting), 1)
                lost = self.rule(np.concatenate([self.passes[waiting], last[waiting]], axis=-1))
                failed, runs = failed + int((lost & ~odd[:, 0]).sum()), runs + int((~odd).sum())
                waiting = waiting[lost]
            self.passes = np.concatenate([self.passes, last], axis=-1)
        return failed / runs if runs else 0.0

    def found(self, levels: Sequence[float]) -> list[float]:
        """Runs at these shares of the usual level, one after the other: the share of the series in which one has
        failed by then. A series without a failure has kept all its runs."""
        values, seen = self.passes, np.zeros(len(self.passes), dtype=bool)
        shares = []
        for level in levels:
            values = np.concatenate([values, self._draw(len(values), 1)[0] + level - 1], axis=-1)
            seen |= self.rule(values)
            shares.append(float(seen.mean()))
        return shares


def best_of_one(noise: Noise, loss: float, random: np.random.Generator, sigma: float = 0.01) -> float:
    """What no rule over one run can exceed: centre, spread and shape of the noise are known to it, and its false alarms
    are 1 %. The likelihood ratio of noise with one peak rises with the loss as far as it matters here."""
    drawn = sigma * noise.draw(random, (1_000_000,))
    return float((drawn - loss < np.quantile(drawn, FALSE_ALARM)).mean())


def best_of_several(loss: float, earlier: int, runs: int, sigma: float = 0.01) -> float:
    """The same of several runs in a row, in normal noise of known spread, judged once after the last of them; the
    centre is known from the earlier runs alone."""
    return NormalDist().cdf(loss / (sigma * math.sqrt(1 / runs + 1 / earlier)) - _NORMAL)


def best_of_decay(loss: Sequence[float], sigma: float = 0.01) -> float:
    """The same of a decay that is known in all but its size: each run's loss, in normal noise of known spread."""
    return NormalDist().cdf(float(np.std(loss)) * math.sqrt(len(loss)) / sigma - _NORMAL)


def weekly(per_week: int, before: int, weeks: int, loss: float) -> list[float]:
    """What each run has lost by then: none in the weeks before, then so much more each week."""
    times = [number / per_week - before for number in range((before + weeks) * per_week)]
    return [loss * max(time, 0.0) for time in times]


def percent(share: float) -> str:
    return f"{100 * share:.2f}" if share < 0.03 else f"{100 * share:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def false_alarms(trials: int, random: np.random.Generator) -> Iterator[str]:
    yield "False alarms, of healthy runs with so many earlier passes, outliers among them not counted:\n"
    rows = []
    for noise in NOISES:
        for title, rule in RULES.items():
            series = Series(rule, noise, trials, random)
            shares = [percent(series.healthy(passes)) for passes in (6, 10, 20, 40)]
            rows.append([noise.name, title, *shares])
    yield from table(["noise", "rule", "5", "6-9", "10-19", "20-39"], rows)


def losses(trials: int, random: np.random.Generator) -> Iterator[str]:
    yield "Found losses: 5 % with 5 earlier runs, and 3 % with 10 by so many runs in a row:\n"
    rows = []
    for noise in NOISES:
        for title, rule in RULES.items():
            series = Series(rule, noise, trials, random)
            five = series.found([0.95])
            series.healthy(10)
            rows.append([noise.name, title, *map(percent, [*five, *series.found([0.97] * 5)])])
        if not noise.slow:
            best = [percent(best_of_one(noise, loss, random)) for loss in (0.05, 0.03)]
            rows.append([noise.name, "*no rule can*", *best, "", "", "", ""])
    several = [best_of_several(0.05, 5, 1), *(best_of_several(0.03, 10, runs) for runs in range(1, 6))]
    rows.append(["normal", "*no rule can, centre unknown*", *map(percent, several)])
    yield from table(["noise", "rule", "5 %: run 1", "3 %: run 1", "2", "3", "4", "5"], rows)


def other_noise(trials: int, random: np.random.Generator) -> Iterator[str]:
    yield "Normal noise of another size than 1 %:\n"
    rows = []
    for sigma in (0.003, 0.02, 0.05):
        known: Rule = functools.partial(baseline, prior=Prior(noise=sigma))
        for title, rule in {**RULES, "baseline, noise known from other nodes": known}.items():
            series = Series(rule, NOISES[0], trials, random, sigma)
            alarms = [series.healthy(passes) for passes in (6, 10, 20)]
            rows.append(
                [f"{100 * sigma:g} %", title, *map(percent, [*alarms, *series.found([1 - max(0.03, 3 * sigma)] * 3)])]
            )
    head = [
        "noise",
        "rule",
        "false alarms, 5",
        "6-9",
        "10-19",
        "3 % or 3 x the noise lost, 20 earlier: run 1",
        "2",
        "3",
    ]
    yield from table(head, rows)


def decays(trials: int, random: np.random.Generator) -> Iterator[str]:
    yield "A decay of 0.2 % a week, found within 10 weeks, in normal noise of 1 %:\n"
    rows = []
    for per_week in (1, 2, 3, 5, 7):
        for before in (0, 8):
            loss = weekly(per_week, before, 10, 0.002)
            start = max(MINIMUM, before * per_week)
            series = Series(baseline, NOISES[0], trials, random)
            series.passes = 1 + 0.01 * normal(random, (trials, start)) - np.array(loss[:start])
            decayed = series.found([1 - entry for entry in loss[start:]])[-1]
            series.passes = series.passes + np.array(loss[:start])
            healthy = series.found([1.0] * len(loss[start:]))[-1]
            shown = [f"{per_week} a week", f"{before} weeks", *map(percent, [decayed, best_of_decay(loss), healthy])]
            rows.append(shown)
    head = ["runs", "before", "found", "*one test at the end can*", "any false alarm in 10 healthy weeks"]
    yield from table(head, rows)


def draw(family: str, random: np.random.Generator) -> Array:
    """Return one series of healthy figures around 1."""
    at, own = np.arange(_RUNS), random.standard_normal(_RUNS)
    if family.startswith("AR(1)"):
        for number in range(1, _RUNS):
            own[number] = 0.8 * own[number - 1] + 0.6 * own[number]
        return 1 + 0.01 * own
    if family.startswith("daily"):
        return 1 + 0.01 * np.repeat(random.standard_normal(_RUNS // 4), 4) + 0.005 * own
    if family.startswith("a clock"):
        low = np.cumsum(random.random(_RUNS) < 0.05) % 2
        return 1 - 0.02 * low + 0.003 * own
    return 1 + 0.01 * np.sin(2 * np.pi * (at / _RUNS + random.random())) + 0.01 * own


def failures(values: Array, first: int = MINIMUM) -> list[bool]:
    """Return which runs fail."""
    passes = [Pass(run_id=str(n), at=_BEGIN + timedelta(hours=n), figures={_METRIC: v}) for n, v in enumerate(values)]
    failed = [False] * len(values)
    for number in range(first, len(values)):
        past = Past(judge=True, earlier=passes[:number])
        found = compare(past, _METRIC, float(values[number]), "at least")
        failed[number] = bool(found.lost) and not found.reported
        if found.lost:
            passes[number] = passes[number].model_copy(update={"worse": [_METRIC]})
    return failed


def correlated(name: str, series: int = 200, seed: int = 1) -> tuple[float, float]:
    """Return the share of healthy runs that fail, and of losses that are found."""
    random = np.random.default_rng([seed, FAMILIES.index(name)])
    failed, found = [], []
    for _ in range(series):
        values = draw(name, random)
        failed += failures(values)[MINIMUM:]
        lost = values[: _BEFORE + _WITHIN].copy()
        lost[_BEFORE:] -= _LOSS
        found.append(any(failures(lost)[_BEFORE:]))
    return float(np.mean(failed)), float(np.mean(found))


def correlated_noise() -> Iterator[str]:
    yield f"Noise that is correlated from run to run, series of {_RUNS} runs by the product's own judgement:\n"
    rows = [[family, *map(percent, correlated(family))] for family in FAMILIES]
    yield from table(["noise", "healthy runs that fail", f"{_LOSS:.0%} found by the sixth run"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[2], prog="python -m bench.baselines")
    parser.add_argument("--trials", type=int, default=2_000, help="series of runs in each row")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    for part, trials in ((false_alarms, given.trials), (losses, given.trials), (other_noise, given.trials // 2)):
        print("\n".join(part(trials, random)), end="\n\n", flush=True)
    print("\n".join(decays(max(given.trials // 10, 1), random)), end="\n\n", flush=True)
    print("\n".join(correlated_noise()))


if __name__ == "__main__":
    main()
