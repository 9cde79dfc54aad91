"""python -m bench.commands [--mb 200] [--runs 5]: what commands without a node cost, each a process of its own.

CPU time, user and system, start of Python included; the largest resident set. The log is made up, from a seed:
20,000 iteration lines of the ROCm fork among lines of RCCL, of data loaders and of warnings.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import measure
from bench.ledger import fill
from bench.measure import Cost
from shakedown.ledger.store import open_ledger

ITERATIONS = 20_000
_LINE = (
    " [2026-11-20 10:00:00] iteration {n:8d}/{of:8d} | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {ms:.1f} | mem usages: 0.8131 |"
    " throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | tokens/GPU/s: {tokens:.1f} |"
    " learning rate: 1.000000E-05 | global batch size:   128 | lm loss: {loss:.6E} | loss scale: 1.0 |"
    " grad norm: {norm:.3f} | num zeros: 0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
_OTHERS = (
    "node01:{p}:{q} [{g}] NCCL INFO Channel {c:02d}/0 : {g}[{g}] -> {h}[{h}] via P2P/IPC\n",
    "node01:{p}:{q} [{g}] NCCL INFO Ring {c:02d} : {g} -> {h} -> {k}\n",
    "[rank{g}]: torch/distributed/c10d_logger.py:79: FutureWarning: `all_gather_base` is a private function\n",
    "[2026-11-20 10:{c:02d}:{k:02d}] INFO  megatron.core.datasets: building sample index {p} of {q}, window {k}\n",
    "  time (ms) | forward-backward ...: ({p}.21, {q}.10)\n",
)


@dataclass(frozen=True)
class Row:
    """One figure, its aim, and whether it is met."""

    what: str
    figure: str
    aim: str
    met: bool

    def line(self) -> str:
        return f"| {self.what} | {self.figure} | {self.aim} | {'met' if self.met else 'missed'} |"


def log(path: Path, size: int, iterations: int = ITERATIONS) -> None:
    """Write it: `size` bytes, with the iteration lines evenly among the others."""
    dice, written, done = random.Random(1), 0, 0
    with path.open("w") as file:
        while written < size:
            if done < iterations and written >= done * size / iterations:
                done, noise = done + 1, dice.random()
                text = _LINE.format(
                    n=done, of=iterations, samples=done * 128, ms=600 + 10 * noise, tflops=400 + noise,
                    tokens=9000 + noise, loss=12 - 10 * done / iterations, norm=1 + noise,
                )  # fmt: skip
            else:
                text = dice.choice(_OTHERS).format(
                    p=dice.randrange(9999), q=dice.randrange(9999), g=dice.randrange(8), h=dice.randrange(8),
                    c=dice.randrange(60), k=dice.randrange(60),
                )  # fmt: skip
            file.write(text)
            written += len(text)


def rows(folder: Path, megabytes: int, runs: int) -> list[Row]:
    """Every figure: medians of so many runs that take turns, after one that does not count."""
    path, inventory = folder / "train.log", folder / "rack.py"
    log(path, megabytes * 1_000_000)
    inventory.write_text('nodes = ([f"node{n}" for n in range(8)], {"gpu": "mi300x", "nic": "thor2"})\n')
    (folder / "runs").mkdir()
    fill(open_ledger(folder / "runs" / "ledger.sqlite"), 200, 4)
    commands = {
        "parse": ["parse", str(path)],
        "judge": ["judge", str(path)],
        "--help": ["--help"],
        "show": ["show", str(inventory), "node3"],
        "history": ["history"],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    shakedown = str(Path(sys.executable).with_name("shakedown"))
    for turn in range(runs + 1):
        for name, words in commands.items():
            outcome = measure.run([shakedown, *words], folder, {"SHAKEDOWN_RUNS": str(folder / "runs")})
            if outcome.code:
                raise RuntimeError(f"{name}: exit code {outcome.code}: {outcome.output[-1000:]}")
            if turn:
                costs[name].append(outcome.cost)
    return judged({name: measure.median(entry) for name, entry in costs.items()}, megabytes)


def judged(costs: dict[str, Cost], megabytes: int) -> list[Row]:
    """The medians against their aims."""
    found = []
    for name, least, most in (("parse", 200.0, 64.0), ("judge", 100.0, 64.0 + 200 * ITERATIONS / 1e6)):
        speed = megabytes / costs[name].cpu_s
        found.append(Row(f"`{name}`, {megabytes} MB", f"{speed:.0f} MB/s", f">= {least:g}", speed >= least))
        peak = costs[name].peak_mb
        found.append(Row(f"`{name}`, memory", f"{peak:.0f} MB", f"<= {most:g}", peak <= most))
    for name in ("--help", "show", "history"):
        used = costs[name].cpu_s
        found.append(Row(f"`shakedown {name}`, CPU", f"{used:.2f} s", "<= 0.25", used <= 0.25))
    return found


def table(found: list[Row]) -> str:
    """As docs/developers/speed.md has it."""
    return "\n".join(["| figure | median | aim | |", "|---|---|---|---|", *(row.line() for row in found)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shakedown-bench-") as folder:
        print(table(rows(Path(folder), wanted.mb, wanted.runs)))


if __name__ == "__main__":
    main()
