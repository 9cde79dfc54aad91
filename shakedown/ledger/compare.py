"""Two runs side by side: what differs, in the order of what matters. Made from their directories alone."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.lists import grouped
from shakedown.common.text import line
from shakedown.jobs.launch import LaunchPlan
from shakedown.ledger.compared import key_of, parameters_of, states_of
from shakedown.logs.metrics import METRICS
from shakedown.runs.directory import JobRecord, RunDirectory, RunRecord
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState

Group = Literal["verdict", "figures", "versions", "state", "plan", "rest"]
_CELL = 500  # characters of a value
_NOTHING = "-"
_DATA = read_toml("shakedown.ledger", "compare.toml")
CHANGING: list[str] = _DATA["changing"]


class Difference(Frozen):
    """One thing that differs. `nodes`: those that it is true of, all with the same two values; of the run none."""

    group: Group
    what: str
    nodes: list[str] = []
    first: str
    second: str
    change: str = ""  # of figures: how far the second is from the first, and whether that is better


class Side(Frozen):
    """One of the two runs."""

    run_id: str
    started_at: str
    verdict: Verdict
    nodes: int


class Comparison(Frozen):
    """Two runs, and what differs."""

    first: Side
    second: Side
    notes: list[str] = []  # what could not be compared
    differences: list[Difference] = []


class _Run:
    def __init__(self, directory: RunDirectory) -> None:
        self.record = directory.load()
        self.states, self.lacking = states_of(directory, self.record)

    @property
    def side(self) -> Side:
        record = self.record
        return Side(run_id=record.run_id, started_at=record.started_at, verdict=record.verdict, nodes=len(record.nodes))


def compare(first: RunDirectory, second: RunDirectory) -> Comparison:
    """Return what differs between two runs; an unreadable node state is a note. Raises ValueError and OSError."""
    one, two = _Run(first), _Run(second)
    parts = (_verdicts, _figures, _versions, _states, _plans, _rest)
    found = [difference for differences in parts for difference in differences(one, two)]
    notes = [*one.lacking, *two.lacking, *_not_equals(one, two)]
    return Comparison(first=one.side, second=two.side, notes=notes, differences=found)


def _verdicts(one: _Run, two: _Run) -> Iterator[Difference]:
    """Yield the runs' own, then gates, nodes and findings whose verdict changed."""
    yield from _differ("verdict", {"run": one.record.verdict}, {"run": two.record.verdict})
    gates = _differ("verdict", _gates(one.record), _gates(two.record))
    yield from sorted(gates, key=lambda gate: {gate.first, gate.second} <= {Verdict.OK, _NOTHING})  # not ok is first
    nodes = [{node.name: {"node": f"{node.verdict}, {node.part}"} for node in run.record.nodes} for run in (one, two)]
    yield from _folded("verdict", *nodes)
    yield from _folded("verdict", _findings(one.record), _findings(two.record))


def _gates(record: RunRecord) -> dict[str, str]:
    return {f"gate {gate.name}" + (f" ({gate.job})" if gate.node else ""): gate.verdict for gate in record.gates}


def _findings(record: RunRecord) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for finding in record.findings:
        found[finding.node][f"finding {finding.name}"] = finding.verdict
    return found


def _figures(one: _Run, two: _Run) -> Iterator[Difference]:
    for job in (job for job in one.record.jobs if job.figures):
        other = two.record.job(job.name)
        for name, metric in METRICS.items():
            before = job.figures.get(name) if job.figures else None
            after = other.figures.get(name) if other.figures else None
            if (before and before.value) == (after and after.value):
                continue
            change = ""
            if before and after and before.value:
                part = (after.value - before.value) / abs(before.value)
                better = metric.meets(after.value, before.value)
                change = f"{part:+.2%}, {'better' if better else 'worse'}"
            values = [f"{figure.value:,.6g} {metric.unit}" if figure else _NOTHING for figure in (before, after)]
            nodes = [job.node] if job.node else []
            yield Difference(group="figures", what=name, nodes=nodes, first=values[0], second=values[1], change=change)
    known = {job.name for job in one.record.jobs if job.figures}
    for job in two.record.jobs:
        if job.figures and job.name not in known:
            yield Difference(group="figures", what=f"job {job.name}", first=_NOTHING, second="measured")


def _keyed(run: _Run) -> dict[str, Any]:
    """Return what the job over all nodes, or where there is none the first, is keyed by."""
    jobs = sorted(run.record.jobs, key=lambda job: job.node is not None)
    key = next((key for job in jobs if (key := key_of(job, run.states))), None)
    return key.model_dump() if key else {}


def _versions(one: _Run, two: _Run) -> Iterator[Difference]:
    keys = [_keyed(one), _keyed(two)]
    shown = {"gpu": "GPU", "image": "image", "rocm": "ROCm", "driver": "amdgpu"}
    before, after = ({word: key.get(name, "") for name, word in shown.items()} for key in keys)
    yield from _differ("versions", before, after)


