"""python bench/run.py [--hosts 10 100] [--runs 5]: what a drift check and a deploy without changes cost.

The cases take turns (A B C A B C ...), so that a machine which is busy for a while slows all of them; the figures are
medians. A missed target is reported and is no error: exit 0 means that everything measured did its work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

PROJECT = Path(__file__).resolve().parents[1]
sys.path[0] = str(PROJECT)  # not this folder, whose modules have common names

from bench import ansible_peer, report  # noqa: E402
from bench.cases import ANSIBLE, CHANGE, DEPLOY, DRIFT, FLOOR, PROBE, cases, prepare  # noqa: E402
from bench.measure import Cost  # noqa: E402
from bench.nodes import BenchError, running  # noqa: E402
from bench.settings import of_this_machine  # noqa: E402

LATEST = PROJECT / "bench" / "results" / "latest.json"


def bench(hosts: int, runs: int, names: list[str]) -> dict[str, Any]:
    """Measure the cases over so many hosts. Raises BenchError."""
    with running(hosts) as nodes:
        settings = of_this_machine()
        costs: dict[str, list[Cost]] = {CHANGE: [prepare(nodes, settings)]}
        say(f"{hosts} hosts: changed in {costs[CHANGE][0].wall_s:.2f} s, {costs[CHANGE][0].cpu_s:.2f} s of CPU")
        chosen = cases(nodes, settings, names)
        costs |= {case.name: [] for case in chosen}
        for turn in range(runs + 1):
            for case in chosen:
                cost = case.cost(nodes)
                say(f"{hosts} hosts, run {turn or '0 (not counted)'}: {case.name} {cost.wall_s:.2f} s")
                if turn:  # the first turn fills caches: the probe's on the nodes, the kernel's
                    costs[case.name].append(cost)
        what = {CHANGE: "deploy that changes each node", **{case.name: case.what for case in chosen}}
        return report.result(hosts, costs, what)


def about() -> dict[str, Any]:
    """The machine and the versions that the figures belong to."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu.partition(":")[2].strip() or platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyinfra": version("pyinfra"),
        "ansible_core": ansible_peer.VERSION,
        "commit": commit.stdout.strip(),
        "load": os.getloadavg(),
    }


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    every = [FLOOR, DRIFT, DEPLOY, PROBE, ANSIBLE]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[2], prog="bench/run.py")
    parser.add_argument("--hosts", type=int, nargs="+", default=[10, 100], choices=range(1, 255), metavar="N")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each case, after one that is not")
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="these cases alone")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="default: bench/results/latest.json")
    given = parser.parse_args()
    if given.runs < 1:
        parser.error("--runs: at least 1")
    return given


def main() -> int:
    given = arguments()
    if ANSIBLE in given.only:
        ansible_peer.installed()
    alone()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    document: dict[str, Any] = {"about": about(), "results": []}
    try:
        for hosts in given.hosts:
            document["results"].append(bench(hosts, given.runs, given.only))
    except (BenchError, OSError, subprocess.CalledProcessError) as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        say("bench: interrupted; all that was started has ended")
        return 130
    document["about"]["load_at_end"] = os.getloadavg()
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(document, indent=1) + "\n")
    print(report.table(document["results"]))
    say(f"\nevery run: {given.json}")
    return 0


def alone() -> None:
    """Begin again in a network of its own, once: nodes that share the machine's addresses would be told apart by no
    check."""
    if "SHAKEDOWN_BENCH_NETWORK" not in os.environ:
        os.environ["SHAKEDOWN_BENCH_NETWORK"] = "own"
        begin = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp(begin[0], begin)


def interrupted(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
