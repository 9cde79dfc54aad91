"""What the nodes did while a job ran, in a table: what people look at first when a figure is too low."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from shakedown.common.text import counted, decimal
from shakedown.report import terminal
from shakedown.report.terminal import safe

if TYPE_CHECKING:
    from shakedown.evidence.telemetry.summary import NodeTelemetry, Spread

MOST = 8  # nodes that have a line of their own; with more, those alone of which there is something to say
# Column -> channel, scale, and whether its middle or its end is what tells.
_COLUMNS = {
    "GPU W": ("gpu/*/power_w", 1.0),
    "GPU °C": ("gpu/*/temperature_c", 1.0),
    "GPU MHz": ("gpu/*/gfx_clock_mhz", 1.0),
    "GPU %": ("gpu/*/busy_pct", 1.0),
    "VRAM GiB": ("gpu/*/vram_used_bytes", 2.0**-30),
    "RDMA tx Gb/s": ("rdma/*/tx_bytes", 1.0),
    "net tx Gb/s": ("net/*/tx_bytes", 1.0),
    "CPUs busy": ("cpu/busy_s", 1.0),
    "free GiB": ("memory/available_bytes", 2.0**-30),
    "CPU wait %": ("pressure/cpu_some_s", 1.0),
}


def table(nodes: Mapping[str, NodeTelemetry]) -> Table | None:
    """Return a line for each node, median and in brackets the range; None where nothing was sampled."""
    head, rows = cells(nodes)
    if not rows:
        return None
    made = terminal.table(*head)
    for row in rows:
        made.add_row(*map(safe, row))
    return made


def cells(nodes: Mapping[str, NodeTelemetry]) -> tuple[list[str], list[list[str]]]:
    """Return the same as texts: the columns' titles, and the rows; none where nothing was sampled."""
    seen = {name: node for name, node in nodes.items() if node.samples}
    columns = {title: where for title, where in _COLUMNS.items() if any(where[0] in n.channels for n in seen.values())}
    if not columns:
        return [], []
    windows = sorted({node.window for node in seen.values()})
    shown = list(seen)
    rows = []
    if len(seen) > MOST:
        shown = [name for name in seen if any(_noted(seen[name]))]
        spreads = [_of_all([node.channels[where] for node in seen.values() if where in node.channels])
                   for where, _ in columns.values()]  # fmt: skip
        of_all = map(_cell, spreads, (scale for _, scale in columns.values()))
        rows.append([f"all {counted(len(seen), 'node')}", *of_all, ""])
    for name in shown:
        row = [_cell(seen[name].channels.get(where), scale) for where, scale in columns.values()]
        rows.append([name, *row, "; ".join(_noted(seen[name]))])
    return [f"telemetry of {' and '.join(windows)}", *columns, "noted"], rows


def lines(nodes: Mapping[str, NodeTelemetry]) -> Iterator[str]:
    """Yield what could not be read, and on which nodes."""
    reasons: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for kind, why in node.unreadable.items():
            reasons.setdefault(f"{kind}: {why}", []).append(name)
        if node.incomplete:
            reasons.setdefault(f"samples: {node.incomplete}", []).append(name)
    for why, names in reasons.items():
        shown = ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
        yield f"not sampled on {shown}: {why}"


def _noted(node: NodeTelemetry) -> Iterator[str]:
    for gpu, reasons in node.throttled.items():
        yield f"{gpu} throttled " + ", ".join(f"{decimal(s, 3)} s by {reason}" for reason, s in reasons.items())
    for kind in ("gpu/*/ras_uncorrectable", "gpu/*/ras_correctable"):
        spread = node.channels.get(kind)
        if spread and spread.max > 0:
            yield f"{kind.rpartition('/')[2]} +{spread.max:.0f}{f' of {spread.at_max}' if spread.at_max else ''}"
    yield from node.risen[:3]
    if len(node.risen) > 3:
        yield counted(len(node.risen) - 3, "more counter")


def _cell(spread: Spread | None, scale: float) -> str:
    if spread is None:
        return "-"
    low, middle, high = (value * scale for value in (spread.min, spread.median, spread.max))
    span = f" ({decimal(low, 4)}..{decimal(high, 4)})" if decimal(low, 3) != decimal(high, 3) else ""
    return f"{decimal(middle, 4)}{span}"


def _of_all(spreads: Sequence[Any]) -> Any:
    if not spreads:
        return None
    first = spreads[0]
    return first.model_copy(
        update={
            "min": min(spread.min for spread in spreads),
            "median": statistics.median(spread.median for spread in spreads),
            "max": max(spread.max for spread in spreads),
        }
    )
