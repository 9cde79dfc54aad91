"""A run's picture while it goes on: a terminal's whole screen, else lines of changes. Watching changes nothing."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from shakedown.common.text import counted, printable
from shakedown.desired.models import EACH
from shakedown.hosts import folded
from shakedown.jobs.progress import figure_text, loss_text
from shakedown.runs.directory import RunDirectory, RunRecord
from shakedown.runs.watch.notes import NAME, SILENT_S, Note, NotesReader
from shakedown.runs.watch.picture import JobPicture, Picture, concerns_a_watcher, legend, rows
from shakedown.state.findings import Verdict

EVERY_S = 15.0  # between two lines of a job's iterations where there is no terminal
_EVENTS = 3  # lines at least, where there is room for the nodes too
_JOBS = 2  # jobs over all nodes that are shown, and kinds of the nodes' own: the last ones
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=*#"  # for a terminal that has no others


def sparkline(values: Sequence[float | None], bars: str = _BARS) -> str:
    """Draw values as characters, lowest to highest; "!" is a missing value or no finite number."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return "!" * len(values)
    low, high = min(finite), max(finite)
    scale = (len(bars) - 1) / (high - low) if 0 < high - low < math.inf else 0.0

    def bar(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return "!"
        return bars[round((value - low) * scale)] if scale else bars[len(bars) // 2]

    return "".join(map(bar, values))


def drawn(picture: Picture, run: str, alive: str, console: Console) -> Group:
    """Draw the whole picture on the console: failures first, events last. `alive`: a problem of the controller."""
    now = picture.ended or datetime.now(UTC)
    since = f", for {timedelta(seconds=round((now - picture.began).total_seconds()))}" if picture.began else ""
    top = [Text(f"run {run}  {picture.inventory}{since}", style="bold")]
    if picture.first:
        more = f" (and {picture.failures - 1} more)" if picture.failures > 1 else ""
        top.append(Text(f"FIRST FAILURE {_text(picture.first)}{more}", style="bold red"))
    top += [Text(text, style="yellow") for text in (alive, picture.waiting) if text]
    if picture.stage:
        top.append(Text(f"stage: {picture.stage}"))
    below = list(legend(picture.nodes, console.width)) if picture.nodes else []
    below += [Text(line_of_nodes(jobs)) for jobs in [*picture.of_nodes.values()][-_JOBS:]]
    for job in picture.over_all[-_JOBS:]:
        below += [Text(f"{job.what or job.name}: {job.phase}"), *_figures(job, console)]
    if picture.gates:
        below.append(_gates(picture.gates))
    room = console.height - len(top) - len(below)
    cells = list(rows(picture.nodes, picture.groups, console.width, max(room - _EVENTS, 1))) if picture.nodes else []
    events = [Text(f"{_clock(note)} {_line(note)}") for note in picture.events][-max(room - len(cells), 1) :]
    lines = [*top, *cells, *below, *events][: console.height]
    for line in lines:
        line.plain = encodable(line.plain, console)
        line.no_wrap, line.overflow = True, "crop" if console.options.ascii_only else "ellipsis"
    return Group(*lines)


def encodable(text: str, console: Console) -> str:
    """Return the text in what the console can write, "?" for all else."""
    return text.encode("ascii", "replace").decode() if console.options.ascii_only else text


def _figures(job: JobPicture, console: Console) -> Iterator[Text]:
    at = job.iteration
    if at is None:
        return
    share = f" ({min(at.iteration / max(at.total_iterations, 1), 1):.0%})"
    done = f"iteration {at.iteration}/{at.total_iterations}{share}"
    yield Text(" | ".join(part for part in (done, figure_text(at.elapsed_ms, "ms"), job.pace.eta(at)) if part))
    bars = _PLAIN_BARS if console.options.ascii_only else _BARS
    room = max(10, console.width - 40)
    for name, values, last in (
        ("loss", job.losses, "missing" if at.lm_loss is None else loss_text(at.lm_loss)),
        ("TFLOP/s/GPU", job.throughputs, figure_text(at.tflops_per_gpu, "") or "-"),
    ):
        yield Text(f"{name:<12} {sparkline(list(values)[-room:], bars)} {last.strip()}")


def _gates(gates: Mapping[tuple[str, str], Verdict]) -> Text:
    """Return how many gates of each verdict there are so far, and the names of those that did not pass."""
    counts = Counter(gates.values())
    names = dict.fromkeys(name for (_, name), verdict in gates.items() if not verdict.passes)
    text = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if verdict in counts)
    return Text(f"gates: {text}{': ' if names else ''}{', '.join(names)}", "red" if names else "green")


def line_of_nodes(jobs: Sequence[JobPicture]) -> str:
    """Return single-node jobs of one kind in a line: finished, failed, slowest."""
    over, running = [job for job in jobs if job.over], [job for job in jobs if not job.over]
    kind = "each node alone" if jobs[0].kind == EACH else f"{jobs[0].kind} of each node"
    parts = [f"{kind}: {len(over)} of {len(jobs)} done"]
    if failed := [job.node for job in jobs if job.failed]:
        parts.append(f"failed: {folded(failed)}")
    if running:
        slowest = min(running, key=lambda job: job.iteration.iteration if job.iteration else 0)
        at = slowest.iteration
        where = f"at iteration {at.iteration}/{at.total_iterations}" if at else "before its first iteration"
        parts.append(f"slowest {slowest.node} {where}")
    return ", ".join(parts)


_WORDS = {"failure": "FAILED ", "plan": "job: ", "device": "device event: "}
_WORDS |= {kind: f"{kind}: " for kind in ("stage", "end", "gate")}


def _line(note: Note) -> str:
    of_each = f"{note.job}: " if note.job and "/" in note.job else ""
    return f"{of_each}{_WORDS.get(note.kind, '')}{_text(note)}"


class Lines:
    """What has changed, as lines that stay: for a pipe, a log, and a terminal that cannot be written over."""

    def __init__(self, say: Callable[[str], None], every_s: float = EVERY_S) -> None:
        self._say = say
        self._every_s = every_s
        self._said_at: dict[str, float] = {}
        self._last: tuple[str, str] | None = None

    def take(self, note: Note, picture: Picture) -> None:
        """Say the note, unless it says what was just said, or is one of many iterations."""
        if note.iteration is not None:
            self._iteration(note, picture)
        elif note.kind == "run":
            self._say(f"{_clock(note)} run began, {note.text}")
        elif (note.kind, note.text) == self._last or not concerns_a_watcher(note):
            return
        else:
            self._say(f"{_clock(note)} {_line(note)}")
        self._last = (note.kind, note.text)

    def _iteration(self, note: Note, picture: Picture) -> None:
        job = picture.jobs.get(note.job or "")
        if job is None or note.iteration is None or job.iteration is not note.iteration:
            return
        together = not job.node
        key = job.kind  # the nodes' own jobs share a line
        first, at = key not in self._said_at, note.iteration
        last = together and at.iteration >= at.total_iterations
        if not (first or last) and time.monotonic() - self._said_at[key] < self._every_s:
            return
        self._said_at[key] = time.monotonic()
        if not together:
            self._say(f"{_clock(note)} {line_of_nodes(picture.of_nodes[job.kind])}")
            return
        parts = (
            f"iteration {at.iteration}/{at.total_iterations}",
            "loss missing" if at.lm_loss is None else f"loss {loss_text(at.lm_loss)}",
            figure_text(at.tflops_per_gpu, "TFLOP/s/GPU"),
            figure_text(at.elapsed_ms, "ms"),
            job.pace.eta(at),
        )
        self._say(f"{_clock(note)} {' | '.join(part for part in parts if part)}")


def _clock(note: Note) -> str:
    return f"{note.at.astimezone():%H:%M:%S}"


def _text(note: Note) -> str:
    node = f"{note.node}: " if note.node and not note.text.startswith(f"{note.node}: ") else ""
    return printable(node + note.text)


POLL_S = 0.5


class Gone(Exception):
    """The controller of a run has ended without a verdict. The message says what a person should know."""


def follow(folder: Path, console: Console, poll_s: float = POLL_S) -> tuple[RunRecord, Picture]:
    """Show a run until it is over; return its record and the notes' sum. Raises Gone, OSError, ValueError."""
    record = RunDirectory(folder).load()
    picture = Picture()
    picture.begin(record.nodes)
    try:
        reader = NotesReader(folder)
    except FileNotFoundError as error:
        if record.finished_at is not None:
            return record, picture
        why = f"it has no verdict and no {NAME}: an older version began it, or this copy is incomplete"
        raise Gone(f"{folder}: {why}") from error
    try:
        _watch(reader, picture, record, console, poll_s)
    finally:
        reader.close()
    if reader.unreadable:
        console.print(Text(f"{counted(reader.unreadable, 'line')} of the run's events could not be read"))
    return RunDirectory(folder).load(), picture


def _watch(reader: NotesReader, picture: Picture, record: RunRecord, console: Console, poll_s: float) -> None:
    over = record.finished_at is not None
    live = None
    lines = Lines(lambda line: console.print(Text(encodable(line, console)), soft_wrap=True))
    if console.is_terminal and not console.is_dumb_terminal and not over:
        live = Live(console=console, auto_refresh=False, screen=True)
        live.start()
    try:
        while True:
            gone = reader.writer_is_gone()  # before the reading: what it noted last is read in any case
            for note in reader:
                picture.take(note)
                if live is None and not over:
                    lines.take(note, picture)
            if live is not None:
                live.update(drawn(picture, record.run_id, _alive(reader), console), refresh=True)
            if over or picture.verdict is not None:
                break
            if gone:
                why = "its controller has ended without a verdict (killed, or the machine went down)"
                rest = "Jobs on the nodes end by themselves; shakedown report shows what was kept"
                raise Gone(f"run {record.run_id}: {why}, {reader.silent_s():.0f} s after its last sign of life. {rest}")
            time.sleep(poll_s)
    finally:
        if live is not None:
            live.stop()
    if live is not None:
        console.print(drawn(picture, record.run_id, "", console))


def _alive(reader: NotesReader) -> str:
    silent = reader.silent_s()
    return f"no sign of life of the controller for {silent:.0f} s: stopped, or it hangs" if silent > SILENT_S else ""


def verdict_of(record: RunRecord, picture: Picture) -> Verdict:
    """Return a finished run's result by its record, or by its notes where that could not be written."""
    return record.verdict if record.finished_at is not None or picture.verdict is None else picture.verdict
