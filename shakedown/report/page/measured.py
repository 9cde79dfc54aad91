"""Trials: what each part of a node measured beside its peers, and every pair of nodes as one image."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from shakedown.common.text import counted, decimal, printable
from shakedown.report.page import plots
from shakedown.report.page.plots import Plot
from shakedown.trials.models import Judged, Matrix, TrialsRecord

ODD = 500  # rows: parts that are not as usual
STANDINGS = {"named": "fail", "undecided": "unknown", "unknown": "unknown", "notice": "warn", "ok": "ok"}
"""As verdicts they have the same colour and mark."""


@dataclass(frozen=True)
class Fleet:
    """One figure over all parts."""

    name: str
    unit: str
    parts: int
    lowest: str
    middle: str
    highest: str


@dataclass(frozen=True)
class Trials:
    """The trials of a run."""

    fleet: Sequence[Fleet]
    odd: Sequence[tuple[Judged, str]]  # with the verdict that has its colour
    beyond: int
    pairs: Sequence[Plot]
    incomplete: Sequence[str]


def of(record: TrialsRecord | None) -> Trials | None:
    """Return what the page shows of trials; None where there were none."""
    if record is None:
        return None
    odd = [(part, STANDINGS[part.standing]) for part in record.judged if part.standing != "ok"]
    return Trials(
        fleet=list(_fleet(record)),
        odd=odd[:ODD],
        beyond=max(len(odd) - ODD, 0),
        pairs=[
            *(_pairs(matrix) for matrix in record.matrices if matrix.cells),
            *(_pairs(matrix, ", in a fresh run") for matrix in record.matrices_again if matrix.cells),
        ],
        incomplete=[
            printable(f"{node}: {why}", 500) for reasons in record.incomplete.values() for node, why in reasons.items()
        ],
    )


def _fleet(record: TrialsRecord) -> list[Fleet]:
    found: dict[tuple[str, str], list[Judged]] = {}
    for part in record.judged:
        found.setdefault((part.trial, part.figure), []).append(part)
    made = []
    for (trial, figure), parts in found.items():
        values = [part.median for part in parts if part.median is not None]
        if values:
            low, middle, high = (decimal(value, 4) for value in (min(values), median(values), max(values)))
            made.append(Fleet(f"{trial}.{figure}", parts[0].unit, len(values), low, middle, high))
    return made


def _pairs(matrix: Matrix, which: str = "") -> Plot:
    rows = [
        [
            median(values) if (values := matrix.cells.get(sender, {}).get(receiver)) else None
            for receiver in matrix.nodes
        ]
        for sender in matrix.nodes
    ]
    title = f"{matrix.trial}: {matrix.figure}{f' over {matrix.rail}' if matrix.rail else ''} [{matrix.unit}]{which}"
    slow = ", ".join(f"{a} to {b}" for a, b in matrix.slow[:8]) or "no pair"
    alt = f"{title}, sender by receiver, {counted(len(matrix.nodes), 'node')}; slow in every repetition: {slow}"
    alt += f"; nothing came from {counted(len(matrix.missing), 'pair')}" if matrix.missing else ""
    names = [printable(name, 40) for name in matrix.nodes]
    return Plot(printable(title, 200), printable(alt, 2000), plots.heat(rows, names))
