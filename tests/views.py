"""What a person is shown of pure decisions, as functions of plain data: tests/cases.py calls them."""

from __future__ import annotations

import copy
import functools
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from functools import cache
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from shakedown.checks import checks
from shakedown.desired.models import DesiredState, Service
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.gates.judge import JobSpec, from_logs
from shakedown.gates.judgement import watched_counters
from shakedown.gates.model import Gate
from shakedown.gates.observed import NodeLog
from shakedown.isolation.knowledge import Knowledge
from shakedown.isolation.strategy import missed, next_step
from shakedown.ledger import LedgerError, claims, history, schema
from shakedown.ledger.reliability import reliability
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.node import interfaces, pci, smi
from shakedown.node.setting import KINDS, SETTINGS
from shakedown.node.tree import Tree, attempt
from shakedown.runs.isolation import Isolation, Result
from shakedown.service import decide, evidence, marks, model
from shakedown.service.model import Known
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState
from tests import states


@dataclass(frozen=True)
class Scheduled:
    """A node as a scheduler has it."""

    name: str
    reason: str = ""
    drained: bool = False
    down: bool = False
    states: Sequence[str] = ("IDLE",)

    def why_not(self) -> str:
        return f"{'+'.join(self.states)}: {self.reason}"


@dataclass(frozen=True)
class Run:
    """As much of a run's record as the service reads."""

    nodes: Mapping[str, str]  # name -> verdict
    findings: list[Finding] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    search: Result | None = None
    gates: list[Gate] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    trials: dict[str, Any] | None = None
    finished: bool = True


def service_proposals(
    known: dict[str, Known],
    facts: dict[str, decide.Facts],
    allowed: dict[str, Service],
    bounds: decide.Limits,
    now: int,
    alone: bool = False,
) -> list[decide.Proposal]:
    histories = {node: model.history(events, alone) for node, events in known.items()}
    return decide.proposals(histories, known, facts, allowed, bounds, now)


def service_marks(
    known: dict[str, Known],
    nodes: dict[str, Scheduled],
    hosts: dict[str, str | None],
    bounds: decide.Limits,
    alone: bool = False,
) -> list[Any]:
    names = marks.names_in(nodes, hosts)  # type: ignore[arg-type]
    histories = {node: model.history(events, alone) for node, events in known.items()}
    found = marks.marks(histories, known, nodes, names, bounds)  # type: ignore[arg-type]
    return [names, *(f"{mark} [{mark.name} {mark.there}]" for mark in found)]


def service_board(
    known: dict[str, Known],
    scheduled: dict[str, Scheduled],
    next_steps: dict[str, decide.Proposal],
    unread: str = "",
    notes: Sequence[str] = (),
    alone: bool = False,
) -> list[Any]:
    shown = [
        marks.shown(
            node,
            events,
            model.history(events, alone),
            next_steps.get(node),
            scheduled.get(node),  # type: ignore[arg-type]
            unread=unread,
        )
        for node, events in known.items()
    ]
    lines = [marks.step_line(step) for one in shown for step in one.steps]
    rows = [one.model_dump(mode="json", exclude={"open", "steps", "passed"}, exclude_defaults=True) for one in shown]
    return [marks.Board(shown, notes).verdict.value, rows, lines]


def service_limits(known: dict[str, Known], named: list[str], now: int, allowed: int) -> list[str]:
    return [decide.too_many_named(named, allowed), decide.too_many_failed(known, now, allowed)]


