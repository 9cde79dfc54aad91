"""Figures, ratios and targets, as a table and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.cases import ANSIBLE, CHANGE, DEPLOY, DRIFT, FLOOR, PROBE
from bench.measure import Cost, median

Runs = Mapping[str, list[Cost]]  # by case; the n-th runs of all cases took turns with each other


def ratio(of: list[Cost], over: list[Cost], cpu: bool = False) -> float:
    """The median of the ratios of wall time, or of CPU, within each turn: what slowed the whole turn cancels out."""
    pairs = zip(of, over, strict=True)
    return statistics.median(one.cpu_s / other.cpu_s if cpu else one.wall_s / other.wall_s for one, other in pairs)


@dataclass(frozen=True)
class Target:
    """A bound on `ratio` of two cases (of CPU with `cpu`), or, without `over`, on the median CPU seconds of one, or on
    its nodes' CPU in ms for each of them."""

    text: str
    of: str
    over: str | None
    bound: float
    at_least: bool = False
    cpu: bool = False
    per_node: bool = False
    most_hosts: int | None = None

    def value(self, costs: Runs, hosts: int) -> float | None:
        """None where a case was not measured."""
        if self.most_hosts is not None and hosts > self.most_hosts:
            return None
        if self.of not in costs or (self.over is not None and self.over not in costs):
            return None
        if self.per_node:
            return median(costs[self.of]).nodes_cpu_s / hosts * 1000
        if self.over is None:
            return median(costs[self.of]).cpu_s
        return ratio(costs[self.of], costs[self.over], self.cpu)

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


TARGETS = (
    Target("drift, CPU of the controller: at most 1.4 x the floor's", DRIFT, FLOOR, 1.4, cpu=True),
    Target("drift, wall time on shared cores: at most 2.2 x the floor", DRIFT, FLOOR, 2.2),
    Target("drift, CPU on each node with sshd's session: at most 45 ms", DRIFT, None, 45.0, per_node=True),
    Target("drift: at least 60 x faster than Ansible's modules", ANSIBLE, DRIFT, 60.0, at_least=True),
    Target("deploy without changes: at most 1.5 x drift", DEPLOY, DRIFT, 1.5),
    Target("deploy without changes, CPU: at most 1.0 s over 10 hosts", DEPLOY, None, 1.0, most_hosts=10),
    Target("probe: at most 0.25 s of CPU on the node", PROBE, None, 0.25),
)


FURTHER_MS = 4.0
FURTHER = "drift, ms of CPU of the controller per further host: at most 4"


def per_further_host(results: list[dict[str, Any]]) -> float | None:
    """From the fewest hosts to the most; None where there was one number of them."""
    used = sorted(
        (found["hosts"], found["cases"][DRIFT]["median"]["cpu_s"]) for found in results if DRIFT in found["cases"]
    )
    if len(used) < 2:
        return None
    (few, little), (many, much) = used[0], used[-1]
    return float((much - little) / (many - few) * 1000)


GROWTH = "deploy that changes each node, exponent of its CPU's growth from the most hosts but one to the most: at most"
EXPONENT = 1.05


def growth(results: list[dict[str, Any]]) -> float | None:
    """Return the exponent with which the CPU of the controller grows; None where there was one number of hosts."""
    used = sorted(
        (found["hosts"], found["cases"][CHANGE]["median"]["cpu_s"]) for found in results if CHANGE in found["cases"]
    )
    if len(used) < 2:
        return None
    (few, little), (many, much) = used[-2:]
    return math.log(much / little) / math.log(many / few)


def result(hosts: int, costs: Runs, names: Mapping[str, str]) -> dict[str, Any]:
    """Everything about one number of hosts: the medians, every single run, and the targets."""
    medians = {name: median(runs) for name, runs in costs.items()}
    judged = [(target, target.value(costs, hosts)) for target in TARGETS]
    return {
        "hosts": hosts,
        "cases": {
            name: {"what": names[name], "median": asdict(medians[name]), "runs": [asdict(cost) for cost in runs]}
            for name, runs in costs.items()
        },
        "targets": [
            {"target": target.text, "bound": target.bound, "value": value, "met": target.met(value)}
            for target, value in judged
            if value is not None
        ],
    }


def table(results: list[dict[str, Any]]) -> str:
    """The results as a Markdown table, with each case's wall time against the floor's and Ansible's."""
    head = ("hosts", "case", "runs", "wall s", "spread", "CPU s", "nodes CPU s", "peak MB", "x floor", "Ansible x")
    rows = [head, tuple("-" * len(word) for word in head)]
    for found in results:
        costs = {name: [Cost(**run) for run in case["runs"]] for name, case in found["cases"].items()}
        for name, case in found["cases"].items():
            figures, seen = case["median"], [run["wall_s"] for run in case["runs"]]
            over_ssh = name not in (PROBE, CHANGE)
            rows.append(
                (
                    str(found["hosts"]),
                    case["what"],
                    str(len(seen)),
                    f"{figures['wall_s']:.2f}",
                    f"{min(seen):.2f}-{max(seen):.2f}",
                    f"{figures['cpu_s']:.2f}",
                    f"{figures['nodes_cpu_s']:.2f}" if name != PROBE else "",
                    f"{figures['peak_mb']:.0f}",
                    f"{ratio(costs[name], costs[FLOOR]):.2f}" if over_ssh and FLOOR in costs else "",
                    f"{ratio(costs[ANSIBLE], costs[name]):.1f}" if over_ssh and ANSIBLE in costs else "",
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    for found in results:
        lines += ["", f"{found['hosts']} hosts:"]
        lines += [
            f"  {'met   ' if target['met'] else 'missed'}  {target['target']}: {target['value']:.2f}"
            for target in found["targets"]
        ]
    if further := per_further_host(results):
        lines += ["", f"  {'met   ' if further <= FURTHER_MS else 'missed'}  {FURTHER}: {further:.1f}"]
    if exponent := growth(results):
        lines += ["", f"  {'met   ' if exponent <= EXPONENT else 'missed'}  {GROWTH} {EXPONENT}: {exponent:.2f}"]
    return "\n".join(lines)
