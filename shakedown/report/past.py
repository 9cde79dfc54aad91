"""Tables of earlier runs, of two of them side by side, of the nodes that a service watches, and of waivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from shakedown.common.text import counted, decimal, printable, short
from shakedown.hosts import few, named
from shakedown.logs.metrics import METRICS
from shakedown.report.formats import Calibrated, Compared, InService, Reliable, Remembered, Waivers
from shakedown.report.terminal import CELL, COLOURS, Line, table
from shakedown.service.marks import step_line, when
from shakedown.service.model import NodeService
from shakedown.state.findings import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shakedown.ledger.history import JobRow, RunRow


_MOST = 40  # differences of one group that a table shows
_FIGURES = ("throughput_per_gpu", "tokens_per_gpu")
_TITLES = {
    "verdict": "verdicts",
    "figures": "figures",
    "versions": "versions",
    "state": "state of the nodes",
    "plan": "plan",
    "rest": "the rest",
}


def history(document: Remembered) -> Iterator[RenderableType]:
    """Where a part sat, where one was asked for; then the runs, the newest first."""
    found = document.history
    if found.stays:
        places = table("part", "node", "slot", "first seen", "last seen", "runs", "firmware")
        for stay in found.stays:
            slot, times = stay.slot or "-", (_when(stay.first), _when(stay.last))
            runs = f"{'>= ' if stay.more else ''}{stay.runs}"
            shown = (f"{stay.kind} {stay.serial}", stay.node, slot, *times, runs, stay.firmware or "-")
            places.add_row(*map(Text, shown))
        yield places
        yield ""
    if not found.runs:
        yield Text("no such run in the ledger")
        return
    has_nodes = any(row.node for row in found.runs)
    own, units = ("node", "its verdict") if has_nodes else (), (METRICS[metric].unit for metric in _FIGURES)
    made = table("started (UTC)", "run", "verdict", "nodes", *own, "recipe", *units, "what differs")
    for row in found.runs:
        job = _job(row)
        node = (Text(row.node or "-"), _verdict(row.node_verdict)) if has_nodes else ()
        values = [job.figures.get(metric) if job else None for metric in _FIGURES]
        figures = [Text("-" if value is None else f"{value:,.5g}") for value in values]
        recipe = "-" if job is None else job.recipe
        of_run = (Text(_when(row.at)), Text(row.run_id), _verdict(row.verdict), Text(str(row.nodes)), *node)
        of_node = f"{row.node_part}: {row.node_why}" if row.node_why else ""
        why = Text("; ".join(filter(None, (of_node, row.wrong))))
        made.add_row(*of_run, Text(recipe if row.kind == "run" else row.kind), *figures, why)
    yield made


def comparison(document: Compared) -> Iterator[RenderableType]:
    """Yield the two runs, then a table for each group that has differences."""
    found = document.comparison
    sides = table("", "run", "started (UTC)", "verdict", "nodes")
    for word, side in (("first", found.first), ("second", found.second)):
        verdict = _verdict(side.verdict.value)
        sides.add_row(word, Text(side.run_id), Text(side.started_at), verdict, Text(str(side.nodes)))
    yield sides
    yield from (Text(note) for note in found.notes)
    if not found.differences:
        yield Text("\nnothing differs")
    for group, title in _TITLES.items():
        rows = [difference for difference in found.differences if difference.group == group]
        if not rows:
            continue
        yield ""
        made = table(title, "nodes", "first", "second", *(("change",) if group == "figures" else ()))
        for row in rows[:_MOST]:
            change = (Text(row.change, style="red" if "worse" in row.change else ""),) if group == "figures" else ()
            made.add_row(Text(row.what), Text(named(row.nodes)), Text(row.first), Text(row.second), *change)
        yield made
        if len(rows) > _MOST:
            yield Text(f"and {len(rows) - _MOST} more: --format json has them all")


def _job(row: RunRow) -> JobRow | None:
    """Return the node's own job where one node was asked for, else the one over all nodes."""
    own = [job for job in row.jobs if row.node and job.job.startswith("each/")]
    return next(iter([*own, *row.jobs]), None)


def _verdict(word: str | None) -> Text:
    return Text(word or "-", style=COLOURS[Verdict(word)] if word and word in set(Verdict) else "")


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def calibration(document: Calibrated) -> Iterator[RenderableType]:
    """Yield the baseline of each figure: centre with error, deviation of one run, and the bound for the next."""
    shown = table("job", "figure", "runs", "centre", "+-", "each run", "the next has to be", "unit")
    for row in document.rows:
        found, unit = row.baseline, row.unit
        if found.centre is None or found.error is None or found.spread is None or found.bound is None:
            shown.add_row(Text(row.job), row.metric, str(found), decimal(found.value), "-", "-", "not judged yet", unit)
            continue
        numbers = (decimal(found.centre), short(found.error), short(found.spread))
        bound = f"{found.direction} {decimal(found.bound)}"
        shown.add_row(Text(row.job), row.metric, str(found.count), *numbers, bound, unit)
    yield shown
    yield from (Text(f"\n{epoch}") for epoch in dict.fromkeys(row.epoch for row in document.rows))
    yield Text(f"\n{counted(len(document.runs), 'run')}: {', '.join(document.runs)}")


