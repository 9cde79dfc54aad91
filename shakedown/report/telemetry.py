"""What the nodes did while a job ran, in a table: what people look at first when a figure is too low."""

import statistics
from collections.abc import Iterable, Iterator, Mapping

from rich.table import Table
from rich.text import Text

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal, printable, some
from shakedown.evidence.telemetry.summary import Channel, NodeTelemetry, Spread, channels
from shakedown.report import terminal

MOST = 8  # nodes that have a line of their own; with more, those alone of which there is something to say


def table(nodes: Mapping[str, NodeTelemetry]) -> Table | None:
    """Return a line for each node, median and in brackets the range; None where nothing was sampled."""
    head, rows = cells(nodes)
    made = terminal.table(*head)
    for column in made.columns[1:]:  # no range is broken
        column.no_wrap = column.header != "noted"
    for row in rows:
        made.add_row(*(Text(printable(text, lines=True)) for text in row))
    return made if rows else None


def cells(nodes: Mapping[str, NodeTelemetry]) -> tuple[list[str], list[list[str]]]:
    """Return the same as texts: the columns' titles, and the rows; none where nothing was sampled."""
    seen = {name: node for name, node in nodes.items() if node.samples}
    sampled = {name for node in seen.values() for name in node.channels}
    columns = [channel for name, channel in channels().items() if channel.column and name in sampled]
    if not columns:
        return [], []
    windows = sorted({node.window for node in seen.values()})
    shown = list(seen)
    rows = []
    if len(seen) > MOST:
        shown = [name for name in seen if any(_noted(seen[name]))]
        of_all = [
            _cell(channel, _of_all([node.channels.get(channel.name) for node in seen.values()])) for channel in columns
        ]
        rows.append([f"all {counted(len(seen), 'node')}", *of_all, ""])
    for name in shown:
        row = [_cell(channel, seen[name].channels.get(channel.name)) for channel in columns]
        rows.append([name, *row, "; ".join(_noted(seen[name]))])
    return [f"telemetry of {' and '.join(windows)}", *(channel.column for channel in columns), "noted"], rows


def lines(nodes: Mapping[str, NodeTelemetry]) -> Iterator[str]:
    """Yield what could not be read, and on which nodes."""
    reasons = {name: [f"{kind}: {why}" for kind, why in node.unreadable.items()] for name, node in nodes.items()}
    for name, node in nodes.items():
        reasons[name] += [f"samples: {node.incomplete}"] if node.incomplete else []
    for why, names in grouped((why, name) for name, own in reasons.items() for why in own).items():
        yield f"not sampled on {some(names, MOST)}: {why}"


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


def _cell(channel: Channel, spread: Spread | None) -> str:
    if spread is None:
        return "-"
    low, middle, high = (value / channel.divisor for value in (spread.min, spread.median, spread.max))
    span = f" ({decimal(low, 3)}..{decimal(high, 3)})" if decimal(low, 3) != decimal(high, 3) else ""
    return f"{decimal(middle, 4)}{span}"


def _of_all(found: Iterable[Spread | None]) -> Spread:
    spreads = [spread for spread in found if spread]
    low, high = min(spread.min for spread in spreads), max(spread.max for spread in spreads)
    middle = statistics.median(spread.median for spread in spreads)
    return spreads[0].model_copy(update={"min": low, "median": middle, "max": high})
