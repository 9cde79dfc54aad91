"""The gates of trials: one for each trial over all nodes, and one for each node that a trial names."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal, printable, some
from shakedown.evidence import peers
from shakedown.gates import Gate
from shakedown.state.findings import Verdict
from shakedown.trials.models import NODES, PAIRS, Judged, Matrix, TrialsRecord
from shakedown.trials.workload.registry import PAIRS as ON_PAIRS
from shakedown.trials.workload.registry import trials


def gates(record: TrialsRecord, inventory: str = "") -> list[Gate]:
    """Make the gates of a judged record; `inventory` is for the commands of their remedies."""
    where = shlex.quote(printable(inventory)) if inventory else "INVENTORY"
    makers = [(name, _pairs if trials()[name].on == ON_PAIRS else _nodes) for name in record.asked]
    made = [gate for name, make in makers for gate in make(record, name)]
    remedies = [gate.remedy and gate.remedy.replace(" INVENTORY ", f" {where} ") for gate in made]
    return [gate.model_copy(update={"remedy": remedy}) for gate, remedy in zip(made, remedies, strict=True)]


def named_nodes(record: TrialsRecord) -> dict[str, str]:
    """Return the nodes that trials name: node -> reason."""
    return {gate.node: f"trial {gate.name}: {gate.evidence}" for gate in gates(record) if gate.node is not None}


def _nodes(record: TrialsRecord, name: str) -> Iterator[Gate]:
    figures = [judged for judged in record.judged if judged.trial == name]
    named = grouped((judged.node, judged) for judged in figures if judged.standing == "named")
    same: dict[str, Any] = {"name": name, "job": NODES}
    for node, of_node in named.items():
        slow, why = [_label(judged) for judged in of_node], [f"{_label(judged)}: {judged.why}" for judged in of_node]
        same |= {"actual": some(slow), "evidence": some(why)}
        remedy = f"run shakedown trials INVENTORY --only {name} again; then take {node} out of the job"
        yield Gate(**same, verdict=Verdict.FAIL, wanted="as its peers", remedy=remedy, node=node)
    absent = (reading for reading in record.readings if reading.trial == name and not reading.figure)
    if not figures and any(reading.state == "absent" for reading in absent):
        if _by_name(record, name):
            yield _not_taken(record, name, NODES)
        return  # no node has the parts that this trial measures
    rest = [judged for judged in figures if judged.node not in named]
    unsure = [
        f"{judged.node} {_label(judged)}: {judged.why}"
        for judged in rest
        if judged.standing in ("undecided", "unknown")
    ]
    unsure += _incomplete(record, name, figures, set(named))
    if unsure:
        same |= {"actual": f"{len(unsure)} are not", "evidence": some(unsure)}
        yield Gate(**same, verdict=Verdict.UNKNOWN, wanted="every figure judged", remedy=_remedy(name, rest))
    elif rest:
        parts = counted(len({(judged.node, judged.part) for judged in rest}), "part")
        nodes = counted(len({judged.node for judged in rest}), "node")
        text = f"{counted(len(rest), 'figure')} of {parts} of {nodes}"
        alone = sum(judged.of_peers is None for judged in rest)
        text += f"; {alone} by floors or earlier runs, without peers" if alone else ""
        yield Gate(name=name, verdict=Verdict.OK, wanted="as usual", actual="as usual", evidence=text, job=NODES)


def _by_name(record: TrialsRecord, name: str) -> bool:
    """Return whether a trial was asked for by its name, and not as one of all that any node may have parts for."""
    usual = {trial.name for trial in trials().values() if not trial.by_name}
    return trials()[name].by_name or not usual <= set(record.asked)


def _not_taken(record: TrialsRecord, name: str, job: str) -> Gate:
    """Judge a trial that no node could take."""
    remedy = f"see to what a line names, then run shakedown trials INVENTORY --only {name} again; or leave it out"
    evidence = some(_absent(record, name)) or "no figure"
    same: dict[str, Any] = {"name": name, "job": job, "evidence": evidence, "remedy": remedy}
    return Gate(**same, verdict=Verdict.UNKNOWN, wanted="every figure judged", actual="not measured")


def _remedy(name: str, figures: Sequence[Judged]) -> str:
    """Write what would have the figures of a trial judged."""
    again = f"run shakedown trials INVENTORY --only {name} again"
    too_few = any(judged.standing == "unknown" and judged.peers < peers.LEAST_PEERS for judged in figures)
    if not too_few and not any(peers.DIFFER in judged.why for judged in figures):
        return again
    needed = f"each part needs peers on {peers.LEAST_PEERS} other nodes"
    return f"{again} with more nodes ({needed}), or give floors in trials.floors"


def _incomplete(record: TrialsRecord, name: str, figures: Sequence[Judged], named: Collection[str]) -> Iterator[str]:
    """Write which nodes lack a part that most of their GPU model have, or a repetition: it could be the slow one."""
    incomplete = record.incomplete.get(NODES, {})
    absent = _notes(record, name)
    present: dict[str, set[tuple[str, str]]] = {node: set() for node in record.groups}
    for judged in figures:
        present.setdefault(judged.node, set()).add((judged.part, judged.figure))
    for node, own in present.items():
        if not own:
            reason = incomplete.get(node) or absent.get(node)
            yield f"{node}: no figure{f' ({reason})' if reason else ''}"
            continue
        if node in named:
            continue
        alike = [has for other, has in present.items() if record.groups.get(other, "") == record.groups.get(node, "")]
        usual = Counter(figure for has in alike for figure in has)
        lacks = sorted(figure for figure, count in usual.items() if 2 * count > len(alike) and figure not in own)
        gaps = [f"{' '.join(figure).strip()}: no figure" for figure in lacks]
        gaps += [
            f"{_label(judged)}: {len(judged.values)} of {counted(record.repetitions, 'repetition')}"
            for judged in figures
            if judged.node == node and 0 < len(judged.values) < record.repetitions
        ]
        gaps += [incomplete[node]] if node in incomplete else []
        if gaps:
            yield f"{node}: {some(gaps)}"


def _label(judged: Judged) -> str:
    return f"{judged.part} {judged.figure}".strip()


def _pairs(record: TrialsRecord, name: str) -> Iterator[Gate]:
    own: dict[str, list[str]] = defaultdict(list)
    between: dict[str, list[str]] = defaultdict(list)
    matrices = [matrix for matrix in record.matrices if matrix.trial == name]
    unsure = _absent(record, name)
    if not matrices and record.readings and len(unsure) >= len(record.places):
        if _by_name(record, name):
            yield _not_taken(record, name, PAIRS)
        return  # no node can take this trial
    for matrix in matrices:
        for named in matrix.named:
            text = f"{_title(matrix)}: {named.what}: {named.evidence}"
            text += "; again in a fresh run" if named.confirmed else ""
            if named.kind in ("node", "sender", "receiver"):
                own[named.what].append(text)
            elif named.kind == "unnamed":
                unsure.append(text)
            else:
                between[f"{named.kind} {named.what}"].append(text)
    remedy = f"run shakedown trials INVENTORY --only {name} again; then look at cable, port and switch"
    same: dict[str, Any] = {"name": name, "wanted": "as the others", "job": PAIRS}
    bad = {**same, "verdict": Verdict.FAIL, "remedy": remedy}
    for node, texts in own.items():
        yield Gate(**bad, actual="slow", evidence=some(texts), node=node)
    for what, texts in between.items():
        yield Gate(**bad, actual=what, evidence=some(texts))
    for matrix in matrices:
        if matrix.impossible is not None:
            value = f"{_title(matrix)}: {decimal(matrix.impossible, 4)} {matrix.unit}"
            unsure.append(f"{value} exceeds the physical limit: the measurement is broken")
    read = [matrix for matrix in matrices if matrix.median is not None]
    if not read:
        unsure.append("fewer cells than can be compared: at least three nodes are needed")
        remedy = f"run shakedown trials INVENTORY --only {name} with at least three nodes, or leave it out with --only"
    if unsure:
        yield Gate(**same, verdict=Verdict.UNKNOWN, actual="undecided", evidence=some(unsure), remedy=remedy)
    elif not between:
        text = some([f"{_title(matrix)}: median {decimal(matrix.median, 4)} {matrix.unit}" for matrix in read])
        yield Gate(**same, verdict=Verdict.OK, actual="as the others", evidence=text)


def _notes(record: TrialsRecord, name: str) -> dict[str, str]:
    """Return why nodes cannot take a trial; of one between nodes their partners' reports are left out."""
    absent = [reading for reading in record.readings if reading.trial == name and reading.state == "absent"]
    return {reading.node: reading.note for reading in absent if not reading.note.startswith("on the other node")}


def _absent(record: TrialsRecord, name: str) -> list[str]:
    return [f"{node}: {note}" for node, note in _notes(record, name).items()]


def _title(matrix: Matrix) -> str:
    return f"{matrix.figure}{f' over {matrix.rail}' if matrix.rail else ''}"
