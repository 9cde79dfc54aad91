"""python -m bench.rack [--nodes 2500 5000 10000] [--seed 1]: what many nodes cost a controller, beneath the connector.

The documents that probes would print are made up, from a seed, with drift put into them: settings, links that are down,
firmware that is another one, values that could not be read, nodes that do not answer. All else is what a drift check
does with them: desired state, checks, outliers, folding, report, run directory, ledger. Two more tables: every node
drifts and is changed by a deploy, and half of the nodes have another BIOS. Each number of nodes is a process of its
own; the documents are written before it starts.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench import measure
from shakedown.state.findings import Verdict

AIM_S, AIM_MB, LINEAR = 50.0, 2000.0, 1.2  # of 10,000 nodes
MORE_MB = 0.15  # for each node beyond them: 3,500 MB for 20,000
PAGE_MB = 10.0
CHANGED, CHANGED_S, CHANGED_MB = (256, 512), 2.0, 100.0
SPLIT, SPLIT_MB = (2048, 4096), 75.0
DRIFTED, SILENT = 0.05, 0.002  # shares of the nodes
_SITE: dict[str, Any] = {"gpu": "mi300x", "nic": "thor2"}
_ODD: dict[str, Any] = {  # path in the document -> what stands there on a node that drifted
    "numa.balancing.running": "1",
    "sysctl.net.ipv4.conf.all.rp_filter": "1",
    "rdma.3.state": "DOWN",
    "rdma.5.firmware": "230.1.1.1",
    "gpus.2.firmware.vbios": "113-M3000100-101",
    "cpu.governors": {"powersave": 192},
    "rocm_version": "6.3.0",
    "devices.kfd": {"unreadable": "missing", "detail": "/dev/kfd"},
}


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the whole and of its steps, and the largest resident set in 10^6 bytes."""

    nodes: int
    cpu_s: float
    peak_mb: float
    steps: dict[str, float]
    findings: dict[str, int]


def documents(nodes: int, seed: int, path: Path, kind: str = "drift") -> None:
    """One JSON document a line; an empty line is a node that does not answer. `kind`: "drift" puts it into some nodes,
    "change" one setting into all, "split" another BIOS into half of them."""
    from tests.states import healthy

    dice = random.Random(seed)
    healthy_7 = healthy(7)
    template = healthy_7.model_dump_json()
    with path.open("w") as file:
        for number in range(1, nodes + 1):
            if kind == "drift" and dice.random() < SILENT:
                file.write("\n")
                continue
            place = f".{number >> 8}.{number & 255}"
            text = template.replace("node07", name(number)).replace("NODE07", name(number).upper())
            text = text.replace('.0.7/24"', f'{place}/16"').replace('.0.7"', f'{place}"')
            text = text.replace(str(healthy_7.system.machine_id), hashlib.md5(name(number).encode()).hexdigest())
            text = text.replace("00000000a70", f"{number:08x}a70").replace("d203:0007", f"d203:{number:04x}")
            document = json.loads(text)
            if kind == "change":
                _put(document, "numa.balancing.running", "1")
            elif kind == "split" and number % 2:
                _put(document, "system.bios_version", "2.4.5")
            elif kind == "drift" and dice.random() < DRIFTED:
                for odd in dice.sample(sorted(_ODD), dice.randint(1, 3)):
                    _put(document, odd, _ODD[odd])
            file.write(json.dumps(document, separators=(",", ":")) + "\n")


def name(number: int) -> str:
    return f"node{number:04d}"


def _put(document: Any, path: str, value: Any) -> None:
    *above, last = path.split(".")
    if path.startswith("sysctl."):
        document["sysctl"][path.removeprefix("sysctl.")]["running"] = value
        return
    for part in above:
        document = document[int(part) if part.isdigit() else part]
    assert last in document, path
    document[last] = value


