"""A run as the ledger keeps it: rows of its tables, made of the record, the nodes' states and the figures.

What comes from nodes and logs is one line of bounded length here, without control characters; no secret is in a record.
"""

import math
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from shakedown.common.lists import grouped
from shakedown.common.text import DIGEST, NAME, TEXT, line, name, plain, some
from shakedown.gates import Gate
from shakedown.gates.baselines.model import digest as digest_of
from shakedown.ledger import schema
from shakedown.ledger.compared import key_of
from shakedown.logs.figures import Figures
from shakedown.logs.metrics import MEAN, METRICS, METRICS_OF
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord
from shakedown.runs.judging import judge_job
from shakedown.service.evidence import incidents, passed_loads
from shakedown.state.findings import Finding, Verdict, worst
from shakedown.state.node import NodeState, is_unreadable
from shakedown.trials.judge import metric as metric_of
from shakedown.trials.models import NODES

Row = dict[str, Any]
FINDINGS = 1000  # rows of a run at most, the worst first
_NAMED = 3  # of what is wrong, in the run's own row

# What board makers leave in the place of a serial number; zeros alone are none either.
_NO_NUMBER = {"", "none", "n/a", "notspecified", "notapplicable", "defaultstring", "tobefilledbyo.e.m.", "unknown"}


class Part(NamedTuple):
    """One part, and where it sits."""

    kind: Literal["gpu", "nic", "board"]
    slot: str  # PCI address; of the board nothing
    serial: str  # a GPU's serial, a NIC's node GUID, the board's serial
    model: str
    firmware: str

    @property
    def number(self) -> str:
        """The serial as it is looked for."""
        return plain(self.serial)


def parts_of(state: NodeState) -> list[Part]:
    """Return what of a node can be told from another of its kind. A part whose number could not be read is none: there
    is no following it."""
    found = {(part.kind, part.slot): part for part in _all(state) if part.number not in _NO_NUMBER}
    return [found[place] for place in sorted(found)]


def _all(state: NodeState) -> Iterator[Part]:
    for gpu in [] if is_unreadable(state.gpus) else state.gpus:
        versions = gpu.firmware
        firmware = "" if is_unreadable(versions) else ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
        yield _part("gpu", gpu.bdf, gpu.serial, gpu.model, firmware)
    for nic in [] if is_unreadable(state.rdma) else state.rdma:
        if nic.bdf and not nic.physical_function:  # a virtual function sits where its card does
            yield _part("nic", nic.bdf, nic.guid, nic.driver or "", nic.firmware)
    yield _part("board", "", state.system.board_serial, state.system.product, state.system.bios_version)


def _part(kind: Literal["gpu", "nic", "board"], slot: str, *readings: object) -> Part:
    return Part(kind, _line(slot), *("" if is_unreadable(reading) else _line(str(reading)) for reading in readings))


_line = lru_cache(maxsize=4096)(name)  # models, slots and firmware are the same on many nodes


@dataclass
class Entry:
    """The rows of one run; `equipment` is shared by the runs that saw it."""

    run: Row
    jobs: list[Row] = field(default_factory=list)
    figures: list[Row] = field(default_factory=list)
    nodes: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    accusations: list[Row] = field(default_factory=list)
    proofs: list[Row] = field(default_factory=list)
    equipment: dict[str, list[Part]] = field(default_factory=dict)


def seconds(when: str | None) -> int | None:
    """Return a record's time as seconds since 1970 UTC; one without a zone is UTC. Raises ValueError for what is no
    time."""
    if when is None:
        return None
    at = datetime.fromisoformat(when)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def entry_of(
    record: RunRecord,
    states: Mapping[str, NodeState],
    directory: RunDirectory,
    evidence: Mapping[str, Evidence],
) -> Entry:
    """Return the rows of a run. Raises ValueError for a record whose times are none."""
    wrong = sorted(_wrong(record), key=lambda row: -Verdict(row["verdict"]).severity)
    failed = [row["name"] for row in wrong if not Verdict(row["verdict"]).passes]  # advice is not
    row = {
        "run_id": name(record.run_id),
        "kind": record.kind,
        "started": seconds(record.started_at),
        "finished": seconds(record.finished_at),
        "verdict": record.verdict.value,
        "inventory": line(record.inventory),
        "desired": line(record.desired_digest, DIGEST),
        "nodes": len(record.nodes),
        "not_ok": len(wrong),
        "wrong": line(some(list(dict.fromkeys(failed)), _NAMED)),
        "kept_at": line(f"{socket.gethostname()}:{directory.path.absolute()}"),
    }
    of_run = {"run_id": row["run_id"]}
    entry = Entry(row)
    entry.findings = [{**of_run, "number": number, **finding} for number, finding in enumerate(wrong[:FINDINGS])]
    entries = incidents(record)
    for number, incident in enumerate(entries):
        columns = incident.model_dump(exclude={"run_id", "at"}) | {"number": number, "at": row["started"]}
        entry.accusations.append({**of_run, **columns})
    for proof in passed_loads(record, entries):
        columns = proof.model_dump(include={"node", "load", "others"})
        entry.proofs.append({**of_run, **columns, "at": row["started"]})
    for node in {name(node.name): node for node in record.nodes}.values():
        state = states.get(node.name)
        parts = parts_of(state) if state else []
        # A node with its parts, their places and their firmware.
        equipment = digest_of([node.name, *(part._asdict() for part in parts)]) if state else None
        if equipment:
            entry.equipment[equipment] = parts
        named = {"node": name(node.name), "verdict": node.verdict.value, "part": node.part, "why": line(node.why)}
        entry.nodes.append({**of_run, **named, "started": row["started"], "equipment": equipment})
    verdicts = grouped((gate.job, gate.verdict) for gate in record.gates)
    for job in {name(job.name): job for job in record.jobs}.values():
        key = key_of(job, states)
        if key is None:
            continue
        job_row = {
            **of_run,
            "job": name(job.name),
            "started": row["started"],
            "finished": row["finished"],
            "verdict": worst([*verdicts.get(job.name, ())]).value,
            "identity": key.identity,
            "epoch": line(key.epoch, 4 * TEXT),
            **{field: value if value is None else _fit(field, value) for field, value in key.model_dump().items()},
        }
        entry.jobs.append(job_row)
        measured = [*_figures(job, directory, evidence.get(job.name, Evidence())), *_of_trials(record, job)]
        for figure in measured:
            entry.figures.append({**of_run, "job": job_row["job"], **figure})
    return entry


