"""From an overview to the page's text, with some lines around the first failure and a link to the whole log."""

import base64
import hashlib
import json
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from shakedown.common.lists import grouped
from shakedown.common.secrets import masked
from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.stragglers import model
from shakedown.evidence.stragglers.model import lines
from shakedown.gates.registry import OF_THE_END
from shakedown.isolation.tree import result_lines, tree
from shakedown.logs.lines import LineSplitter
from shakedown.logs.metrics import METRICS
from shakedown.logs.signatures import FailureScanner, Match
from shakedown.report import telemetry
from shakedown.report.formats import Findings, Judged, Remembered, Run
from shakedown.report.overview import WORDS, Overview, overview
from shakedown.report.page import plots, rows, squares
from shakedown.report.page.squares import tiles
from shakedown.report.terminal import value_text
from shakedown.report.trials import fleet
from shakedown.runs import copies
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory
from shakedown.state.findings import Verdict

LOGS = 12  # of one page: the first failure and some of what followed from it
READ = 1 << 26  # bytes of one log that are looked through
BEFORE, AFTER = 8, 12  # lines around the one that failed
LINE = 400  # characters of one


@dataclass(frozen=True)
class Excerpt:
    """Lines of one log: (number from 1, text). `failed`: the line that shows the failure; None: these are the last."""

    job: str
    node: str
    path: str
    link: str
    anchor: str
    lines: list[tuple[int, str]]
    failed: int | None
    cause: str
    remedy: str


def of(shown: Overview) -> list[Excerpt]:
    """Return what a diagnosis rests on, then the logs of jobs that did not pass: those that show a failure first."""
    if shown.directory is None:
        return []
    found: list[Excerpt] = []
    for sign in shown.signs:
        if sign.file and sign.line_number and not any(excerpt.path == sign.file for excerpt in found):
            at = Match(name=sign.name, line_number=sign.line_number, line="", cause=sign.cause, remedy=sign.remedy)
            found += _of(shown, "diagnosis", sign.node or "", sign.file, at)
    bad = grouped((gate.job, gate.name) for gate in shown.gates if not gate.verdict.passes)
    ended: list[Excerpt] = []
    for job in shown.jobs:
        for node, logs in job.logs.items() if job.name in bad else ():
            if len(found) < LOGS and logs and not any(excerpt.path == logs[0] for excerpt in found):
                for excerpt in _of(shown, job.name, node, logs[0]):
                    if excerpt.failed is not None:
                        found.append(excerpt)
                    elif OF_THE_END.intersection(
                        bad[job.name]
                    ):  # no line shows a failure: the end of the log is worth a look
                        ended.append(excerpt)
            if len(found) + len(ended) >= 4 * LOGS:
                break  # of hundreds of nodes those that come first
    return [*found, *ended][:LOGS]


def link_to(shown: Overview, path: str) -> str:
    """Return the page's link to a file of the run directory; empty where the file is not there."""
    if shown.directory is None:
        return ""
    try:
        copies.inside(shown.directory, path)
    except ValueError:
        return ""
    return f"{shown.links}{quote(path)}"


def _of(shown: Overview, job: str, node: str, path: str, at: Match | None = None) -> Iterator[Excerpt]:
    """Yield the lines around the failure; none where the log cannot be read (the gate logs_complete has the reason)."""
    assert shown.directory is not None
    try:
        file = copies.inside(shown.directory, path)
        match = at or _first_failure(file)
        lines = _around(file, match)
    except (OSError, ValueError):
        return
    if not lines:
        return
    texts: list[str] = masked([text for _, text in lines], more=shown.secrets)
    yield Excerpt(
        job=job,
        node=printable(node, 200),
        path=printable(path, LINE),
        link=link_to(shown, path),
        anchor=f"log-{quote(job, safe='')}-{quote(node, safe='')}",
        lines=[(number, printable(text, LINE)) for (number, _), text in zip(lines, texts, strict=True)],
        failed=match.line_number if match else None,
        cause=match.cause if match else "",
        remedy=match.remedy if match else "",
    )


def _first_failure(path: Path) -> Match | None:
    scanner = FailureScanner()
    for batch in _batches(path):
        scanner.batch(batch)
    scanner.close()
    return scanner.root


def _around(path: Path, match: Match | None) -> list[tuple[int, str]]:
    """Return the lines around a failure; without one, the last lines of what is looked through."""
    number = 0
    kept: deque[tuple[int, str]] = deque(maxlen=BEFORE + 1 + AFTER)
    for batch in _batches(path):
        for line in batch:
            number += 1
            if match and number > match.line_number + AFTER:
                return [item for item in kept if item[0] >= match.line_number - BEFORE]
            kept.append((number, line))
    return [item for item in kept if match is None or item[0] >= match.line_number - BEFORE]


def _batches(path: Path) -> Iterator[list[str]]:
    splitter, left = LineSplitter(), READ
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 18))):
            left -= len(chunk)
            yield splitter.feed(chunk)
    yield splitter.close()


