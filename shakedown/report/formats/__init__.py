"""The output formats: a module each, whose name is what `--format` takes, or functions of other modules, `ELSEWHERE`. A
format shows the kinds of documents that it has a function for; the commands offer those and no others.

    @shows(Findings)
    def findings(document: Findings) -> Iterator[Part]:

A part is a text, which is written as it stands, or something that rich renders for a terminal.
"""

from __future__ import annotations

import functools
import importlib
import io
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shakedown.state.findings import Finding, Verdict

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from shakedown.desired.cvs.document import Imported
    from shakedown.desired.models import Waiver
    from shakedown.evidence.diagnosis.model import Diagnosis
    from shakedown.gates import Gate, Recorded
    from shakedown.jobs.launch import LaunchPlan
    from shakedown.ledger.calibration import Row
    from shakedown.ledger.compare import Comparison
    from shakedown.ledger.history import History, Seen
    from shakedown.ledger.reliability import Reliability
    from shakedown.report.preview import Preview
    from shakedown.runs.directory import RunRecord
    from shakedown.service.marks import Board

    Part = str | RenderableType

FIRST = ("table", "text", "python")  # what people read stands before what programs read


@dataclass(frozen=True)
class Findings:
    """What `drift` found: the findings of all `nodes`, and the verdict, which may be worse than theirs."""

    verdict: Verdict
    nodes: int
    findings: Sequence[Finding]
    show_all: bool = False  # also what is as it should be, and each node alone, where a format leaves that out
    inventory: str = ""
    at: str = ""  # when the nodes were read: UTC, ISO 8601
    evidence: bool = False  # of each cause, where a format folds the findings
    wide: bool = False  # lines of any width
    quiet: bool = False  # the verdict alone
    lines: int = 22  # of the table: the verdict and the place of the evidence come after them
    columns: int = 0  # of the table; 0: of the terminal
    advises: bool = True  # the commands to run next
    plan: Preview | None = None  # of a dry run: what the run would do
    groups: Mapping[str, str] = field(default_factory=dict)  # node -> its group in the inventory, as a rack
    source: str = "drift"  # who examined the nodes: the controller, or their "agents"
    waivers: Mapping[str, Waiver] = field(default_factory=dict)
    directory: Path | None = None  # of the kept check


@dataclass(frozen=True)
class Judged:
    """What `judge` came to; `notes` is what a person should know of it, `recorded` what was measured besides."""

    verdict: Verdict
    gates: Sequence[Gate]
    recorded: Sequence[Recorded] = ()
    notes: Sequence[str] = ()
    diagnosis: Diagnosis | None = None  # of what has failed, where that can be told
    show_all: bool = False  # each node's gates by themselves, where a format folds them


@dataclass(frozen=True)
class Run:
    """A run for `report`. `directory` has its logs, which a reader sees at `links`; no log may show `secrets`."""

    record: RunRecord
    show_all: bool = False  # as of findings
    directory: Path | None = None
    links: str = ""
    secrets: Collection[str] = ()
    seen: int = 0  # lines of a screen that a reader of the table has seen the findings on


@dataclass(frozen=True)
class Desired:
    """What `show` says of one host: dotted path -> the value, and the layer that it came from."""

    host: str
    values: Mapping[str, tuple[Any, str]]


@dataclass(frozen=True)
class Plans:
    """What `plan` shows: the launch plans of the jobs, and why there is none of the others, by the jobs' names."""

    plans: Mapping[str, LaunchPlan]
    problems: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False  # each node's command


@dataclass(frozen=True)
class SiteLayer:
    """What `import-cvs` made of a file: a site's layer, with remarks."""

    imported: Imported


@dataclass(frozen=True)
class Remembered:
    """What `history` shows; `fleet` is what the newest runs saw of each node, for a page."""

    history: History
    fleet: Sequence[Sequence[Seen]] = ()


@dataclass(frozen=True)
class Compared:
    """What `compare` shows of two runs."""

    comparison: Comparison


@dataclass(frozen=True)
class Calibrated:
    """What `calibrate` made: the runs, and what is known of each figure."""

    runs: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Reliable:
    """What `reliability` shows: failures per hour, repairs, and lemons."""

    answer: Reliability


