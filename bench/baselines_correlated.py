"""How often a baseline errs in noise that is correlated from run to run: python -m bench.baselines_correlated.

Series of 100 runs are judged one after the other as the ledger keeps them, by the product's own judgement: a run that
is worse is kept as such. `failed` is the share of healthy runs that fail, `found` the share of series in which 3 % that
are lost from run 20 on fail one of the next six runs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import MINIMUM, Pass, Past

Array = NDArray[np.float64]
METRIC = "throughput_per_gpu"
RUNS, BEFORE, LOSS, WITHIN = 100, 20, 0.03, 6
FAMILIES = (
    "AR(1) of 0.8, 1 %",
    "daily offsets of 1 %, 0.5 % within",
    "a clock at one of two levels, 2 %",
    "season, 1 %",
)
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def draw(name: str, random: np.random.Generator) -> Array:
    """Return one series of healthy figures around 1."""
    at, own = np.arange(RUNS), random.standard_normal(RUNS)
    if name.startswith("AR(1)"):
        for number in range(1, RUNS):
            own[number] = 0.8 * own[number - 1] + 0.6 * own[number]
        return 1 + 0.01 * own
    if name.startswith("daily"):
        return 1 + 0.01 * np.repeat(random.standard_normal(RUNS // 4), 4) + 0.005 * own
    if name.startswith("a clock"):
        low = np.cumsum(random.random(RUNS) < 0.05) % 2
        return 1 - 0.02 * low + 0.003 * own
    return 1 + 0.01 * np.sin(2 * np.pi * (at / RUNS + random.random())) + 0.01 * own


def play(values: Array, first: int = MINIMUM) -> list[bool]:
    """Return which runs fail."""
    passes = [Pass(run_id=str(n), at=_BEGIN + timedelta(hours=n), figures={METRIC: v}) for n, v in enumerate(values)]
    failed = [False] * len(values)
    for number in range(first, len(values)):
        past = Past(judge=True, earlier=passes[:number])
        found = compare(past, METRIC, float(values[number]), "at least")
        failed[number] = bool(found.lost) and not found.reported
        if found.lost:
            passes[number] = passes[number].model_copy(update={"worse": [METRIC]})
    return failed


def correlated(name: str, series: int = 200, seed: int = 1) -> tuple[float, float]:
    """Return the share of healthy runs that fail, and of losses that are found."""
    random = np.random.default_rng([seed, FAMILIES.index(name)])
    failed, found = [], []
    for _ in range(series):
        values = draw(name, random)
        failed += play(values)[MINIMUM:]
        lost = values[: BEFORE + WITHIN].copy()
        lost[BEFORE:] -= LOSS
        found.append(any(play(lost)[BEFORE:]))
    return float(np.mean(failed)), float(np.mean(found))


if __name__ == "__main__":
    print("| noise | healthy runs that fail | 3 % found by the sixth run |\n|---|---|---|")
    for family in FAMILIES:
        shares = correlated(family)
        print(f"| {family} | {shares[0]:.2%} | {shares[1]:.0%} |", flush=True)