def reliability(document: Reliable) -> Iterator[RenderableType]:
    """Failures per hour under load, repairs, and units with more failures than their hours explain."""
    found = document.answer
    if not found.rates:
        yield Text("no run under load in the ledger")
        return
    rates = table("what", "number", "hours under load", "failures", "mean time between failures", "95 % interval")
    for rate in found.rates:
        between = "no failure" if rate.mtbf_h is None else f"{rate.mtbf_h:,.0f} h"
        least = "-" if rate.low_h is None else f"{rate.low_h:,.0f} h"
        interval = f"at least {least}" if rate.high_h is None else f"{least} to {rate.high_h:,.0f} h"
        rates.add_row(rate.kind, str(rate.units), f"{rate.hours:,.1f}", str(rate.failures), between, interval)
    yield rates
    repairs = found.repairs
    times = "no repaired failure"
    if repairs.median_h is not None:
        times = f"{repairs.repaired} repaired, median {repairs.median_h:,.1f} h, 90th percentile {repairs.p90_h:,.1f} h"
    yield Text(f"\nfailures: {times}; {repairs.open} open")
    share = f"{repairs.held} of {repairs.attempts}, 95 % interval {repairs.low:.0%} to {repairs.high:.0%}"
    yield Text(f"repairs that held for 7 days: {share if repairs.attempts else 'none that is old enough'}")
    for claim in found.claimed:
        yield Text(f"{claim.kind} {claim.unit}: {named(claim.nodes)} claim this serial number, so it counts for none")
    lemons = [unit for unit in found.units if unit.lemon]
    if not lemons:
        yield Text("no lemon: no node and no part has more failures than its hours explain")
        return
    made = table("lemon", "on", "failures", "hours", "times the rest's rate", "95 % interval", "q")
    for unit in lemons:
        ratio = "the rest has none" if unit.ratio is None else f"{unit.ratio:,.1f}"
        what = unit.unit if unit.kind == "node" else f"{unit.kind} {unit.unit}"
        interval = f"at least {unit.low:,.1f}" if unit.high is None else f"{unit.low:,.1f} to {unit.high:,.1f}"
        figures = (str(unit.failures), f"{unit.hours:,.1f}", ratio, interval, f"{unit.q:.1g}")
        made.add_row(Text(what), Text(named(unit.nodes)), *figures)
    yield ""
    yield made


_STYLES = {"in service": "green", "suspect": "yellow", "being mended": "yellow", "out": "red", "unknown": "magenta"}


def board(document: InService) -> Iterator[RenderableType]:
    """Yield the nodes out of service, equal ones in one row, the others in a line; with `show_all` a row each."""
    found, show_all = document.board, document.show_all
    well = [node for node in found.nodes if node.standing == "in service" and not show_all]
    rest = [node for node in found.nodes if node not in well]
    alike: dict[tuple[str, ...], list[NodeService]] = {}
    for node in rest:
        standing = f"{node.standing}: {node.rung}" if node.rung else node.standing
        since = f" since {when(node.since)} UTC" if node.since else ""
        passed = f"passed last: {node.passed.load} {when(node.passed.at)}" if node.passed else "never passed"
        row = (f"{standing}{since}, {passed}", node.why, node.next and f"next: {node.next}")
        alike.setdefault((*row, node.node if show_all else ""), []).append(node)
    for (first, *others, _), nodes in alike.items():
        yield Text(few(node.node for node in nodes), style=_STYLES[nodes[0].standing])
        yield from (Line(f"    {printable(text, CELL)}") for text in (first, *others) if text)
    if well:
        yield Text(f"in service: {few(node.node for node in well)}")
    for node in rest if show_all else ():
        texts = [*map(step_line, node.steps), *(f"part: {part}" for part in node.parts)]
        texts += [f"evidence: {', '.join(node.evidence)}"] if node.evidence else []
        yield from [Text(f"\n{node.node}")] if texts else []
        yield from (Line(f"  {printable(text, CELL)}") for text in texts)
    yield from (Line(printable(str(text), CELL)) for text in (*found.marks, *found.notes))
    numbers = Counter(node.standing for node in found.nodes)
    counts = ", ".join(f"{count} {standing}" for standing, count in numbers.items())
    yield Text(f"{counted(len(found.nodes), 'node')}: {counts}")


def waivers(document: Waivers) -> Iterator[RenderableType]:
    """Yield each waiver with what rests on it."""
    if not document.rows:
        yield Text("the inventory has no waivers")
    for row in document.rows:
        yield Text(f"{row['name']}: {row['what']} on {row['where']}: {row['status']}")
        yield Text(f"    {row['reason']} ({row['owner']}); {row['rests'] or 'nothing rests on it'}")
