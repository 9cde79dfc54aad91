"""One cell for each node of a run, a rack to a row: a letter on a colour, so that colour is never the only sign."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

from rich.text import Text

from shakedown.common.text import counted, printable
from shakedown.hosts import few, folded
from shakedown.state.findings import Verdict

_ROW = 16  # nodes of a row where no group of the inventory gives another number
_LABEL = 20  # columns in front of a row, at most
_NUMBER = re.compile(r"\d+(?=\D*$)")
_EMPHASIS = "bold white on "


class Cell(Enum):
    """What a node is in: its letter, word and colours. A later one is worse, and hides those before it."""

    DONE = ("+", "done", "black on green")
    READY = (".", "ready", "")
    IN_JOB = ("T", "in a job", "black on cyan")
    DRIFT = ("D", "drift", "black on yellow")
    STOPPED = ("S", "stopped", "black on yellow")
    UNKNOWN = ("?", "unknown", f"{_EMPHASIS}magenta")
    EXCLUDED = ("X", "excluded", f"{_EMPHASIS}red")
    FAILED = ("F", "failed", f"{_EMPHASIS}red")

    @property
    def out(self) -> bool:
        """Return whether the node takes part in nothing more."""
        return self in (Cell.UNKNOWN, Cell.EXCLUDED, Cell.FAILED)


OF_VERDICTS = {Verdict.DRIFT: Cell.DRIFT, Verdict.UNKNOWN: Cell.UNKNOWN, Verdict.FAIL: Cell.FAILED}
_WORST = list(Cell).index


def worst(cells: Iterable[Cell]) -> Cell:
    """Return the one that hides the others."""
    return max(cells, key=_WORST)


def rows(cells: Mapping[str, Cell], groups: Mapping[str, str], width: int, room: int) -> Iterator[Text]:
    """Yield the cells in at most `room` lines: a rack to a line, else long lines of all nodes, else several nodes to a
    cell, which shows the worst of them. `groups`: node -> its group in the inventory."""
    racks = _racks(cells, groups)
    most = max((width - _LABEL - 2) // 8 * 8, 8)
    largest = max(1, *(len(names) for _, names in racks))
    sizes = [*([largest] if len(racks) > 1 else []), *range(_ROW, largest, _ROW), largest]
    nodes = max(-(-len(cells) // (most * room)), 1)
    nodes = -(-len(cells) // (most * max(room - 1, 1))) if nodes > 1 else 1  # with the line that says so
    lines: list[tuple[str, list[str]]] = []
    for shares, size in [*((racks, size) for size in sizes if size <= most), ([("", list(cells))], most * nodes)]:
        chunks = [(label if len(names) <= size else "", _cut(names, size)) for label, names in shares]
        lines = [(label or _range(names), names) for label, parts in chunks for names in parts]
        if len(lines) <= room:
            break
    step = nodes if size > most else 1
    margin = max((len(label) for label, _ in lines), default=0)
    for label, names in lines:
        line = Text(f"{label:<{margin}}  ", no_wrap=True)
        for part in _cut(names, step):
            letter, _, style = worst(cells[name] for name in part).value
            line.append(letter, style)
        yield line
    if step > 1:
        yield Text(f"one cell: {step} nodes, the worst", no_wrap=True)


def _cut(names: list[str], size: int) -> list[list[str]]:
    return [names[at : at + size] for at in range(0, len(names), size)]


def _range(names: Sequence[str]) -> str:
    """Return names as ranges without their last parts, or their number where those are long."""
    ranges = printable(folded(names))
    while len(ranges) > _LABEL and "." in ranges:
        ranges = ranges.rpartition(".")[0]
    return ranges if len(ranges) <= _LABEL else counted(len(names), "node")


def legend(cells: Mapping[str, Cell], width: int) -> Iterator[Text]:
    """Yield what the letters mean, with the number of nodes, and the names of those that take part in nothing more."""
    line, names = Text(no_wrap=True), []
    for cell in reversed(Cell):
        if nodes := [name for name, own in cells.items() if own is cell]:
            letter, word, style = cell.value
            line.append(letter, style).append(f" {len(nodes)} {word}   ")
            names += [f"{word}: {printable(few(nodes, width - len(word) - 2))}"] if cell.out else []
    yield line
    yield from (Text(text, "red", no_wrap=True) for text in names)


def _racks(cells: Mapping[str, Cell], groups: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return the nodes by their groups in the inventory, or by their names without the last number of the first part,
    where either makes racks of several nodes."""
    stems = {name: "".join([_NUMBER.sub("", first), *rest]) for name in cells for first, *rest in [name.partition(".")]}
    for rack_of in (groups, stems):
        racks: dict[str, list[str]] = {}
        for name in cells:
            racks.setdefault(rack_of.get(name, ""), []).append(name)
        if 1 < len(racks) <= len(cells) / 2:
            return [(printable(rack, _LABEL) if rack_of is groups else "", names) for rack, names in racks.items()]
    return [("", list(cells))]
