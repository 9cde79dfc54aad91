"""A rack's acceptance report for signatures on paper. The page proves nothing: `shakedown verify` does."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shakedown.common.lists import grouped
from shakedown.common.text import decimal, printable
from shakedown.logs.metrics import METRICS
from shakedown.report.causes import FoldedGate, fold_gates
from shakedown.report.formats import Run
from shakedown.report.overview import Overview, overview
from shakedown.report.page import render
from shakedown.runs.directory import STATEMENT, RunDirectory, RunRecord
from shakedown.runs.signing.statement import digest
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable

MOST = 20_000  # rows of a table: 512 nodes with 8 GPUs, 10 NICs and 10 drives have 15,000 parts
_UNREAD = "not read"


@dataclass(frozen=True)
class Part:
    """A part of a node, and what its maker calls it."""

    node: str
    kind: str
    place: str
    model: str
    serial: str


@dataclass(frozen=True)
class Figure:
    """A figure and its limit."""

    test: str
    value: str
    unit: str
    limit: str
    of: str
    verdict: str


def page_of(document: Run) -> str:
    """Render the page of a run. Parts come from the states in its directory."""
    shown, record = overview(document), document.record
    parts = list(_parts(record, document.directory))
    waived = [finding for finding in record.findings if finding.waiver]
    differing = [finding for finding in record.findings if finding.verdict != Verdict.OK and not finding.waiver]
    measured = [*_figures(shown), *_trials(record), *_soak(record)]
    models = grouped(((part.kind, part.model), part.node) for part in parts)  # the node of each part
    template = render.environment().get_template("acceptance.html")
    return template.render(
        shown=shown,
        record=record,
        style=render.own("style.css"),
        policy=render.policy(),
        version=version("shakedown"),
        models=models,
        nodes=[
            (node, Counter((part.kind, part.model) for part in own), own)
            for node, own in grouped((part.node, part) for part in parts[:MOST]).items()
        ],
        gates=[(row.gate, _place(row)) for row in fold_gates(shown.gates)][:MOST],
        passed=len(record.findings) - len(differing) - len(waived),
        differing=differing[:MOST],
        figures=measured[:MOST],
        waived=waived[:MOST],
        beyond=max(len(rows) - MOST for rows in (parts, differing, waived, measured)),
        statement=_statement(document.directory),
    )


def _place(row: FoldedGate) -> str:
    """Return the nodes of a gate; of a job that is one of several, as a stage of a burn-in, its name too."""
    where, job = row.where or "all nodes", row.gate.job
    return f"{where}, {printable(job, 100)}" if "/" in job and not row.nodes else where


def _parts(record: RunRecord, directory: Path | None) -> Iterator[Part]:
    for node in record.nodes:
        state = None
        if directory is not None:
            with suppress(OSError, ValueError):  # never reached, or no state of this version
                state = RunDirectory(directory).load_state(node.name)
        if state is None:
            yield Part(node.name, "node", "", _UNREAD, _UNREAD)
        else:
            yield from _parts_of(node.name, state)
        if node.host_key:
            yield Part(node.name, "SSH host key", "", node.host_key.partition(" ")[0], node.host_key.partition(" ")[2])


def _parts_of(node: str, state: NodeState) -> Iterator[Part]:
    yield Part(node, "board", "", _text(state.system.product), _text(state.system.board_serial))
    gpus = _list(state.gpus, lambda gpu: (gpu.bdf, gpu.model, gpu.serial))
    nics = _list(state.rdma, lambda nic: (f"{nic.name} {nic.bdf}", nic.driver, nic.guid))
    drives = _list(state.nvme, lambda disk: (disk.name, disk.model, disk.serial))
    for kind, found in (("GPU", gpus), ("NIC", nics), ("drive", drives)):
        yield from (Part(node, kind, place, _text(model), _text(serial)) for place, model, serial in found)


def _list(reading: Any, fields: Callable[[Any], tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    return [("", None, None)] if is_unreadable(reading) else [fields(part) for part in reading]


def _text(reading: Any) -> str:
    return _UNREAD if is_unreadable(reading) or reading is None else printable(str(reading), 200)


def _figures(shown: Overview) -> Iterator[Figure]:
    gates = {(gate.job, gate.name): gate for gate in shown.gates}
    for job in render.measured(shown):
        for name, metric in METRICS.items():
            if figure := job.figures.get(name) if job.figures else None:
                bound = job.plan.expect.get(name) if job.plan else None
                limit = "nothing" if bound is None else f"{metric.direction} {decimal(bound)}"
                gate = gates.get((job.name, name))
                of = job.node or "all nodes together"
                yield Figure(name, decimal(figure.mean), metric.unit, limit, of, gate.verdict if gate else "")


def _trials(record: RunRecord) -> Iterator[Figure]:
    """Yield each figure of the trials over all parts: the range, and the limits that parts were held against."""
    judged = record.trials.judged if record.trials else ()
    groups = grouped(((part.trial, part.figure, part.unit), part) for part in judged)
    for (trial, figure, unit), found in groups.items():
        values = [part.median for part in found if part.median is not None]
        value = f"{decimal(min(values), 4)} to {decimal(max(values), 4)}" if values else "nothing"
        floors = sorted({f"at least {decimal(part.floor)} ({part.floor_source})" for part in found if part.floor})
        named = [part for part in found if part.standing in ("named", "undecided", "unknown")]
        verdict = "fail" if any(part.standing == "named" for part in named) else "unknown" if named else "ok"
        limit = "; ".join(floors) or "within its peers"
        yield Figure(f"{trial}.{figure}", value, unit, printable(limit, 500), f"{len(found)} parts", verdict)


def _soak(record: RunRecord) -> Iterator[Figure]:
    """Yield the stages of a burn-in, and the error counters that grew, by part and hour."""
    if record.soak is None:
        return
    for stage in record.soak.stages:
        verdict = "unknown" if stage.left_s else "ok"
        yield Figure(f"soak: {stage.name}", decimal(stage.done_s), "s", decimal(stage.wanted_s), "each node", verdict)
    for growth in record.soak.growth:
        if growth.grown:
            rate = decimal(growth.grown / growth.hours) if growth.hours else "?"
            grown, limit = f"{growth.grown} ({rate} an hour)", f"{growth.limit:g} in 24 h"
            yield Figure(f"soak: {growth.counter}", grown, "errors", limit, growth.node, growth.verdict)


def _statement(directory: Path | None) -> str:
    """Return the digest of the statement's file; it is not read as one, since nothing here knows the key."""
    path = directory / STATEMENT if directory is not None else None
    if path is None or path.is_symlink() or not path.is_file():
        return ""
    with suppress(OSError, ValueError):
        return digest(path)
    return ""
