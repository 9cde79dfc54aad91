"""The findings of many nodes on one screen: a headline, a line for each cause with what to do, and the next commands.

At most Findings.lines lines of at most COLUMNS columns, in a pipe and in mail too. A node's name is never broken.
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from shakedown.common.text import counted, printable
from shakedown.hosts import folded
from shakedown.report.causes import Cause, causes
from shakedown.report.formats import Findings
from shakedown.report.terminal import CELL, COLOURS, WIDEST, Line, console, finding_line
from shakedown.runs import CAPTURE
from shakedown.state.findings import FixedBy, Verdict

COLUMNS = 100
NAME = 24  # columns that the names of findings are aligned to, at most
FIXED = 74  # columns that are no nodes', on a wide screen
FEWEST = 16  # columns of nodes
LEAST = 20  # columns of a text; with fewer it stands on a line of its own
REMEDY = 2  # lines of a remedy
LONGEST_LIMIT = 40  # characters of the nodes that a command names
WORDS = {
    Verdict.OK: "OK",
    Verdict.WARN: "OK",
    Verdict.FAIL: "FAILED",
    Verdict.DRIFT: "DRIFT",
    Verdict.UNKNOWN: "UNKNOWN",
}


def columns(out: Console) -> int:
    """Return the columns that a screen has on this console."""
    return min(out.width, COLUMNS)


def table(document: Findings) -> Iterator[Text | Line]:
    """Yield the findings of all nodes, by cause."""
    view = document if document.columns else replace(document, columns=columns(console()))
    found = causes(view.findings)
    yield _headline(found, view)
    if view.show_all:
        line = _line if view.wide else Line
        yield from (line(f"{printable(finding.node)}: {finding_line(finding)}") for finding in view.findings)
    if view.quiet or not found:
        return
    last = _footer(found, view) if view.advises else []
    yield from _rows(found, view, view.lines - 1 - len(last))
    yield from (_line(line) for line in last)


def _width(view: Findings) -> int:
    return WIDEST if view.wide else view.columns


def _headline(found: Sequence[Cause], view: Findings) -> Text:
    usual = Counter(Counter(finding.node for finding in view.findings).values()).most_common(1)
    every = " each" if view.nodes > 1 else ""
    left = f"{counted(view.nodes, 'node')}, {counted(usual[0][0], 'check')}{every}" if usual else ""
    advice = sum(cause.verdict == Verdict.WARN for cause in found)
    waived = sum(bool(cause.finding.waiver) for cause in found)
    parts = [counted(len(found) - advice, "cause")] if len(found) > advice else []
    parts += [f"{advice - waived} of advice"] if advice > waived else []
    parts += [f"{waived} waived"] if waived else []
    word, right = WORDS[view.verdict], ", ".join(parts)
    gap = max(view.columns - len(left) - len(word) - len(right) - 3 * bool(right), 2)
    line = _line(f"{left or 'nothing was examined'}{' ' * gap}")
    return line.append(word, COLOURS[view.verdict]).append(f"   {right}" if right else "")


def _line(text: str) -> Text:
    return Text(printable(text), no_wrap=True)


# -------------------------------------------------------------------------------------------------------------- rows


def _rows(found: Sequence[Cause], view: Findings, room: int) -> Iterator[Text]:
    """Yield the causes, as many as fit into `room` lines, and of the others how many there are. Advice that stands in
    the way of a remedy is one of the others."""
    form = _Form.of(found, view)
    urgent = [cause for cause in found if cause.verdict != Verdict.WARN]
    blocks, fit = _fitted(form, found, 0, room)
    if not fit and len(found) > len(urgent) > 0:
        blocks, _ = _fitted(form, urgent, len(found) - len(urgent), room)
    for block in blocks:
        yield from block
    if len(blocks) < len(found):
        yield _line(form.rest(found[len(blocks) :]))


def _fitted(form: _Form, found: Sequence[Cause], others: int, room: int) -> tuple[list[list[Text]], bool]:
    """Return the lines of causes that fit into `room`, the remedies of the first before those of the last, and whether
    nothing had to go. `others`: causes that stand only in the line of the rest."""
    if form.whole:
        return [form.block(cause, REMEDY) for cause in found], True
    blocks = [form.block(cause, 0) for cause in found]
    while sum(map(len, blocks)) + bool(others) > room:
        blocks.pop()
        others += 1
    spare = room - sum(map(len, blocks)) - bool(others)
    fit = len(blocks) == len(found)
    for number, cause in enumerate(found[: len(blocks)]):
        longer = [form.block(cause, most) for most in (REMEDY, 1)]
        best = next((block for block in longer if len(block) - len(blocks[number]) <= spare), blocks[number])
        fit = fit and best is longer[0]
        spare -= len(best) - len(blocks[number])
        blocks[number] = best
    return blocks, fit


@dataclass(frozen=True)
class _Form:
    """The columns of the rows."""

    view: Findings
    word: int
    name: int
    nodes: int
    first: Cause | None  # that needs a person: of the others a command stands where it takes no line of its own

    @classmethod
    def of(cls, found: Sequence[Cause], view: Findings) -> _Form:
        names = [len(name) for cause in found if len(name := printable(cause.name)) <= NAME]
        nodes, most = [len(_nodes(cause, view)) for cause in found], _columns_of_nodes(view)
        return cls(
            view=view,
            word=max(len(cause.verdict.value) for cause in found),
            name=max(names, default=NAME),
            nodes=max((length for length in nodes if length <= most), default=most),
            first=next((cause for cause in found if cause.person), None),
        )

    @property
    def whole(self) -> bool:
        return self.view.wide or self.view.evidence

    def block(self, cause: Cause, most: int) -> list[Text]:
        """Return the lines of a cause, with at most `most` for its remedy."""
        lines = self._row(cause)
        margin = " " * (self.word + 2)
        if self._advises(cause):
            command = command_after(cause, self.view.inventory) if self.view.advises and cause.person else ""
            width, many = _width(self.view) - len(margin), REMEDY * 10 if self.whole else most
            apart = self.whole or cause is self.first
            lines += [_line(margin + line) for line in _remedy(cause.remedy, command, width, many, apart)]
        if self.view.evidence:
            cut = not any(cause.text in line.plain for line in lines)
            lines += [_line(margin + line) for line in self._details(cause, len(margin), cut)]
        return lines

    def _advises(self, cause: Cause) -> bool:
        """Tell whether a person has to do something, or may want to."""
        if cause.verdict == Verdict.WARN:
            return not cause.finding.waiver and not self.view.evidence
        return cause.person or cause.finding.fixed_by == FixedBy.REBOOT

    def rest(self, found: Sequence[Cause]) -> str:
        """Return the line on causes for which there is no room."""
        verdicts = Counter(cause.verdict for cause in found)
        counts = ", ".join(f"{count} {verdict.value.upper()}" for verdict, count in verdicts.items())
        names = ", ".join(printable(cause.name) for cause in found)
        return _cut(f" and {len(found)} more (-v shows all): {counts}: {names}", _width(self.view))

    def _row(self, cause: Cause) -> list[Text]:
        word, name, nodes = cause.verdict.value.upper(), printable(cause.name), _nodes(cause, self.view)
        rest = f"{name:<{self.name}}  {nodes:<{self.nodes}}  "
        room = _width(self.view) - self.word - 2  # columns behind the verdict
        follows = counted(len(cause.follows), "check") if self.view.columns >= COLUMNS else str(len(cause.follows))
        many = f"  (+{follows})" if cause.follows else ""
        note = f"  {cause.note}" if cause.note else ""
        left = room - len(rest) - len(many) - len(note)
        whole = left >= min(LEAST, len(cause.text))
        line = f"{rest}{_cut(cause.text, left) if whole else ''}{many}".rstrip()
        if note:
            line = f"{line if self.view.wide else line.ljust(room - len(note))}{note}"
        row = _line(" ").append(f"{word:<{self.word}} ", COLOURS[cause.verdict]).append(line)
        margin = " " * (self.word + 2)
        return [row] if whole else [row, _line(margin + _cut(cause.text, room))]

    def _details(self, cause: Cause, margin: int, cut: bool) -> Iterator[str]:
        """Yield where a cause was read, its other findings and its remedy, in lines that are folded, not cut."""
        finding = cause.finding
        texts = {
            "findings": ", ".join(cause.names) if len(cause.names) > 1 else "",
            "nodes": folded(cause.nodes) if folded(cause.nodes) != _nodes(cause, self.view) else "",
            "what": cause.text if cut else "",
            "evidence": finding.evidence,
            "follows": ", ".join(cause.follows),
            "remedy": "" if cause.person else cause.remedy,
        }
        for label, text in texts.items():
            whole = printable(text, CELL)
            lines = textwrap.wrap(whole, max(_width(self.view) - margin - 10, 20), break_on_hyphens=False)
            yield from (f"{f'{label}:' if not number else '':<10}{line}" for number, line in enumerate(lines))


def _columns_of_nodes(view: Findings) -> int:
    return WIDEST if view.wide else max(view.columns - FIXED, FEWEST)


def _nodes(cause: Cause, view: Findings) -> str:
    return _ranges(cause.nodes, _columns_of_nodes(view))


def _ranges(nodes: Sequence[str], width: int) -> str:
    """Return nodes as ranges; of those that do not fit the first, and how many more there are."""
    ranges = printable(folded(nodes))
    if len(ranges) <= width or len(nodes) == 1:
        return ranges
    shown = f"{printable(nodes[0])} +{len(nodes) - 1}"
    for number in range(2, len(nodes)):
        longer = f"{printable(folded(nodes[:number]))} +{len(nodes) - number}"
        if len(longer) > width:
            break
        shown = longer
    return shown


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 3, 0)].rstrip()}..."


# ---------------------------------------------------------------------------------------------------------- what next


def _remedy(remedy: str, command: str, width: int, most: int, apart: bool) -> list[str]:
    """Return a remedy and the command that comes after it, in at most `most` lines; `apart`: that may be a line."""
    then = [f"Then: {command}"] if command and len(command) + len("Then: ") <= width else []
    lines = textwrap.wrap(remedy, width, break_on_hyphens=False)
    if then and lines and len(lines[-1]) + 1 + len(then[0]) <= width and len(lines) <= most:
        return [*lines[:-1], f"{lines[-1]} {then[0]}"]
    then = then if apart else []
    kept = lines[: max(most - len(then), min(most, 1))]
    if len(lines) > len(kept) > 0:
        kept[-1] = _cut(f"{kept[-1]} ...", width) if len(kept[-1]) + 4 <= width else f"{kept[-1][: width - 3]}..."
    return [*kept, *then][:most]


def command_after(cause: Cause, inventory: str) -> str:
    """Return what to run once a person has removed the cause."""
    if not inventory or inventory.endswith(CAPTURE):  # whose node may be a stranger's
        return ""
    hosts = shlex.quote(folded(cause.nodes))
    limit = f" --limit {hosts}" if len(hosts) <= LONGEST_LIMIT or len(cause.nodes) == 1 else ""
    return f"shakedown {'run' if cause.verdict == Verdict.FAIL else 'drift'} {shlex.quote(inventory)}{limit}"


def _footer(found: Sequence[Cause], view: Findings) -> list[str]:
    """Return the last lines: what a command fixes, what needs a person, and where the details are."""
    inventory, width = view.inventory, _width(view)
    where = shlex.quote(printable(inventory)) if inventory else "INVENTORY"
    kinds = sum(cause.fixable for cause in found)
    people = [cause for cause in found if cause.person]
    captured = inventory.endswith(CAPTURE)  # by `drift` alone: neither changed nor shown otherwise
    run = "INVENTORY, where the node stands" if captured else where
    fixed = f"{counted(kinds, 'kind')} of drift {'is' if kinds == 1 else 'are'} fixed by: shakedown run {run}"
    nodes = tuple(dict.fromkeys(node for cause in people for node in cause.nodes))
    person = f"{counted(len(people), 'cause')} {'needs' if len(people) == 1 else 'need'} a person: "
    if nodes:
        person += _ranges(nodes, WIDEST if view.wide else view.columns - len(person))
    node = shlex.quote(printable(found[0].nodes[0]))
    details = [f"details: shakedown drift {where} -v"]
    details += [] if captured else [f"one node: shakedown show {where} {node} --state"]
    lines = []
    for pair in ([fixed] * bool(kinds) + [person] * bool(people), details):
        line = "     ".join(pair)
        lines += [line] if len(line) <= width else pair
    return [_cut(line, width) for line in lines if line]