def service_evidence(run: Run) -> list[Any]:
    """Return the incidents of a run and the loads that its nodes have passed."""
    record: Any = SimpleNamespace(
        nodes=[SimpleNamespace(name=name, verdict=Verdict(verdict)) for name, verdict in run.nodes.items()],
        findings=run.findings,
        diagnosis=run.diagnosis,
        isolation=SimpleNamespace(result=run.search) if run.search else None,
        gates=run.gates,
        jobs=[_spaced({"ended_by": None, "trials": None, "plan": None, **job}) for job in run.jobs],
        trials=_spaced(run.trials) if run.trials else None,
        soak=None,
        finished_at=datetime(2026, 11, 29, tzinfo=UTC) if run.finished else None,
    )
    found = evidence.incidents(record)
    rows = [(str(one), one.node, "drift" * one.drift, "drains" * one.drains) for one in found]
    loads = [(load.node, load.load, load.others) for load in evidence.passed_loads(record)]
    return [rows, loads, [str(one) for one in evidence.from_findings(run.findings, 5)]]


KEPT = ("incomplete", "places")
"""Mappings by the names of nodes, which stay so."""


def _spaced(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{key: one if key in KEPT else _spaced(one) for key, one in value.items()})
    return [_spaced(one) for one in value] if isinstance(value, list) else value


@contextmanager
def tree_of(files: Mapping[str, str | None]) -> Iterator[Tree]:
    """A node's files: text, a folder (null), or a link ("-> target")."""
    with TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root + name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.mkdir(exist_ok=True)
            elif text.startswith("-> "):
                path.symlink_to(text[3:])
            else:
                path.write_text(text)
                path.chmod(0o755 if text.startswith("#!") else 0o644)
        yield Tree(root)


@dataclass(frozen=True)
class Answers:
    """What a node answers to some questions by itself, and to all others by its files."""

    given: Mapping[str, Any]

    def answer(self, subject: str, reading: Callable[..., Any], *arguments: Any) -> Any:
        return self.given[subject] if subject in self.given else reading(*arguments)


def node_reading(
    files: dict[str, str | None], reading: str, arguments: Sequence[Any] = (), answers: dict[str, Any] | None = None
) -> Any:
    """Return what a function of shakedown.node reads of a node with these files."""
    module, _, name = reading.partition(".")
    function = attrgetter(name)(importlib.import_module(f"shakedown.node.{module}"))
    with tree_of(files) as tree:
        tree.book = Answers(answers) if answers else None
        return attempt(function, tree, *arguments)


def node_setting(
    setting: Any,
    method: str,
    arguments: Sequence[Any] = (),
    files: dict[str, str | None] | None = None,
    answers: dict[str, Any] | None = None,
    boot: dict[str, str] | None = None,
) -> list[Any]:
    """Return what a method of a setting answers, on a node with these files or about its next boot, and the files
    after it. A setting is one that Shakedown has, or a file of a site's own."""
    known = SETTINGS[setting] if isinstance(setting, str) else KINDS[setting["kind"]]("own", **setting)
    with tree_of(files or {}) as tree:
        tree.book = Answers(answers or {})
        of: list[Any] = [tree] if files is not None else []
        if boot is not None:
            of = [SimpleNamespace(**dict.fromkeys(("unit", "parameter", "sysctl"), boot.get))]
        found = attempt(getattr(known, method), *of, *arguments)
        return [found, {name: tree.text(name) for name, text in (files or {}).items() if text and text[0] not in "#-"}]


def node_fact(fact: str, arguments: dict[str, Any], output: list[str]) -> Any:
    """Return what a fact makes of what its command printed."""
    module, _, name = fact.partition(".")
    made = getattr(importlib.import_module(f"shakedown.facts.{module}"), name)()
    made.command(**arguments)
    return made.process(output)


class GpuLibrary:
    """AMD's Python package: each function answers alike, or by its last argument, or with an error."""

    AmdSmiGpuBlock = IntEnum("AmdSmiGpuBlock", {"UMC": 1, "SDMA": 2, "ALL": 3, "GFX": 4, "FUSE": 8})
    AmdSmiMemoryType = AmdSmiTemperatureType = AmdSmiTemperatureMetric = SimpleNamespace(VRAM=0, HOTSPOT=1, CURRENT=0)

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.amdsmi_interface = SimpleNamespace(amdsmi_wrapper=SimpleNamespace(AMDSMI_STATUS_MORE_DATA=39))

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            found = self.answers[name]
            if isinstance(found, dict) and "by" in found:
                found = found["by"][str(arguments[-1])]
            if isinstance(found, str) and found.startswith("STATUS_"):
                raise RuntimeError(found)
            return found

        return call