@dataclass(frozen=True)
class Waivers:
    """What `waivers` lists: the waivers of an inventory, each with what rests on it."""

    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class InService:
    """What `service` shows: the service of all nodes."""

    board: Board
    show_all: bool = False  # each node with its steps


Document = TypeVar("Document")
_FORMATS: dict[str, dict[type, Callable[[Any], Iterable[Part]]]] = {}


def shows(
    kind: type[Document],
) -> Callable[[Callable[[Document], Iterable[Part]]], Callable[[Document], Iterable[Part]]]:
    """Register a function of a format's module as the one that shows this kind of document."""

    def register(function: Callable[[Document], Iterable[Part]]) -> Callable[[Document], Iterable[Part]]:
        name = function.__module__.rpartition(".")[2]
        if _FORMATS.setdefault(name, {}).setdefault(kind, function) is not function:
            raise ValueError(f"the format {name} shows {kind.__name__} twice")
        return function

    return register


def _by(place: str) -> Callable[[Any], Iterable[Part]]:
    """Return what shows a document by "module:function", loaded at its first use: rich or jinja2 cost 50 to 100 ms."""

    def show(document: Any) -> Iterable[Part]:
        module, _, function = place.partition(":")
        made = getattr(importlib.import_module(module), function)(document)
        return [made] if isinstance(made, str) else made

    return show


def names(kind: type) -> list[str]:
    """Return the formats that show this kind of document; what people read comes first."""
    _load()
    found = [name for name, kinds in _FORMATS.items() if kind in kinds]
    return sorted(found, key=lambda name: (name not in FIRST, name))


def write(document: Any, form: str) -> None:
    """Write a document to standard output. KeyError for a format that does not show its kind."""
    out = None
    for part in _parts(document, form):
        if isinstance(part, str):
            click.echo(part)
            continue
        if out is None:
            out = _console(None)
        out.print(part, soft_wrap=getattr(part, "no_wrap", False))


def text_of(document: Any, form: str) -> str:
    """Return a document as the text of a file. KeyError as `write`."""
    out = io.StringIO()
    console = None
    pieces: list[str] = []  # of a rack 100 MB, of which there should be few copies
    for part in _parts(document, form):
        if isinstance(part, str):
            pieces += part, "\n"
        else:
            console = console or _console(out)
            console.print(part, soft_wrap=getattr(part, "no_wrap", False))
            pieces.append(out.getvalue())
            out.seek(out.truncate(0))
    return "".join(pieces)


def _console(file: io.StringIO | None) -> Console:
    from shakedown.report import terminal  # rich, 50 ms: documents for programs do without

    return terminal.console(file=file)


def _parts(document: Any, form: str) -> Iterable[Part]:
    _load()
    return _FORMATS[form][type(document)](document)


@functools.cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


ELSEWHERE: tuple[tuple[str, str, list[type]], ...] = (
    ("table", "shakedown.report.screen:table", [Findings]),
    ("table", "shakedown.report.outcomes:shown", [Judged, Run]),
    ("table", "shakedown.report.past:waivers", [Waivers]),
    ("table", "shakedown.report.past:history", [Remembered]),
    ("table", "shakedown.report.past:comparison", [Compared]),
    ("table", "shakedown.report.past:calibration", [Calibrated]),
    ("table", "shakedown.report.past:reliability", [Reliable]),
    ("table", "shakedown.report.past:board", [InService]),
    ("text", "shakedown.report.preview:plans", [Plans]),
    ("jsonl", "shakedown.report.formats.json:lines", [Findings]),
    ("acceptance", "shakedown.report.page.acceptance:page_of", [Run]),  # what a supplier and a buyer sign
    ("html", "shakedown.report.page.render:page_of", [Findings, Judged, Run, Remembered]),
    ("junit", "shakedown.report.junit:suites", [Findings, Judged, Run]),  # for a CI
    ("markdown", "shakedown.report.markdown:markdown", [Findings, Judged, Run]),  # for a ticket or a chat
    ("prometheus", "shakedown.report.prometheus:metrics", [Findings, Judged, Run]),  # for node_exporter's textfiles
)
for _name, _place, _kinds in ELSEWHERE:
    _FORMATS.setdefault(_name, {}).update(dict.fromkeys(_kinds, _by(_place)))
