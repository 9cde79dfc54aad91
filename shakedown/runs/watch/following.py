"""Follow a run to its end: what it notes down, until it has a verdict or its controller is gone. Reads only, so that
the run goes on whatever becomes of the watcher."""

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from shakedown.runs.directory import RunDirectory
from shakedown.runs.records import RunRecord
from shakedown.runs.watch import screen
from shakedown.runs.watch.notes import NAME, SILENT_S, NotesReader
from shakedown.runs.watch.picture import Picture
from shakedown.state.findings import Verdict

POLL_S = 0.5


class Gone(Exception):
    """The controller of a run has ended without a verdict. The message says what a person should know."""


def follow(folder: Path, console: Console, poll_s: float = POLL_S) -> tuple[RunRecord, Picture]:
    """Show the run until it is over; its record, and what the notes came to. Raises Gone; OSError and ValueError for a
    directory that cannot be read."""
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
    if remark := screen.several(reader.unreadable):
        console.print(Text(remark))
    return RunDirectory(folder).load(), picture


def _watch(reader: NotesReader, picture: Picture, record: RunRecord, console: Console, poll_s: float) -> None:
    over = record.finished_at is not None
    live = None
    lines = screen.Lines(lambda line: console.print(Text(screen.encodable(line, console)), soft_wrap=True))
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
                live.update(screen.drawn(picture, record.run_id, _alive(reader), console), refresh=True)
            if over or picture.verdict is not None:
                break
            if gone:
                raise Gone(
                    f"run {record.run_id}: its controller has ended without a verdict (killed, or the machine went "
                    f"down), {reader.silent_s():.0f} s after its last sign of life. Jobs on the nodes end by "
                    "themselves; shakedown report shows what was kept"
                )
            time.sleep(poll_s)
    finally:
        if live is not None:
            live.stop()
    if live is not None:
        console.print(screen.drawn(picture, record.run_id, "", console))


def _alive(reader: NotesReader) -> str:
    silent = reader.silent_s()
    return f"no sign of life of the controller for {silent:.0f} s: stopped, or it hangs" if silent > SILENT_S else ""


def verdict_of(record: RunRecord, picture: Picture) -> Verdict:
    """Return what a run that is over came to: as its record says, or as it was noted where that could not be
    written."""
    return record.verdict if record.finished_at is not None or picture.verdict is None else picture.verdict