def gpu_reading(
    reading: str,
    library: dict[str, Any],
    version: Sequence[int] = (26, 5, 0),
    files: dict[str, str | None] | None = None,
) -> Any:
    """Return what a function of shakedown.node.smi reads of a GPU "a" beside a GPU "b" by a library's answers."""
    with tree_of(files or {}) as tree:
        major, minor, release = version
        gpus = smi.Gpus(tree, GpuLibrary(library), (major, minor, release), {"0000:0A:00.0": "a", "0000:0b:00.0": "b"})
        of_module = reading in ("_gpu", "ecc_totals")
        found = attempt(getattr(smi, reading), gpus.module if of_module else gpus, "a")
        return json.loads(json.dumps(found).replace(tree.root, ""))


def node_mtus(files: dict[str, str | None], unit: dict[str, Any], names: list[str]) -> list[Any]:
    """Return the MTU that each interface will have at the next boot."""
    with tree_of(files) as tree:
        mtus = interfaces.PersistedMtu(tree, unit)
        return [attempt(mtus, name) for name in names]


def node_register(words: dict[int, int], register: str) -> list[Any]:
    """Return a register of a PCI function with these words of configuration space, and its read request."""

    def config(offset: int) -> int | None:
        return words.get(offset, 0) if offset < 4096 else None

    return [attempt(one, config, *more) for one, more in ((pci.word, (register,)), (pci.max_read_request, ()))]


def observed(logs: dict[str, NodeLog | None], spec: JobSpec) -> list[Any]:
    """Return what the logs of a run show, as far as gates decide by it."""
    found = from_logs(logs, spec)
    speed, training, reading = found.speed, found.training, found.reading
    assert speed is not None and found.logs is not None
    return [
        [found.logs.unlogged, found.logs.rdma, found.logs.nccl_debug, found.expected.bounds],
        training and [len(training.iterations), training.damaged, training.wanted, found.in_image, training.resume_at],
        found.mlperf is not None,
        [speed.figures.values(), None if speed.timed is None else len(speed.timed), speed.all_gpus_tokens],
        [speed.gpus, speed.shape.nodes, speed.paces, speed.clock, speed.ranks],
        [reading.unjudged, reading.contradicted, reading.unread, reading.cut, reading.shows_failure],
    ]


@cache
def _healthy(kind: str) -> tuple[Any, Any]:
    """Return the desired state and the state of a node as documents. "cpu" is one without devices; on a "plain" one
    nobody has asked the GPUs' library for their health."""
    if kind == "cpu":
        return states.desired("cpu", nic=None).model_dump(), states.bare().model_dump()
    state = states.healthy() if kind == "plain" else states.with_health(states.healthy())
    return states.desired().model_dump(), state.model_dump()


