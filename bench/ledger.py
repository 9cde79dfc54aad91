"""python -m bench.ledger [--runs 100000] [--nodes 4]: what a ledger of many runs answers in, on SQLite.

The runs are made up, the ledger and the questions are the real ones. Each question is asked nine times, by a ledger
that is opened anew; the table has the median and the slowest, against 0.2 s. A command has python's start besides.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from shakedown.gates.baselines.key import Key, digest
from shakedown.ledger import schema
from shakedown.ledger.entry import Part
from shakedown.ledger.history import Asked, history
from shakedown.ledger.store import Ledger, open_ledger

AIM_S = 0.2
TIMES = 9
_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_APART = timedelta(minutes=5)
_PAGE = 5000
_RECIPES = ("llama3.1-8b-fp8", "llama3.1-70b-fp8", "llama2-7b")
_MOVES = 40  # of the part that is asked for, from node to node, in all the time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=4, help="of each run")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shakedown-bench-") as folder:
        path = Path(folder) / "ledger.sqlite"
        began = time.monotonic()
        fill(open_ledger(path), wanted.runs, wanted.nodes)
        say(f"{wanted.runs:,} runs of {wanted.nodes} nodes: {path.stat().st_size / 1e6:,.0f} MB")
        say(f"written in {time.monotonic() - began:.0f} s\n")
        say("| question | median s | slowest s | runs | aim 0.2 s |\n|---|---|---|---|---|")
        for what, question in questions(path, wanted.runs).items():
            show(what, question)
        for words in (["history"], ["history", "--part", serial(0)]):
            show(f"the command: shakedown {' '.join(words)}", partial(command, path, words))


def questions(path: Path, runs: int) -> dict[str, Callable[[], int]]:
    """What is asked, and how many runs the answer has."""

    def ask(**wanted: Any) -> Callable[[], int]:
        return lambda: len(history(open_ledger(path), Asked(**wanted)).runs)

    last = _BEGIN + runs * _APART
    return {
        "history": ask(),
        "--limit 1000": ask(limit=1000),
        "--node, in every run": ask(node="node00"),
        "--node, unknown": ask(node="node99"),
        "--recipe": ask(recipe=_RECIPES[2]),
        "--recipe, unknown": ask(recipe="none such"),
        "--node --recipe, which never met": ask(node="node00", recipe="none such"),
        "--since, the last week": ask(since=last - timedelta(weeks=1), limit=1000),
        f"--part, moved {_MOVES} times": ask(part=serial(0)),
        "--part, never moved": ask(part=serial(17)),
        "earlier passes of a job": lambda: len(open_ledger(path).earlier(key(0, 4))),
    }


def show(what: str, question: Callable[[], int]) -> None:
    taken, found = [], 0
    for _ in range(TIMES):
        began = time.perf_counter()
        found = question()
        taken.append(time.perf_counter() - began)
    median = statistics.median(taken)
    say(f"| {what} | {median:.3f} | {max(taken):.3f} | {found} | {'met' if median <= AIM_S else 'missed'} |")


def command(path: Path, words: list[str]) -> int:
    """The whole command, with the start of python."""
    argv = [str(Path(sys.executable).with_name("shakedown")), *words]
    environment = {**os.environ, "SHAKEDOWN_LEDGER": str(path)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return sum("T" in line and "-0" in line for line in done.stdout.splitlines())


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


def fill(ledger: Ledger, runs: int, nodes: int) -> None:
    """Runs, five minutes apart. One GPU of the first node moves on to the next node now and then."""
    chance = random.Random(0)
    with ledger.writing() as connection:
        equipment: dict[int, list[str]] = {}
        for shift in range(nodes):
            equipment[shift] = [f"{digest([node, shift])}" for node in range(nodes)]
            rows = [
                {"equipment": equipment[shift][node], **part.model_dump(), "number": part.number}
                for node in range(nodes)
                for part in parts(node, nodes, shift)
            ]
            connection.execute(schema.parts.insert(), rows)
        for first in range(0, runs, _PAGE):
            page: dict[str, list[dict[str, Any]]] = {name: [] for name in ("runs", "jobs", "figures", "nodes")}
            for number in range(first, min(first + _PAGE, runs)):
                one_run(page, number, equipment[number * _MOVES // runs % nodes], chance)
            for name, rows in page.items():
                connection.execute(schema.metadata.tables[name].insert(), rows)


def parts(node: int, nodes: int, shift: int) -> list[Part]:
    """A node's eight GPUs; the first of node 0 sits `shift` nodes further, and that node's first in its place."""
    numbers = [node * 8 + index for index in range(8)]
    if shift and node in (0, shift):
        numbers[0] = (shift - node) * 8
    kept = {"kind": "gpu", "model": "AMD Instinct MI300X", "firmware": "smc 85.121.0"}
    return [Part(slot=f"0000:{index:02x}:00.0", serial=serial(n), **kept) for index, n in enumerate(numbers)]


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
        page["nodes"].append({"run_id": run_id, "node": f"node{node:02d}", "started": started, **seen})


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
