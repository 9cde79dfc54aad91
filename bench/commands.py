"""python -m bench.commands [--mb 200] [--runs 5] [--ledger 100000]: what commands without a node cost, each a
process of its own, and how soon a ledger of many runs answers, on SQLite.

CPU time, user and system, start of Python included; the largest resident set. The log is made up, from a seed:
20,000 iteration lines of the ROCm fork among lines of RCCL, of data loaders and of warnings. The ledger's runs are
made up, the ledger and the questions are the real ones: each is asked nine times, by a ledger that is opened anew.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import measure
from bench.measure import Cost
from shakedown.gates.baselines.model import Key, digest
from shakedown.ledger import schema
from shakedown.ledger.entry import Part
from shakedown.ledger.history import Asked, history
from shakedown.ledger.store import Ledger, open_ledger

ITERATIONS = 20_000
AIM_S = 0.2  # for an answer of the ledger
NODES = 4  # of each run in it
_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_APART = timedelta(minutes=5)
_PAGE = 5000
_RECIPES = ("llama3.1-8b-fp8", "llama3.1-70b-fp8", "llama2-7b")
_MOVES = 40  # of the part that is asked for, from node to node, in all the time
_LINE = (
    " [2026-11-20 10:00:00] iteration {n:8d}/{of:8d} | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {ms:.1f} | mem usages: 0.8131 |"
    " throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | tokens/GPU/s: {tokens:.1f} |"
    " learning rate: 1.000000E-05 | global batch size:   128 | lm loss: {loss:.6E} | loss scale: 1.0 |"
    " grad norm: {norm:.3f} | num zeros: 0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
_OTHERS = (
    "node01:421{g}:531{g} [{g}] NCCL INFO Channel {c:02d}/0 : {g}[{g}] -> {h}[{h}] via P2P/IPC\n",
    "node01:421{g}:531{g} [{g}] NCCL INFO Ring {c:02d} : {g} -> {h} -> {k}\n",
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
    fill(open_ledger(folder / "runs" / "ledger.sqlite"), 200)
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


def answers(path: Path, runs: int) -> Iterator[Row]:
    """What the ledger is asked, and how long the answer takes."""
    fill(open_ledger(path), runs)
    questions: dict[str, dict[str, Any]] = {
        "`history`, the newest 20": {},
        "`--limit 1000`": {"limit": 1000},
        "`--node`, in every run": {"node": "node00"},
        "`--node node[00-01]`": {"node": "node[00-01]"},
        "`--recipe`": {"recipe": _RECIPES[2]},
        "`--node --recipe` that never met": {"node": "node00", "recipe": "none such"},
        "`--since`, the last week": {"since": _BEGIN + runs * _APART - timedelta(weeks=1), "limit": 1000},
        f"`--part`, moved {_MOVES} times": {"part": serial(0)},
        "`--part --recipe` that never met": {"part": serial(0), "recipe": "none such"},
        "earlier passes of a job": {},
    }
    for what, asked in questions.items():
        taken = []
        for _ in range(9):
            began = time.perf_counter()
            if what.startswith("earlier"):
                open_ledger(path).earlier(key(0, NODES))
            else:
                history(open_ledger(path), Asked(**asked))
            taken.append(time.perf_counter() - began)
        median = statistics.median(taken)
        yield Row(f"{what}, {runs:,} runs", f"{median:.3f} s", f"<= {AIM_S:g}", median <= AIM_S)


def key(recipe: int, nodes: int) -> Key:
    """The key of a job over all nodes."""
    more = {"image": "sha256:" + "ab" * 32, "rocm": "6.4.1", "driver": "6.12.12"}
    parameters = digest(recipe)
    return Key(
        gpu="AMD Instinct MI300X", recipe=_RECIPES[recipe], parameters=parameters, nodes=nodes, scope="together", **more
    )


def serial(number: int) -> str:
    """A GPU's."""
    return f"{0xA0000000 + number:016x}"


