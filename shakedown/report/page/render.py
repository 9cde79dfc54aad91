"""From an overview to the page's text."""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from statistics import median

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from shakedown.common.text import counted, decimal, printable
from shakedown.evidence.stragglers.model import lines
from shakedown.isolation.tree import result_lines, tree
from shakedown.logs.metrics import METRICS
from shakedown.report import own_times, telemetry
from shakedown.report.formats import Findings, Judged, Remembered, Run
from shakedown.report.overview import WORDS, Overview, overview
from shakedown.report.page import excerpts, plots, rows, squares
from shakedown.report.page.squares import tiles
from shakedown.report.terminal import value_text
from shakedown.report.trials import fleet
from shakedown.runs.directory import RunDirectory
from shakedown.runs.records import Evidence, JobRecord
from shakedown.state.findings import Verdict

TEXT = 2000  # characters of one text of a node that are shown
JOBS = 64  # whose figures have rows; nodes by themselves may be hundreds
# As verdicts, standings have the same colour and mark.
STANDINGS = {"named": "fail", "fail": "fail", "undecided": "unknown", "unknown": "unknown", "notice": "warn"}
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})  # nothing in it can end the element
FEW = 12  # nodes and entries that a person looks through without a search


def page_of(document: Findings | Judged | Run | Remembered) -> str:
    """Render the page of a document."""
    return page(overview(document))


def page(shown: Overview) -> str:
    """Render the whole page."""
    index = rows.Index(shown.names)
    logs = excerpts.of(shown)
    evidence = _evidence(shown)
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
            (job.node, list(lines(job.stragglers)), own_times.rows(job.stragglers))
            for job in shown.jobs
            if job.stragglers is not None
        ],
        own_times_header=own_times.HEADER,
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


def _evidence(shown: Overview) -> dict[str, Evidence]:
    """Return what the gates of a run's jobs were given; nothing where it cannot be read: what was judged by it is
    judged."""
    if shown.directory is None:
        return {}
    try:
        return RunDirectory(shown.directory).load_evidence()
    except (OSError, ValueError):
        return {}


@cache
def own(name: str) -> Markup:
    """Return a file of this folder, as it stands: it is ours."""
    return Markup(files(__package__).joinpath(name).read_text("utf-8"))


def policy() -> str:
    """Return what the page may load and run: its own style and script, by their digests, and images that it carries."""
    style, script = (
        base64.b64encode(hashlib.sha256(str(own(name)).encode()).digest()).decode()
        for name in ("style.css", "script.js")
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def environment() -> Environment:
    def load(name: str) -> str:
        return files(__package__ or "").joinpath(name).read_text("utf-8")

    made = Environment(
        loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals["marks"] = {verdict.value: mark for verdict, mark in rows.MARKS.items()}
    made.globals["outcomes"] = {"pass": "ok", "fail": "fail", "unknown": "unknown"}
    made.filters["text"] = lambda text: printable(str(text), TEXT)
    made.globals["standings"] = STANDINGS | {"warn": "warn", "ok": "ok"}
    made.filters["counted"] = counted
    made.filters["decimal"] = decimal
    made.filters["median"] = median
    made.filters["local"] = squares.local
    made.filters["value"] = lambda value, unit=None: printable(value_text(value, unit), TEXT)
    return made
