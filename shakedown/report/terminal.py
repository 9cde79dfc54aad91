"""Terminal text: verdict, differing nodes, what to do. Colour is never the only sign; what is fine is a count."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shakedown.common.lists import grouped
from shakedown.common.text import decimal, in_unit, printable
from shakedown.desired.values import format_size
from shakedown.hosts import folded
from shakedown.state.findings import Finding, Verdict

FOLDED = 8  # values by name, above which those that are equal are written once
CELL = 2000
"""Characters of one text of a node that are shown; JSON has the whole."""
WIDEST = 10_000
"""Characters of a line that goes into a pipe."""
NARROWEST = 40
"""And of a line anywhere: a table is no use on less."""
COLOURS = {
    Verdict.OK: "green",
    Verdict.WARN: "cyan",
    Verdict.DRIFT: "yellow",
    Verdict.FAIL: "red",
    Verdict.UNKNOWN: "magenta",
}


def console(stderr: bool = False, piped: int = 100) -> Console:
    """Return a console that folds lines for a terminal, $COLUMNS, or a pipe of so many columns."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns[:6]) > 0:
        made.width = max(int(columns[:6]), NARROWEST)
    elif not made.is_terminal:
        made.width = piped
    return made


def wide_console(file: TextIO) -> Console:
    """Return a console that writes lines of any width to a file, without colours."""
    return Console(file=file, width=WIDEST, color_system=None, highlight=False)


def table(*columns: str) -> Table:
    """Return an empty table: no lines, a blank between two columns, and long words broken where it would not fit, other
    than the names of gates and figures."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column == "gate" or column.startswith("figure"))
    return made


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict with its colour."""
    return f"[{COLOURS[verdict]}]{verdict.value}[/]"


def value_text(value: Any, unit: str | None = None, digits: int = 6) -> str:
    """Return a wanted or actual value on one line, with its unit; `digits` that count of a float."""
    if value is None:
        return "-"
    if unit == "bytes" and isinstance(value, int | float) and value >= 2**20:
        return f"{format_size(value)}B"  # but an MTU of 9000 stays one
    if unit == "bytes" and isinstance(value, str) and (large := re.search(r"\b[0-9]{7,}\b", value)):
        return value.replace(large[0], value_text(int(large[0]), unit))  # "below 2147483648"
    if unit:
        text = value_text(value, None, digits)
        return in_unit(text, unit) if any(map(str.isdigit, text)) else text  # "unlimited" has no unit
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        texts = {str(key): value_text(item, None, digits) for key, item in value.items()}
        if len(value) > FOLDED:  # the exit codes of a rack are mostly one
            alike = grouped((text, key) for key, text in texts.items())
            return ", ".join(f"{folded(keys)}={text}" for text, keys in alike.items())
        return ", ".join(f"{key}={text}" for key, text in texts.items())
    if isinstance(value, Sequence):
        return " ".join(value_text(item, None, digits) for item in value) or "none"
    if isinstance(value, float):
        return decimal(value, digits)
    return str(value)


def safe(text: str) -> str:
    """Return a text that came from outside, for rich: one line of printable characters, and no markup."""
    return escape(printable(text, CELL))


def shown_values(finding: Finding) -> tuple[str, str]:
    """Return wanted and actual values; of a bad finding they differ, so values that round alike are shown whole."""
    if finding.verdict == Verdict.OK:
        return value_text(finding.wanted, finding.unit), value_text(finding.actual, finding.unit)
    wanted, actual = (value_text(value, finding.unit, digits=12) for value in (finding.wanted, finding.actual))
    if _alike(finding.wanted, finding.actual) or (wanted == actual and str(finding.wanted) != str(finding.actual)):
        wanted, actual = str(finding.wanted), str(finding.actual)
    if finding.persisted is not None and str(finding.persisted) != str(finding.actual):
        actual += f" (next boot: {value_text(finding.persisted, finding.unit)})"
    return wanted, actual


def _alike(one: Any, other: Any) -> bool:
    """Whether two different sizes are so near that rounding would hide or blur which is larger."""
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and 0 < abs(one - other) <= abs(one) / 100


def finding_line(finding: Finding, verdict: str | None = None) -> str:
    """Return a bad finding as one line of plain text: wanted, actual, where it was seen, what to do."""
    wanted, actual = shown_values(finding)
    pending = f" ({finding.pending})" if finding.pending and verdict is None else ""
    text = f"{finding.name}: {verdict or finding.verdict}{pending}: wanted {wanted}, actual {actual}"
    if finding.verdict != Verdict.OK:
        text += f" [{finding.evidence}]" if finding.evidence else ""
        remedy = finding.remedy
        text += f" -> {remedy.text}{'' if remedy.risk == 'safe' else f' ({remedy.risk})'}" if remedy else ""
    return printable(text, 2 * CELL)