TEXT = 2000  # characters of one text of a node that are shown
JOBS = 64  # whose figures have rows; nodes by themselves may be hundreds
# As verdicts, standings have the same colour and mark.
STANDINGS = {"named": "fail", "fail": "fail", "undecided": "unknown", "unknown": "unknown", "notice": "warn"}
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})  # nothing in it can end the element
FEW = 12  # nodes and entries that a person looks through without a search


def page_of(document: Findings | Judged | Run | Remembered) -> str:
    """Render the whole page of a document."""
    shown = overview(document)
    index = rows.Index(shown.names)
    logs = of(shown)
    evidence: dict[str, Evidence] = {}
    if shown.directory is not None:
        with suppress(OSError, ValueError):  # unreadable: the run is judged already
            evidence = RunDirectory(shown.directory).load_evidence()
    trials = shown.trials
    reasons = trials.incomplete.values() if trials else ()
    actions = [action for action in shown.actions if not action.repeats]
    cards = rows.cards(actions, index)
    nodes_of_ledger = rows.fleet(shown, index)
    links: dict[str, tuple[str, str]] = {}
    for place, action, _ in cards:
        links = {node: (place, action.what) for node in action.nodes if action.verdict != Verdict.WARN} | links
    seen = {node: (place, runs[0].why) for node, (place, _, runs) in nodes_of_ledger.items()}
    nodes = squares.squares(shown, links or seen)
    template = environment().get_template("page.html")
    return template.render(
        shown=shown,
        word=WORDS[shown.verdict],
        style=own("style.css"),
        script=own("script.js"),
        policy=policy(),
        index=index,
        names=Markup(json.dumps(index.names).translate(_IN_SCRIPT)),
        searched=len(cards) > FEW or (len(index.names) > FEW and (cards or nodes_of_ledger)),
        tiles=tiles(shown, nodes),
        racks=squares.racks(nodes, shown.groups),
        cards=cards,
        beyond_cards=len(actions) - len(cards),
        lines={
            words: f"{log.anchor}-{log.failed}"
            for log in logs
            if log.failed
            for words in (f"{log.node} line {log.failed}", f"{log.path}:{log.failed}")
        },
        gates=rows.gates(shown, index),
        measured=measured(shown),
        metrics=METRICS,
        gate_of={(gate.job, gate.name): gate for gate in shown.gates},
        plots=[
            *plots.of_iterations(shown),
            *plots.of_earlier(shown, evidence),
            *(plots.weeks(shown.history) if shown.history else []),
        ],
        over_time=plots.of_telemetry(shown, evidence),
        telemetry=[(job.node, *telemetry.cells(job.telemetry)) for job in shown.jobs if job.telemetry][:JOBS],
        trials=trials,
        fleet_of_trials=list(fleet(trials.judged)) if trials else (),
        pairs=plots.of_trials(trials) if trials else (),
        incomplete=[printable(f"{node}: {why}", 500) for found in reasons for node, why in found.items()],
        own_times=[
            (job.node, list(lines(job.stragglers)), model.own_times_rows(job.stragglers))
            for job in shown.jobs
            if job.stragglers is not None
        ],
        own_times_header=model.OWN_TIMES_HEADER,
        search=shown.isolation,
        search_tree=tree(shown.isolation) if shown.isolation else (),
        conclusions=result_lines(shown.isolation.result) if shown.isolation and shown.isolation.result else (),
        grid=rows.of(shown, index),
        nodes=rows.nodes(shown, index),
        fleet={row[0]: row for row in nodes_of_ledger.values()}.values(),
        logs=logs,
    )


def measured(shown: Overview) -> list[JobRecord]:
    """Return the jobs that measured something; the job over all nodes comes first."""
    jobs = [job for job in shown.jobs if job.figures and job.iterations]
    return sorted(jobs, key=lambda job: job.node is not None)[:JOBS]


@cache
def own(name: str) -> Markup:
    """Return a file of this folder, as it stands: it is ours."""
    return Markup(files(__package__).joinpath(name).read_text("utf-8"))


def policy() -> str:
    """Return what the page may load and run: its own style and script, by their digests, and images that it carries."""
    digests = (hashlib.sha256(str(own(name)).encode()).digest() for name in ("style.css", "script.js"))
    style, script = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    fixed = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"{fixed}; style-src {style}; script-src {script}"


@cache
def environment() -> Environment:
    loader = PackageLoader("shakedown.report.page", "")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals["marks"] = {verdict.value: mark for verdict, mark in rows.MARKS.items()}
    made.globals["outcomes"] = {"pass": "ok", "fail": "fail", "unknown": "unknown"}
    made.globals["standings"] = STANDINGS | {"warn": "warn", "ok": "ok"}
    made.filters |= {"counted": counted, "decimal": decimal, "median": median, "local": squares.local}
    made.filters["text"] = lambda text: printable(str(text), TEXT)
    made.filters["value"] = lambda value, unit=None: printable(value_text(value, unit), TEXT)
    return made