def changed(document: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a document with other values at some paths ("gpus/0/model"); "DELETED" removes one."""
    document = copy.deepcopy(document)
    for path, value in changes.items():
        *above, last = path.split("/")
        at = functools.reduce(lambda place, part: place[_key(place, part)], above, document)
        if value == "DELETED":
            del at[_key(at, last)]
        else:
            at[_key(at, last)] = value
    return document


def _key(place: Any, part: str) -> int | str:
    return int(part) if isinstance(place, list | tuple) else part


def node_findings(check: str, wanted: dict[str, Any], state: dict[str, Any], kind: str = "mi300x") -> list[Any]:
    """Return what a check finds of a healthy node with these changes of what is wanted and of what is."""
    documents = zip(_healthy(kind), (wanted, state), strict=True)
    desired, actual = (changed(document, changes) for document, changes in documents)
    found = checks()[check](DesiredState.model_validate(desired), NodeState.model_validate(actual), "n")
    findings = [found] if isinstance(found, Finding) else found or []
    return [finding.model_dump(mode="json", exclude={"node"}, exclude_defaults=True) for finding in findings]


def node_counters(wanted: dict[str, Any], counters: dict[str, Any], kind: str = "plain") -> dict[str, Any]:
    """Return the counters of a healthy node that a run must not raise."""
    desired, state = _healthy(kind)
    desired, state = changed(desired, wanted), changed(state, {"counters": counters})
    return watched_counters(DesiredState.model_validate(desired), NodeState.model_validate(state))


def search_state(search: Isolation) -> list[Any]:
    """Return what a search for a bad node knows after its trainings, and what it does next."""
    known = Knowledge(search.problem, search.rounds, search.run_id)
    step, rest = next_step(search), known.model
    suspects = (*known.named.values(), *known.shared, *known.likely_shared)
    words = [
        " ".join([group.id, group.purpose, str(group.parent), *group.nodes, "/", *group.pads])
        for group in (() if isinstance(step, Result) else step)
    ]
    return [
        words,
        shortly(step) if isinstance(step, Result) else None,
        {node: round(chance, 5) for node, chance in known.probability.items()},
        [f"{suspect} {suspect.probability:.5f} {' '.join(suspect.trainings)}" for suspect in suspects],
        [f"{known.words(cause)} {chance:.5f}" for chance, cause in rest.likeliest(4) if chance > 1e-4],
        [sorted(known.cleared), sorted(known.left_out), sorted(known.given_up)],
        [len(known.against(node)) for node in search.problem.nodes],
        round(missed(search.problem, known.trainings), 5),
    ]


@cache
def _ledger() -> tuple[TemporaryDirectory[str], Ledger]:
    folder = TemporaryDirectory()
    return folder, open_ledger(Path(folder.name, "ledger.sqlite"))


def ledger_answers(rows: dict[str, list[dict[str, Any]]], now: int, questions: list[dict[str, Any]]) -> list[Any]:
    """Return what a ledger with these rows answers about its nodes; "" and 0 where a row does not have a column."""
    _, ledger = _ledger()
    with ledger.writing() as connection:
        tables = [table for table in schema.metadata.sorted_tables if table.name != "ledger_version"]
        for table in reversed(tables):
            connection.execute(table.delete())
        for table in tables:
            columns = {column.name: "" if column.type.python_type is str else 0 for column in table.columns}
            columns |= {column.name: None for column in table.columns if column.nullable}
            if made := [columns | row for row in rows.get(table.name, [])]:
                connection.execute(table.insert(), made)
    nodes, since = ["a", "b", "c"], datetime.fromtimestamp(now - 40 * 86400, UTC)
    known = claims.known_of(ledger, nodes, now)
    return [
        [shortly(reliability(ledger, now, after)) for after in (None, since)],
        [_history(ledger, question) for question in questions],
        {node: shortly(events) for node, events in known.items()},
        [claims.by_age(ledger, nodes), sorted(claims.under_way(ledger, now - 9 * 86400))],
        [claims.newest_run(ledger, node, now - 20 * 86400, kind) for node in nodes for kind in ("", "check")],
        claims.parts_of(ledger, nodes),
        [[f"{seen.node} {seen.run_id} {seen.part}" for seen in of_node] for of_node in history.fleet(ledger, since)],
    ]


def _history(ledger: Ledger, question: dict[str, Any]) -> Any:
    try:
        return shortly(history.history(ledger, history.Asked(**question)))
    except LedgerError as error:
        return str(error)


def shortly(value: Any) -> Any:
    """Return what of a document is no default."""
    return value.model_dump(mode="json", exclude_defaults=True)