def kept_apart(entry: Entry, origin: str) -> Entry:
    """Return the rows of a run that others sent: run, nodes and jobs under names that begin with the origin, so that
    nothing that asks about this site's own finds any of them, and nothing that speaks for or against a node."""

    def renamed(row: Row, **changed: Any) -> Row:
        node = row.get("node")
        own = {"node": name(f"{origin}/{node}")} if node is not None else {}
        return {**row, **own, "run_id": name(f"{origin}/{row['run_id']}"), **changed}

    run = renamed(entry.run, inventory=line(f"{origin}: {entry.run['inventory']}"), kept_at=line(origin))
    others: dict[str, Any] = {
        name: [renamed(row) for row in getattr(entry, name)] for name in ("figures", "nodes", "findings")
    }
    return replace(
        entry,
        run=run,
        jobs=[renamed(row, identity=digest_of([origin, row["identity"]])) for row in entry.jobs],
        **others,
        accusations=[],
        proofs=[],
    )


def _fit(column: str, value: Any) -> Any:
    return value if isinstance(value, int) else line(value, getattr(schema.jobs.c[column].type, "length", NAME))


def _figures(job: JobRecord, directory: RunDirectory, evidence: Evidence) -> Iterator[Row]:
    """Yield what a job measured, by the metric. Figures of a program's own report are read there."""
    if job.plan and job.plan.has_report and (reported := judge_job(directory, job, evidence).reported):
        values = {figure.metric: figure.value for figure in reported.figures if math.isfinite(figure.value)}
        for metric, value in values.items():
            unit = name(METRICS_OF[job.plan.parser][metric].unit)
            yield {"metric": name(metric), "value": value, "spread": None, "count": None, "unit": unit}
    figures = job.figures or Figures(steady=0)
    for metric, value in figures.values().items():
        figure = figures.get(metric.removesuffix(MEAN))
        if figure is not None and math.isfinite(value):
            spread = figure.spread if metric in METRICS and math.isfinite(figure.spread or 0) else None
            count, unit = min(figure.count, 1 << 30), name(figure.metric.unit)
            yield {"metric": metric, "value": value, "spread": spread, "count": count, "unit": unit}


def _of_trials(record: RunRecord, job: JobRecord) -> Iterator[Row]:
    """Yield what the trials of a node measured. A figure that stood out is no history of what is usual; one that nobody
    could judge is: where there are no peers there would never be any."""
    if record.trials is None or job.trials != NODES or job.node is None:
        return
    for part in record.trials.judged:
        possible = part.ceiling is None or max(part.values, default=0.0) <= part.ceiling
        usual = possible and part.standing in ("ok", "notice", "unknown")
        if part.node == job.node and part.median is not None and usual:
            known = metric_of(part.trial, part.figure, part.part)
            count = len(part.values)
            yield {"metric": name(known), "value": part.median, "spread": None, "count": count, "unit": name(part.unit)}


def _wrong(record: RunRecord) -> Iterator[Row]:
    every: list[Finding | Gate] = [*record.findings, *record.gates]
    for result in every:
        if result.verdict != Verdict.OK:
            yield {
                "kind": "finding" if isinstance(result, Finding) else "gate",
                "node": None if result.node is None else name(result.node),
                "name": name(result.name),
                "verdict": result.verdict.value,
                "wanted": line("" if result.wanted is None else result.wanted),
                "actual": line("" if result.actual is None else result.actual),
                "evidence": line(result.evidence),
            }
