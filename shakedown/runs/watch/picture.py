"""The sum of a run's notes: stage, jobs, nodes, first failure. A node is a letter on a colour, a rack a row."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from rich.text import Text

from shakedown.common.lists import grouped
from shakedown.common.text import counted, printable
from shakedown.hosts import few, folded
from shakedown.jobs.progress import Pace
from shakedown.logs.iterations import Iteration
from shakedown.runs.directory import RunNode
from shakedown.runs.watch.notes import Note
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
    margin = max((len(label) for label, _ in lines), default=0)
    for label, names in lines:
        line = Text(f"{label:<{margin}}  ", no_wrap=True)
        for part in _cut(names, nodes):
            letter, _, style = worst(cells[name] for name in part).value
            line.append(letter, style)
        yield line
    if nodes > 1:
        yield Text(f"one cell: {nodes} nodes, the worst", no_wrap=True)


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
    """Return nodes by inventory group, or by name without its last number, where either makes racks of several."""
    stems = {name: "".join([_NUMBER.sub("", first), *rest]) for name in cells for first, *rest in [name.partition(".")]}
    for rack_of in (groups, stems):
        racks = grouped((rack_of.get(name, ""), name) for name in cells)
        if 1 < len(racks) <= len(cells) / 2:
            return [(printable(rack, _LABEL) if rack_of is groups else "", names) for rack, names in racks.items()]
    return [("", list(cells))]


POINTS = 60  # iterations that a curve shows
_JOBS = 8192  # of one run, and nodes, and gates, whatever the notes say
_EVENTS = 40  # the last ones


def concerns_a_watcher(note: Note) -> bool:
    """Return whether a line is worth it: findings stand in the report, and most gates hold."""
    return note.kind not in ("verdict", "finding") and not (note.kind == "gate" and note.text.startswith("ok "))


@dataclass
class JobPicture:
    """One job as far as it has come."""

    name: str
    what: str = ""  # its recipe and nodes
    nodes: int = 0
    phase: str = "planned"
    iteration: Iteration | None = None
    losses: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))
    throughputs: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))
    pace: Pace = field(default_factory=Pace)
    failed: bool = False
    over: bool = False

    @property
    def kind(self) -> str:
        """`together`, `each`, or the kind of a trial."""
        return self.name.partition("/")[0]

    @property
    def node(self) -> str:
        """The node that has it for itself; empty: it is over all nodes."""
        return self.name.partition("/")[2]

    def take(self, note: Note) -> None:
        """One note of this job."""
        if note.kind == "plan":
            self.what, self.nodes = note.text, note.count or 0
        elif note.iteration is not None:
            self._iteration(note.iteration)
        elif note.kind == "failure":
            self.failed = True
        elif note.kind in ("phase", "end"):
            self.phase = note.text
            self.over = note.kind == "end"

    def _iteration(self, iteration: Iteration) -> None:
        if self.iteration is not None and iteration.iteration <= self.iteration.iteration:
            return  # some scripts repeat the lines on other nodes
        self.iteration = iteration
        self.phase = "training"
        self.losses.append(iteration.lm_loss)
        self.throughputs.append(iteration.tflops_per_gpu)
        self.pace.take(iteration)


@dataclass
class Picture:
    """A whole run."""

    began: datetime | None = None
    ended: datetime | None = None  # at the verdict
    inventory: str = ""
    stage: str = ""
    waiting: str = ""  # what a long operation waits for; empty: nothing has been waited for in this stage
    jobs: dict[str, JobPicture] = field(default_factory=dict)
    nodes: dict[str, Cell] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)  # node -> its group in the inventory
    gates: dict[tuple[str, str], Verdict] = field(default_factory=dict)  # job and text -> how it was judged
    events: deque[Note] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    first: Note | None = None  # the first failure
    failures: int = 0
    verdict: Verdict | None = None  # once the run is over

    def begin(self, nodes: Iterable[RunNode]) -> None:
        """Take in the nodes that the record has. The notes say what became of them since."""
        for node in nodes:
            part = {"excluded": Cell.EXCLUDED, "unreached": Cell.UNKNOWN}.get(node.part, Cell.READY)
            self.nodes[node.name] = worst([OF_VERDICTS.get(node.verdict, Cell.READY), part])
            self.groups[node.name] = node.group

    def take(self, note: Note) -> None:
        """Add one note."""
        if note.job is not None:
            if note.job not in self.jobs and len(self.jobs) >= _JOBS:
                return
            self.jobs.setdefault(note.job, JobPicture(note.job)).take(note)
        self._mark(note)
        self._gather(note)
        if note.kind == "failure":
            self.first = self.first or note
            self.failures += 1
        elif note.kind == "run":
            self.began, self.inventory = note.at, note.text
        elif note.kind == "stage":
            self.stage, self.waiting = note.text, ""
        elif note.kind == "wait":
            self.waiting = note.text
        elif note.kind == "verdict":
            self.ended = note.at
            self.verdict = Verdict(note.text) if note.text in list(Verdict) else Verdict.UNKNOWN

    def _mark(self, note: Note) -> None:
        """Note what the nodes are in now."""
        alone = self.jobs[note.job].node if note.job else ""
        node = note.node or alone
        if note.kind == "plan":
            self._set([alone] if alone else [name for name, cell in self.nodes.items() if not cell.out], Cell.IN_JOB)
        elif note.kind == "end":
            cell = Cell.DONE if note.text.startswith("completed") else Cell.STOPPED
            there = [alone] if alone else list(self.nodes)
            self._set([name for name in there if self.nodes.get(name) is Cell.IN_JOB], cell)
        elif note.kind == "failure" and node:
            self._set([node], Cell.FAILED)
        elif note.kind == "decision" and node:
            cell = Cell.FAILED if note.verdict is Verdict.FAIL else Cell.EXCLUDED
            self._set([node], worst([self.nodes.get(node, cell), cell]))
        elif note.verdict is not None and node:
            now = OF_VERDICTS.get(note.verdict, Cell.READY)
            self._set([node], now if note.kind == "finding" else worst([self.nodes.get(node, now), now]))

    def _gather(self, note: Note) -> None:
        """Note the gates, and the last of what a person wants to see."""
        if note.kind == "gate" and note.verdict is not None and len(self.gates) < _JOBS:
            self.gates[note.job or "", note.text.partition(" ")[2].partition(":")[0]] = note.verdict
        before = self.events[-1] if self.events else None
        again = before is not None and (before.kind, before.text) == (note.kind, note.text)
        if concerns_a_watcher(note) and note.kind not in ("run", "iteration", "wait") and not again:
            self.events.append(note)

    def _set(self, names: Iterable[str], cell: Cell) -> None:
        for name in names:
            if name in self.nodes or len(self.nodes) < _JOBS:
                self.nodes[name] = cell

    @property
    def over_all(self) -> list[JobPicture]:
        """The jobs over all nodes: the training, trials of pairs."""
        return [job for job in self.jobs.values() if not job.node]

    @property
    def of_nodes(self) -> dict[str, list[JobPicture]]:
        """The nodes' own jobs, by their kind: `each`, or that of a trial."""
        return grouped((job.kind, job) for job in self.jobs.values() if job.node)