def fill(ledger: Ledger, runs: int, nodes: int = NODES) -> None:
    """Runs, five minutes apart. One GPU of the first node moves on to the next node now and then."""
    chance = random.Random(0)
    with ledger.writing() as connection:
        equipment: dict[int, list[str]] = {}
        for shift in range(nodes):
            equipment[shift] = [f"{digest([node, shift])}" for node in range(nodes)]
            rows = [
                {"equipment": equipment[shift][node], **part._asdict(), "number": part.number}
                for node in range(nodes)
                for part in parts(node, nodes, shift)
            ]
            connection.execute(schema.parts.insert(), rows)
        for first in range(0, runs, _PAGE):
            page: dict[str, list[dict[str, Any]]] = {
                name: [] for name in ("runs", "jobs", "figures", "nodes", "recipes")
            }
            for number in range(first, min(first + _PAGE, runs)):
                one_run(page, number, equipment[number * _MOVES // runs % nodes], chance)
            for name, rows in page.items():
                connection.execute(schema.metadata.tables[name].insert(), rows)


def parts(node: int, nodes: int, shift: int) -> list[Part]:
    """A node's eight GPUs; the first of node 0 sits `shift` nodes further, and that node's first in its place."""
    numbers = [node * 8 + index for index in range(8)]
    if shift and node in (0, shift):
        numbers[0] = (shift - node) * 8
    model, firmware = "AMD Instinct MI300X", "smc 85.121.0"
    return [Part("gpu", f"0000:{index:02x}:00.0", serial(n), model, firmware) for index, n in enumerate(numbers)]


def one_run(page: dict[str, list[dict[str, Any]]], number: int, equipment: list[str], chance: random.Random) -> None:
    at = _BEGIN + number * _APART
    run_id, started = f"{at:%Y%m%dT%H%M%S}-{number:06x}", int(at.timestamp())
    passed = "ok" if chance.random() < 0.97 else "fail"
    recipe = chance.choices(range(3), [90, 9, 1])[0]
    keyed = key(recipe, len(equipment))
    common = {"run_id": run_id, "started": started, "finished": started + 280, "verdict": passed}
    wrong = {"not_ok": int(passed != "ok"), "wrong": "" if passed == "ok" else "throughput_per_gpu"}
    about = {"kind": "run", "inventory": "rack.py", "desired": "0" * 64, "kept_at": f"head:/runs/{run_id}"}
    page["runs"].append({**common, **about, **wrong, "nodes": len(equipment)})
    of_key = {**keyed.model_dump(), "identity": keyed.identity, "epoch": keyed.epoch}
    page["jobs"].append({**common, "job": "together", **of_key})
    for metric, centre, unit in (("throughput_per_gpu", 400.0, "TFLOP/s/GPU"), ("tokens_per_gpu", 9e3, "tokens/s/GPU")):
        figure = {"metric": metric, "value": chance.gauss(centre, centre / 100), "spread": 1.0, "count": 47}
        page["figures"].append({"run_id": run_id, "job": "together", "unit": unit, **figure})
    for node, which in enumerate(equipment):
        seen = {"verdict": passed, "part": "trained", "why": "", "equipment": which}
        of_node = {"run_id": run_id, "node": f"node{node:02d}", "started": started}
        page["nodes"].append({**of_node, **seen})
        page["recipes"].append({**of_node, "recipe": keyed.recipe})


def table(found: list[Row]) -> str:
    """As docs/developers/speed.md has it."""
    return "\n".join(["| figure | median | aim | |", "|---|---|---|---|", *(row.line() for row in found)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ledger", type=int, default=100_000, metavar="RUNS")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shakedown-bench-") as folder:
        print(table(rows(Path(folder), wanted.mb, wanted.runs)), flush=True)
        print(table(list(answers(Path(folder) / "ledger.sqlite", wanted.ledger))))


if __name__ == "__main__":
    main()
