"""From an overview to the page's text."""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from shakedown.common.text import printable
from shakedown.isolation.tree import result_lines, tree
from shakedown.report import own_times, telemetry
from shakedown.report.formats import Findings, Judged, Remembered, Run
from shakedown.report.overview import WORDS, Overview, overview
from shakedown.report.page import earlier, excerpts, figures, grid, measured, over_time, plots, rows, squares, times
from shakedown.report.page.tiles import tiles
from shakedown.report.terminal import value_text
from shakedown.runs.directory import RunDirectory
from shakedown.runs.records import Evidence

TEXT = 2000  # characters of one text of a node that are shown
FEW = 12  # nodes and entries that a person looks through without a search


def page_of(document: Findings | Judged | Run | Remembered) -> str:
    """Render the page of a document."""
    return page(overview(document))


def page(shown: Overview) -> str:
    """Render the whole page."""
    index = rows.Index(shown.names)
    logs = excerpts.of(shown)
    evidence = _evidence(shown)
    sampled = [job for job in shown.jobs if job.telemetry][: figures.JOBS]
    cards = rows.cards(shown, index)
    fleet = rows.fleet(shown, index)
    links = {node: (card.id, card.action.what) for node, card in cards.of_node.items()}
    nodes = squares.squares(shown, links or {node: (row.id, row.seen[0].why) for node, row in fleet.items()})
    template = environment().get_template("page.html")
    return template.render(
        shown=shown,
        word=WORDS[shown.verdict],
        style=own("style.css"),
        script=own("script.js"),
        policy=policy(),
        index=index,
        names=Markup(_json(index.names)),
        searched=len(cards.shown) > FEW or (len(index.names) > FEW and (cards.shown or fleet)),
        tiles=tiles(shown, nodes),
        racks=squares.racks(nodes, shown.groups),
        cards=cards,
        lines={words: f"{log.anchor}-{log.failed}" for log in logs if log.failed for words in _places(log)},
        gates=rows.gates(shown, index),
        figures=figures.tables(shown),
        plots=[
            *plots.of(shown),
            *earlier.of(shown, evidence),
            *(earlier.weeks(shown.history) if shown.history else []),
        ],
        over_time=over_time.of(shown, evidence),
        telemetry=[(job.node or "all nodes together", *telemetry.cells(job.telemetry)) for job in sampled],
        trials=measured.of(shown.trials),
        own_times=own_times.of(shown.jobs),
        own_times_header=own_times.HEADER,
        search=shown.isolation,
        search_tree=tree(shown.isolation) if shown.isolation else (),
        conclusions=result_lines(shown.isolation.result) if shown.isolation and shown.isolation.result else (),
        grid=grid.of(shown, index),
        nodes=rows.nodes(shown, index),
        fleet={row.id: row for row in fleet.values()}.values(),
        logs=logs,
    )


def _evidence(shown: Overview) -> dict[str, Evidence]:
    """Return what the gates of a run's jobs were given; nothing where it cannot be read: what was judged by it is
    judged."""
    if shown.directory is None:
        return {}
    try:
        return RunDirectory(shown.directory).load_evidence()
    except (OSError, ValueError):
        return {}


def _places(log: excerpts.Excerpt) -> tuple[str, str]:
    """How gates and diagnoses name a line of a log."""
    return f"{log.node} line {log.failed}", f"{log.path}:{log.failed}"


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


def _json(value: object) -> str:
    """JSON inside of a script element: nothing in it can end the element."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def environment() -> Environment:
    def load(name: str) -> str:
        return files(__package__ or "").joinpath(name).read_text("utf-8")

    made = Environment(
        loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals["marks"] = {verdict.value: mark for verdict, mark in grid.MARKS.items()}
    made.globals["outcomes"] = {"pass": "ok", "fail": "fail", "unknown": "unknown"}
    made.filters["text"] = lambda text: printable(str(text), TEXT)
    made.filters["local"] = times.local
    made.filters["value"] = lambda value, unit=None: printable(value_text(value, unit), TEXT)
    return made