def check(path: Path, folder: Path) -> dict[str, Any]:
    """What a drift check with --ledger does with the nodes' answers. CPU seconds by step, and counts of verdicts."""
    from collections import Counter

    from shakedown.checks.examination import Examination, Reading
    from shakedown.desired.layers import HostLayers, Layer
    from shakedown.facts.node import state_of
    from shakedown.ledger.compared import keep
    from shakedown.report.formats import Findings, text_of
    from shakedown.runner.features import resolve
    from shakedown.runs.directory import RunDirectory, RunNode, RunRecord, desired_digest, new_run_id, now

    os.environ["SHAKEDOWN_RUNS"] = str(folder)
    steps: dict[str, float] = {}

    def step(what: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        made = work()
        steps[what] = time.process_time() - began
        return made

    with path.open() as file:
        nodes = sum(1 for _ in file)
    names = [name(number) for number in range(1, nodes + 1)]
    site = Layer("group_data/all.py", _SITE)
    resolved = step("desired state", lambda: resolve([HostLayers(entry, [site], user="root") for entry in names]))
    examination = Examination(resolved.states, dict.fromkeys(names, "rack"))

    def read() -> None:
        with path.open() as file:
            for entry, line in zip(names, file, strict=True):
                if line == "\n":
                    examination.keep(entry, Reading(why="no answer"))
                    continue
                examination.keep(entry, Reading(state_of([line.removesuffix("\n")], list)))

    step("states", read)
    step("checks and outliers", examination.judge)
    verdict = examination.verdict()
    shown = Findings(verdict, nodes, examination.all_findings(), inventory="rack.py")
    for form in ("table", "json", "html"):
        assert step(f"report: {form}", partial(text_of, shown, form))
    directory = RunDirectory.create(new_run_id(), folder)
    record = RunRecord(
        run_id=directory.path.name,
        kind="drift",
        started_at=now(),
        finished_at=now(),
        inventory="rack.py",
        desired_digest=desired_digest(dict(examination.desired)),
        verdict=verdict,
        nodes=[RunNode(name=entry, verdict=examination.verdict_of(entry), part="examined") for entry in names],
        findings=examination.all_findings(),
    )

    def save() -> None:
        directory.save(record)
        for entry, state in examination.states.items():
            directory.write(f"states/{entry}.json", state.model_dump_json())

    step("run directory", save)
    why = step("ledger", lambda: keep(directory, record, examination.states, {}))
    assert not why, why
    found = Counter(str(finding.verdict) for finding in examination.all_findings())
    assert found[Verdict.FAIL], "the odd nodes were not found"
    return {"steps": steps, "findings": dict(found)}


def changed(path: Path, folder: Path) -> dict[str, Any]:
    """What a deploy does with nodes that it has changed: each is read again, judged, and compared with the others. CPU
    seconds, and megabytes that are written until the run ends."""
    from pyinfra.api import Config, Inventory, State
    from pyinfra.context import ctx_host, ctx_state

    from shakedown.checks.examination import Examination, Reading
    from shakedown.runner import examine, stages
    from shakedown.runner.session import Session, enter
    from shakedown.runs.directory import RunDirectory
    from shakedown.state.node import NodeState
    from tests.states import desired

    os.environ["SHAKEDOWN_RUNS"] = str(folder)
    documents_ = [json.loads(line) for line in path.read_text().splitlines()]
    names = [name(number) for number in range(1, len(documents_) + 1)]
    examination = Examination(dict.fromkeys(names, desired()), dict.fromkeys(names, "rack"))
    after = {}
    for entry, document in zip(names, documents_, strict=True):
        examination.keep(entry, Reading(NodeState.model_validate(document)))
        _put(document, "numa.balancing.running", "0")
        after[entry] = Reading(NodeState.model_validate(document))
    examination.judge()
    state = State()
    state.init(Inventory((names, {})), Config())
    current = enter(Session(state, examination))
    current.open_run()
    written = []
    write = RunDirectory.write

    def counted(directory: RunDirectory, file: str, text: str) -> None:
        written.append(len(text))
        write(directory, file, text)

    began = time.process_time()
    with (
        patch.object(RunDirectory, "write", counted),
        patch.object(examine, "read", lambda host, *_: after[host.name]),
        ctx_state.use(state),
    ):
        for stage in (stages._recheck, stages._recompare):
            for host in state.inventory:
                current.run_of(host.name).declared.append("numa_balancing")
                with ctx_host.use(host):
                    assert stage(state, host), host.name
        cpu_s = time.process_time() - began
        current.close()
    return {"cpu_s": cpu_s, "mb": sum(written) / 1e6}


def split(path: Path, folder: Path) -> dict[str, Any]:
    """What the record and the JSON report of a rack hold, half of which has another BIOS. CPU seconds and megabytes."""
    began = time.process_time()
    check(path, folder)
    (record,) = folder.glob("2*/run.json")
    return {"cpu_s": time.process_time() - began, "mb": record.stat().st_size / 1e6}


def measured(nodes: int, seed: int, kind: str = "drift") -> Cost:
    """One number of nodes, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="shakedown-bench-") as scratch:
        path = Path(scratch) / "documents"
        documents(nodes, seed, path, kind)
        argv = [sys.executable, "-m", "bench.rack", "--kind", kind, "--inside", str(path)]
        outcome = measure.run(argv, Path(scratch), {"PYTHONPATH": str(Path(__file__).resolve().parents[1])})
        if outcome.code:
            raise RuntimeError(outcome.output[-3000:])
        reported = json.loads(outcome.output.splitlines()[-1])
    if kind != "drift":
        return Cost(nodes, reported["cpu_s"], reported["mb"], {}, {})
    assert reported["findings"][Verdict.DRIFT], "the drift was not found"
    return Cost(nodes, outcome.cost.cpu_s, outcome.cost.peak_mb, reported["steps"], reported["findings"])


def main() -> None:
    """Print the tables of docs/developers/speed.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2500, 5000, 10_000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", default="drift", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.inside is not None:
        limit = int(4 * AIM_MB * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        gc.set_threshold(50_000, 10, 10)  # as in the command
        kinds = {"drift": check, "change": changed, "split": split}
        print(json.dumps(kinds[wanted.kind](wanted.inside, wanted.inside.parent)))
        return
    costs = [measured(nodes, wanted.seed) for nodes in wanted.nodes]
    print(table(costs))
    changes = [measured(nodes, wanted.seed, "change") for nodes in CHANGED]
    print(growth(changes, "all nodes change: rechecks", "written", CHANGED_S, CHANGED_MB))
    print(growth([measured(nodes, wanted.seed, "split") for nodes in SPLIT], "half differ", "run.json", None, SPLIT_MB))


def growth(costs: list[Cost], what: str, size: str, aim_s: float | None, aim_mb: float) -> str:
    """Return what grows with the nodes, one number of nodes a line, and whether the aims are met."""
    lines = ["", f"| {what} | CPU seconds | {size}, MB |", "|---|---|---|"]
    lines += [f"| {cost.nodes:,} nodes | {cost.cpu_s:.2f} | {cost.peak_mb:.1f} |" for cost in costs]
    few, many = costs[0], costs[-1]
    more = many.nodes / few.nodes
    rows = [(f"{many.nodes:,} nodes, MB", many.peak_mb, aim_mb)]
    rows += [(f"{many.nodes:,} nodes, CPU seconds", many.cpu_s, aim_s)] if aim_s else []
    rows += [("growth of CPU over growth of nodes", many.cpu_s / few.cpu_s / more, LINEAR)]
    rows += [("growth of MB over growth of nodes", many.peak_mb / few.peak_mb / more, LINEAR)]
    return "\n".join(lines + [_judged(*row) for row in rows])


def _judged(what: str, value: float, aim: float) -> str:
    return f"{'met   ' if value <= aim else 'missed'}  {what}, at most {aim:g}: {value:,.2f}"


def table(costs: list[Cost]) -> str:
    """Steps down, numbers of nodes across."""
    lines = ["| CPU seconds | " + " | ".join(f"{cost.nodes:,} nodes" for cost in costs) + " |"]
    lines.append("|---" * (len(costs) + 1) + "|")
    for step in costs[0].steps:
        lines.append(f"| {step} | " + " | ".join(f"{cost.steps[step]:.2f}" for cost in costs) + " |")
    lines.append("| the whole process | " + " | ".join(f"{cost.cpu_s:.1f}" for cost in costs) + " |")
    lines.append("| per node, ms | " + " | ".join(f"{cost.cpu_s / cost.nodes * 1e3:.1f}" for cost in costs) + " |")
    lines.append("| largest resident set, MB | " + " | ".join(f"{cost.peak_mb:,.0f}" for cost in costs) + " |")
    few, many = costs[0], costs[-1]
    linear = (many.cpu_s / few.cpu_s) / (many.nodes / few.nodes)
    for what, value, aim in (
        (f"{many.nodes:,} nodes, CPU seconds", many.cpu_s, AIM_S * max(1.0, many.nodes / 10_000)),
        (f"{many.nodes:,} nodes, MB", many.peak_mb, AIM_MB + MORE_MB * max(0, many.nodes - 10_000)),
        ("growth of CPU over growth of nodes", linear, LINEAR),
    ):
        lines.append(_judged(what, value, aim))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