def _not_equals(one: _Run, two: _Run) -> Iterator[str]:
    keys = [_keyed(one), _keyed(two)]
    names = ("gpu", "recipe", "parameters", "nodes", "scope")
    unlike = [name for name in names if keys[0].get(name) != keys[1].get(name)]
    if unlike and all(keys):
        yield f"the figures are not of equals: another {', '.join(unlike)}"


def _states(one: _Run, two: _Run) -> Iterator[Difference]:
    both = [name for name in one.states if name in two.states]
    pairs = {name: (settled(one.states[name]), settled(two.states[name])) for name in both}
    before = {name: without_missing(first, second) for name, (first, second) in pairs.items()}
    after = {name: without_missing(second, first) for name, (first, second) in pairs.items()}
    yield from sorted(_folded("state", before, after), key=lambda difference: _matters(difference.what))


def _matters(path: str) -> int:
    return next((rank for rank, begin in enumerate(_DATA["matters"]) if path.startswith(begin)), len(_DATA["matters"]))


def _plans(one: _Run, two: _Run) -> Iterator[Difference]:
    jobs = [{job.name: job for job in run.record.jobs} for run in (one, two)]
    for name in [*jobs[0], *(name for name in jobs[1] if name not in jobs[0])]:
        before, after = (_of_plan(by_name.get(name)) for by_name in jobs)
        prefix = "" if name == "together" else f"{name}: "
        yield from _differ("plan", before, after, prefix)
        nodes = [_of_nodes(by_name.get(name)) for by_name in jobs]
        yield from _folded("plan", *nodes)


def _of_plan(job: JobRecord | None) -> dict[str, object]:
    if job is None or job.plan is None:
        return {"job": "none" if job is None else job.error or "no plan"}
    plan: LaunchPlan = job.plan
    return {
        "job": "planned",
        "recipe": plan.recipe,
        **parameters_of(plan),
        "iterations": plan.iterations,
        "nodes": ", ".join(node.name for node in plan.nodes),
        "image": plan.image,
        **{f"expect.{metric}": bound for metric, bound in plan.expect.items()},
    }


def _of_nodes(job: JobRecord | None) -> dict[str, dict[str, str]]:
    """Return what each node of a plan has for itself: its environment, its devices."""
    nodes = job.plan.nodes if job and job.plan else []
    return {
        node.name: {
            "hca": ", ".join(node.hca),
            "gid_index": str(node.gid_index),
            "interface": node.interface,
            **{f"environment.{key}": value for key, value in node.environment.items()},
        }
        for node in nodes
    }


def _rest(one: _Run, two: _Run) -> Iterator[Difference]:
    before, after = (
        {"inventory": run.record.inventory, "desired state": run.record.desired_digest[:12]} for run in (one, two)
    )
    yield from _differ("rest", before, after)
    nodes = [{node.name: {"changes": ", ".join(node.changes)} for node in run.record.nodes} for run in (one, two)]
    yield from _folded("rest", *nodes)
    names = [[node.name for node in run.record.nodes] for run in (one, two)]
    for own, others, first, second in ((*names, "there", _NOTHING), (*reversed(names), _NOTHING, "there")):
        if alone := [name for name in own if name not in others]:
            yield Difference(group="rest", what="node", nodes=alone, first=first, second=second)


def _differ(
    group: Group, before: Mapping[str, object], after: Mapping[str, object], prefix: str = ""
) -> Iterator[Difference]:
    for what in [*before, *(key for key in after if key not in before)]:
        first, second = _text(before.get(what)), _text(after.get(what))
        if first != second:
            yield Difference(group=group, what=prefix + _text(what), first=first, second=second)


def _folded(
    group: Group, before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Iterator[Difference]:
    """Yield the differences of the nodes that are in both, those with the same values as one."""
    both = (node for node in before if node in after)
    changes = ((change, node) for node in both for change in _differ(group, before[node], after[node]))
    same = grouped(((change.what, change.first, change.second), node) for change, node in changes)
    for (what, first, second), nodes in same.items():
        yield Difference(group=group, what=what, nodes=nodes, first=first, second=second)


def _text(value: object) -> str:
    return _NOTHING if value in (None, "") else line(value, _CELL)


THERE = "there"  # of an entry of a list, such as a GPU, at the path that those of its values begin with


def settled(state: NodeState) -> dict[str, str]:
    """Dotted path -> value, of all that stays as it is until somebody or something changes the node."""
    leaves = _leaves(state.model_dump(mode="json"), "")
    return {path: value for path, value in leaves if not any(fnmatchcase(path, pattern) for pattern in CHANGING)}


def without_missing(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    """Return the first node's values, of an entry that the other has not only that it is there."""
    missing = tuple(f"{path}." for path, value in one.items() if value == THERE and path not in two)
    return {path: value for path, value in one.items() if not path.startswith(missing)}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and "unreadable" in value:
        yield path, f"unreadable ({value['unreadable']})"  # its detail may hold times and numbers of processes
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            names = (item[key] for key in _DATA["names"] if isinstance(item, dict) and item.get(key) is not None)
            entry = f"{path}.{next(names, number)}"
            yield entry, THERE
            yield from _leaves(item, entry)
    elif isinstance(value, list):
        yield path, ", ".join(str(item) for item in value)
    else:
        yield path, "" if value is None else str(value)
