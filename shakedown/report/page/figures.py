"""What was measured beside what was expected, and what these nodes have done before."""

from collections.abc import Sequence
from dataclasses import dataclass

from shakedown.common.text import counted, decimal
from shakedown.gates import Gate
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview

BASELINE = "baseline."  # in front of a metric's name: the gate that holds it against earlier runs
JOBS = 64  # whose figures have rows; nodes by themselves may be hundreds


@dataclass(frozen=True)
class Row:
    """One figure of one job."""

    name: str
    unit: str
    median: str
    mean: str
    spread: str
    count: int
    source: str
    gate: Gate | None  # against what was expected
    expected: str
    baseline: Gate | None  # against earlier runs


@dataclass(frozen=True)
class Table:
    """The figures of one job."""

    job: str
    about: str
    rows: Sequence[Row]


def tables(shown: Overview) -> list[Table]:
    """Of every job that measured something; the job over all nodes comes first."""
    gates = {(gate.job, gate.name): gate for gate in shown.gates}
    jobs = sorted((job for job in shown.jobs if job.figures and job.iterations), key=lambda job: job.node is not None)
    found = []
    for job in jobs[:JOBS]:
        assert job.figures
        rows = []
        for name, metric in METRICS.items():
            figure = job.figures.get(name)
            if figure is None:
                continue
            bound = job.plan.expect.get(name) if job.plan else None
            rows.append(
                Row(
                    name=name,
                    unit=metric.unit,
                    median=decimal(figure.value),
                    mean=decimal(figure.mean),
                    spread="" if figure.spread is None else decimal(figure.spread, 3),
                    count=figure.count,
                    source="derived" if figure.derived else "the script's own summary" if figure.summary else "log",
                    gate=gates.get((job.name, name)),
                    expected="nothing" if bound is None else f"{metric.direction} {decimal(bound)}",
                    baseline=gates.get((job.name, BASELINE + name)),
                )
            )
        plan = job.plan
        about = (
            f"{plan.recipe}, {counted(plan.world_size, 'rank')} on {counted(len(plan.nodes), 'node')}" if plan else ""
        )
        found.append(Table(job.node or "all nodes together", about, rows))
    return found
