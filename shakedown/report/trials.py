"""Trials as tables: nodes against figures, senders against receivers. What is named has a mark besides its colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal
from shakedown.report import terminal
from shakedown.trials.models import KINDS

if TYPE_CHECKING:
    from shakedown.gates import Gate
    from shakedown.trials.models import Judged, Matrix, TrialsRecord

MANY = 16
"""Nodes of which each has its row; of more only those in which something is not as usual."""
MARKS = {"ok": "", "notice": " (notice)", "named": " !", "undecided": " ?", "unknown": ""}
_COLOURS = {"named": "red", "undecided": "magenta", "notice": "cyan"}


def of_trials(gate: Gate) -> bool:
    """Whether a gate is of trials, and not of the training."""
    return gate.job.partition("/")[0] in KINDS


def of_training(gates: Iterable[Gate]) -> list[Gate]:
    """Return the gates that are not of trials."""
    return [gate for gate in gates if not of_trials(gate)]


def tables(record: TrialsRecord) -> Iterator[Any]:
    """Yield what was measured: each node's figures, then every pair's."""
    if record.judged:
        yield _nodes(record)
        for name, unit, values in fleet(record.judged):
            if len(values) > 1:
                middle, spread = decimal(median(values), 4), f"{decimal(values[0], 4)} to {decimal(values[-1], 4)}"
                yield terminal.safe(f"{name}: median {middle} {unit}, {spread}, {counted(len(values), 'part')}")
    for matrix in [*record.matrices, *record.matrices_again]:
        if matrix.cells or matrix.missing:
            fresh = ", in a fresh run" if matrix in record.matrices_again else ""
            yield terminal.safe(f"{_title(matrix)}{fresh}")
            yield _pairs(matrix)
            yield from (terminal.safe(f"{named.kind} {named.what}: {named.evidence}") for named in matrix.named)


def _nodes(record: TrialsRecord) -> Table:
    """Of a figure that a node has on several parts, the worst; the mark is that of the worst standing."""
    columns = list(dict.fromkeys((part.trial, part.figure) for part in record.judged if part.figure))
    units = {(part.trial, part.figure): part.unit for part in record.judged}
    made = terminal.table("node", *(terminal.safe(f"{t}.{f} [{units[t, f]}]") for t, f in columns))
    shown = [
        node
        for node in record.groups
        if len(record.groups) <= MANY or any(part.node == node and part.standing != "ok" for part in record.judged)
    ]
    by_cell = grouped(((part.node, part.trial, part.figure), part) for part in record.judged)
    for node in shown:
        made.add_row(terminal.safe(node), *(_cell(by_cell.get((node, *column), [])) for column in columns))
    return made


def _cell(parts: Sequence[Judged]) -> str:
    if not parts:
        return "-"
    order = ("named", "undecided", "unknown", "notice", "ok")
    worst = min(parts, key=lambda part: (order.index(part.standing), -(part.shortfall or 0.0)))
    value = "none" if worst.median is None else decimal(worst.median, 4)
    where = f" {worst.part}" if len(parts) > 1 or worst.part not in ("cpu", "node", "numa0") else ""
    text = terminal.safe(f"{value}{where}{MARKS[worst.standing]}")
    colour = _COLOURS.get(worst.standing)
    return f"[{colour}]{text}[/]" if colour else text


def fleet(judged: Sequence[Judged]) -> Iterator[tuple[str, str, list[float]]]:
    """Yield each figure that was measured: its name, its unit, and the values of all parts in order."""
    for (trial, figure), parts in grouped(((part.trial, part.figure), part) for part in judged).items():
        values = sorted(part.median for part in parts if part.median is not None)
        if values:
            yield f"{trial}.{figure}", parts[0].unit, values


def _title(matrix: Matrix) -> str:
    usual = "" if matrix.median is None else f", median {decimal(matrix.median, 4)}"
    rail = f" over {matrix.rail}" if matrix.rail else ""
    return f"{matrix.trial}.{matrix.figure}{rail} [{matrix.unit}], sender > receiver{usual}"


def _pairs(matrix: Matrix) -> Table:
    odd = {node for cell in [*matrix.slow, *matrix.missing] for node in cell}
    nodes = [node for node in matrix.nodes if len(matrix.nodes) <= MANY or node in odd]
    made = terminal.table("sender", *(terminal.safe(node) for node in nodes))
    slow, missing = ({(a, b) for a, b in cells} for cells in (matrix.slow, matrix.missing))
    for sender in nodes:
        cells = []
        for receiver in nodes:
            values = matrix.cells.get(sender, {}).get(receiver)
            if (sender, receiver) in missing:
                cells.append("[red]none ![/]")
            elif not values:
                cells.append("-" if sender != receiver else "")
            else:
                text = decimal(median(values), 4)
                cells.append(f"[red]{text} ![/]" if (sender, receiver) in slow else text)
        made.add_row(terminal.safe(sender), *cells)
    return made
