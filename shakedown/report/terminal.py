"""Terminal text: verdict, differing nodes, what to do. Colour is never the only sign; what is fine is a count."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from shakedown.common.lists import grouped
from shakedown.common.text import decimal, in_unit, printable, wrapped
from shakedown.desired.values import format_size
from shakedown.hosts import folded
from shakedown.state.findings import Finding, Verdict

FOLDED = 8  # values by name, above which those that are equal are written once
CELL = 2000
"""Characters of one text of a node that are shown; JSON has the whole."""
WIDEST = 10_000
"""Characters of a line of any width."""
PIPED = 100
"""Characters of a line in a pipe and in a file, which may become mail."""
PROSE = 16
"""Columns of a text in a table, at least."""
WORD = 48
"""Characters of a word that a table may break: a path or a digest."""
NARROWEST = 40
"""And of a line anywhere: a table is no use on less."""
COLOURS = {
    Verdict.OK: "green",
    Verdict.WARN: "cyan",
    Verdict.DRIFT: "yellow",
    Verdict.FAIL: "red",
    Verdict.UNKNOWN: "magenta",
}


class _Safe(Console):
    """Prints no character that could move the terminal or hide a word: a run may come from anywhere."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for part in super().render(renderable, options):
            plain = part.control or (part.text.isascii() and part.text.isprintable())
            yield part if plain else Segment(printable(part.text, lines=True), part.style)


def console(stderr: bool = False, file: TextIO | None = None) -> Console:
    """Return a console that folds lines for a terminal, $COLUMNS, a pipe, or a file, which has no colours."""
    made = _Safe(stderr=stderr, file=file, highlight=False, soft_wrap=False, color_system=None if file else "auto")
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns[:6]) > 0:
        made.width = max(int(columns[:6]), NARROWEST)
    elif file or not made.is_terminal:
        made.width = PIPED
    return made


@dataclass(frozen=True)
class Line:
    """A line of plain text that is folded between words."""

    text: str

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from map(Text, wrapped(self.text, options.max_width))


class Rows(Table):
    """A table without lines that breaks no word; where its columns have no room, each row is a paragraph."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = [[_text(console, cell) for cell in (column.header, *column.cells)] for column in self.columns]
        whole = [max(len(line) for text in column for line in text.plain.split("\n")) for column in columns]
        least = [
            length if own.no_wrap else min(length, max(PROSE, *(_longest_word(text) for text in column)))
            for own, column, length in zip(self.columns, columns, whole, strict=True)
        ]
        spare = options.max_width - 2 * len(columns) - sum(least)
        if spare < 0:
            if " " in columns[0][0].plain:  # it says more than what the first cells are
                yield Text(columns[0][0].plain, style="bold")
            for row in list(zip(*columns, strict=True))[1:]:
                yield from _paragraph(console, [column[0].plain for column in columns], row, options.max_width)
            return
        by_need = sorted(range(len(columns)), key=lambda number: whole[number] - least[number])
        for done, number in enumerate(by_need):
            more = min(whole[number] - least[number], spare // (len(columns) - done))
            self.columns[number].width = width = least[number] + more
            self.columns[number]._cells = [_loose(text, width) for text in columns[number][1:]]
            spare -= more
        yield from super().__rich_console__(console, options)  # type: ignore[misc]  # it yields segments too


def _text(console: Console, cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell))


def _longest_word(text: Text) -> int:
    return max((min(len(word), WORD) for word in text.plain.split()), default=0)


def _loose(text: Text, width: int) -> Text:
    """Return a text in which a list of names that is longer than a line may be folded behind its commas."""
    return Text(text.plain.replace(",", ", ")) if any(len(word) > width for word in text.plain.split()) else text


def _paragraph(console: Console, titles: Sequence[str], row: Sequence[Text], width: int) -> Iterator[Text]:
    """Yield a row of a table as lines: the first cell, then each with its title, but for a verdict."""
    line = Text()
    for number, (title, cell) in enumerate(zip(titles, row, strict=True)):
        if cell.plain in ("", "-") and number:
            continue
        label = f"{title}: " if number and title != "verdict" else ""
        own = Text(label).append(_loose(cell, width - 4))
        if line and len(line) + 2 + len(own) > width:
            yield line
            line = Text("    ")
        elif line:
            line.append("  ")
        first, *others = own.wrap(console, width - 4)
        line.append(first)
        for other in others:
            line.rstrip()
            yield line
            line = Text("    ").append(other)
    line.rstrip()
    yield line


def table(*columns: str) -> Table:
    """Return an empty table: two blanks between two columns; the names of gates and figures on one line."""
    made = Rows(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
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
        return format_size(value)  # but an MTU of 9000 stays one
    if unit == "bytes" and isinstance(value, str) and (large := re.search(r"\b[0-9]{7,}\b", value)):
        return value.replace(large[0], value_text(int(large[0]), unit))  # "below 2147483648"
    if unit:
        text = value_text(value, None, digits)
        return in_unit(text, unit) if text[-1:].isdigit() else text  # "unlimited" has no unit, and a phrase its own
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
