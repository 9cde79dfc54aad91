"""From readings to judged figures, matrices and gates. Pure: the same when a run ends and, offline, ever after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from shakedown.common.text import counted
from shakedown.evidence import peers
from shakedown.gates import Gate
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import MINIMUM, Baseline, Past
from shakedown.gates.model import some
from shakedown.state.findings import Verdict
from shakedown.trials import confirm, matrix
from shakedown.trials.models import NODES, PAIRS, Judged, Limits, Matrix, Reading, Standing, TrialsRecord
from shakedown.trials.reading import read_log
from shakedown.trials.references import MEASURED, references
from shakedown.trials.workload.registry import LOWER, Trial, trials
from shakedown.trials.workload.registry import PAIRS as BETWEEN

__all__ = ["gates", "judged", "named_nodes", "read_log"]

Key = tuple[str, str, str, str]  # group, trial, figure, kind of part


def metric(trial: str, figure: str, part: str) -> str:
    """As the ledger names a figure of a part of a node."""
    return f"{trial}.{figure}.{part}"


def judged(record: TrialsRecord, pasts: Mapping[str, Past] | None = None) -> TrialsRecord:
    """The record with its figures judged: every part against its peers, its node's own earlier runs (`pasts`), the
    floors and the ceilings; and what that names against a fresh run."""
    first = [reading for reading in record.readings if not reading.fresh]
    fresh = [reading for reading in record.readings if reading.fresh]
    figures, matrices = _figures(record, first, pasts or {}), _matrices(record, first, record.places)
    again = _matrices(record, fresh, record.places_again)
    if record.confirm:
        figures = confirm.figures(figures, _figures(record, fresh, pasts or {}))
        matrices = confirm.matrices(matrices, again)
    return record.model_copy(update={"judged": figures, "matrices": matrices, "matrices_again": again})


def _figures(record: TrialsRecord, readings: Sequence[Reading], pasts: Mapping[str, Past]) -> list[Judged]:
    known = trials()
    single = [reading for reading in readings if reading.trial in known and known[reading.trial].on != BETWEEN]
    values: dict[Key, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for reading in single:
        if reading.value is not None and reading.state == "ok" and known[reading.trial].unit(reading.figure):
            key = (record.groups.get(reading.node, ""), reading.trial, reading.figure, _kind(reading.part))
            values[key][reading.node, reading.part].append(reading.value)
    missed: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for reading in single:
        if reading.missed:
            missed[reading.node, reading.part, reading.trial, reading.figure].append(reading.note)
    found: list[Judged] = []
    for (group, name, figure, _), its in values.items():
        judged_of = _of(record, group, known[name], figure, its, pasts)
        found += [_with_its_own(each, missed[each.node, each.part, each.trial, each.figure]) for each in judged_of]
    order = list(record.groups)
    found.sort(key=lambda each: order.index(each.node) if each.node in order else len(order))
    return [*found, *_bad(record, single)]


def _with_its_own(each: Judged, missed: Sequence[str]) -> Judged:
    """What the tool that measured says of it: too little in every repetition is so for us too."""
    if not missed or each.standing == "named" or each.median is None:
        return each
    always = len(missed) >= len(each.values)
    why = "; ".join(filter(None, (each.why, f"{missed[0]}, and has {each.median:.6g}")))
    why += "" if always else f", in {len(missed)} of {counted(len(each.values), 'repetition')}"
    return each.model_copy(update={"standing": "named" if always else "undecided", "why": why})


def _kind(part: str) -> str:
    return part.rstrip("0123456789")


def _of(
    record: TrialsRecord,
    group: str,
    trial: Trial,
    figure: str,
    values: Mapping[tuple[str, str], Sequence[float]],
    pasts: Mapping[str, Past],
) -> Iterator[Judged]:
    """One figure of one trial on all parts that do the same work."""
    unit, limits = trial.unit(figure) or "", record.limits
    name = f"{trial.name}.{figure}"
    lower = unit in LOWER
    owners = {part: part[0] for part in values}
    places = peers.places(values, lower_is_better=lower, slower=limits.slower, owners=owners)
    published, ceiling = references().floor(group, name), references().ceiling(group, name)
    bound = limits.floors.get(name, published.bound if published else None)
    source = "the desired state" if name in limits.floors else published.told if published else ""
    disputed = published.disputed if published and name not in limits.floors else ""
    for (node, part), its in values.items():
        place = places[node, part] if (node, part) in places else peers.Place(0)
        before = _before(pasts.get(node), metric(trial.name, figure, part), median(its), lower)
        standing, why = _standing(place, limits, its, bound, ceiling, lower, disputed)
        standing, why = _with_history(standing, why, before)
        yield Judged(
            trial=trial.name,
            figure=figure,
            node=node,
            part=part,
            unit=unit,
            values=list(its),
            median=median(its),
            peers=place.peers,
            of_peers=place.of_peers,
            shortfall=None if place.of_peers is None else place.shortfall,
            earlier=before.count if before else 0,
            floor=bound,
            floor_source=source,
            ceiling=ceiling,
            standing=standing,
            why=why,
        )


def _standing(
    place: peers.Place,
    limits: Limits,
    values: Sequence[float],
    floor: float | None,
    ceiling: float | None,
    lower: bool,
    disputed: str,
) -> tuple[Standing, str]:
    """How a figure stands by all that it is held against; what names it comes first."""
    own = median(values)
    if ceiling is not None and max(values) > ceiling:
        return (
            "unknown",
            f"{max(values):.6g} is more than is physically possible ({ceiling:.6g}): the measurement is broken",
        )
    beyond = floor is not None and (own > floor if lower else own < floor)
    if beyond and not disputed:
        return "named", f"{own:.6g}, where {'at most' if lower else 'at least'} {floor:.6g} is asked for"
    standing, why = place.standing(limits.slower)
    told = f"; {own:.6g} misses the published {floor:.6g}, which is disputed: {disputed}" if beyond else ""
    if standing == "unknown" and floor is not None and not beyond and not disputed:
        return "ok", f"{why}; it meets the floor"
    return standing, f"{why}{told}".removeprefix("; ")  # type: ignore[return-value]


def _before(past: Past | None, name: str, value: float, lower: bool) -> Baseline | None:
    """A figure against those of the same part in earlier runs; None: there are not enough of them."""
    if past is None or past.problem or len(past.of_metric(name)) < MINIMUM:
        return None
    return compare(past, name, value, "at most" if lower else "at least")


def _with_history(standing: Standing, why: str, before: Baseline | None) -> tuple[Standing, str]:
    """What earlier runs add. They decide where no peers do; against peers that have the same they only raise doubt,
    since what changed for all is no part."""
    if before is None or standing == "named":
        return standing, why
    own = f"against its own {counted(before.count, 'earlier run')}: {before}"
    told = "; ".join(filter(None, (why, own)))
    if before.lost:
        return ("named" if standing == "unknown" else "undecided"), told
    return ("ok", told) if standing == "unknown" and "broken" not in why else (standing, why)


def _bad(record: TrialsRecord, readings: Sequence[Reading]) -> Iterator[Judged]:
    """Parts with wrong results, and parts that gave none."""
    bad: dict[tuple[str, str, str, str, str], list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.state in ("wrong", "timeout", "crashed"):
            bad[reading.node, reading.part, reading.trial, reading.figure, reading.state].append(reading)
    for (node, part, name, figure, state), its in bad.items():
        if state == "wrong":
            counts = [each.wrong for each in its if each.wrong]
            times = f"{len(its)} of {counted(record.repetitions, 'repetition')}"
            why = f"wrong results in {times} ({some(counts)} of them): data is corrupted"
        else:
            said = {"timeout": "it did not answer", "crashed": "its process ended"}[state]
            why = f"no figure: {said} ({its[0].note})" if its[0].note else f"no figure: {said}"
        unit = trials()[name].unit(figure) or ""
        yield Judged(
            trial=name,
            figure=figure,
            node=node,
            part=part,
            unit=unit,
            values=[],
            median=None,
            standing="named",
            wrong_results=state == "wrong",
            why=why,
        )


def _matrices(record: TrialsRecord, readings: Sequence[Reading], nodes: Sequence[str]) -> list[Matrix]:
    """The readings between nodes, by trial, figure and rail."""
    known = trials()
    cells: dict[tuple[str, str, str], dict[matrix.Cell, list[float]]] = defaultdict(lambda: defaultdict(list))
    asked: dict[tuple[str, str], set[matrix.Cell]] = defaultdict(set)
    for reading in readings:
        of_links = reading.trial in known and known[reading.trial].on == BETWEEN
        cell = _cell(reading, nodes) if of_links and reading.state != "absent" else None
        if cell is None:
            continue
        asked[reading.trial, reading.rail or ""].add(cell)
        if reading.figure and reading.value is not None and reading.state == "ok":
            cells[reading.trial, reading.figure, reading.rail or ""][cell].append(reading.value)
    found = []
    for (name, rail), of_rail in asked.items():
        for figure, unit in known[name].figures.items():
            found.append(_matrix(record, name, figure, unit, rail, nodes, cells[name, figure, rail], of_rail))
    return sorted(found, key=lambda each: (list(known).index(each.trial), _order(known[each.trial], each.figure)))


def _order(trial: Trial, figure: str) -> int:
    return list(trial.figures).index(figure)


def _cell(reading: Reading, nodes: Sequence[str]) -> matrix.Cell | None:
    """Sender and receiver. A node tells of what it sends, and of nothing else."""
    sender, _, receiver = reading.part.partition(">")
    if not (sender.isdigit() and receiver.isdigit() and int(sender) < len(nodes) and int(receiver) < len(nodes)):
        return None
    cell = nodes[int(sender)], nodes[int(receiver)]
    return cell if cell[0] == reading.node and cell[0] != cell[1] else None


def _matrix(
    record: TrialsRecord,
    trial: str,
    figure: str,
    unit: str,
    rail: str,
    nodes: Sequence[str],
    cells: Mapping[matrix.Cell, Sequence[float]],
    asked: set[matrix.Cell],
) -> Matrix:
    # What one end told as begun and the other as failed is missing both ways.
    missing = sorted((asked | {(b, a) for a, b in asked}) - set(cells))
    read = matrix.read(
        cells,
        figure=figure,
        lower_is_better=unit in LOWER,
        slower=record.limits.slower,
        nodes=nodes,
        blocks=record.limits.blocks,
        missing=missing,
        floor=record.limits.floors.get(f"{trial}.{figure}"),
    )
    ceiling = record.limits.ceilings.get(f"{trial}.{figure}")
    highest = max((value for values in cells.values() for value in values), default=0.0)
    shown: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for (sender, receiver), values in cells.items():
        shown[sender][receiver] = list(values)
    return Matrix(
        trial=trial,
        figure=figure,
        unit=unit,
        rail=rail,
        nodes=list(nodes),
        cells=dict(shown),
        median=read.median,
        slow=[list(cell) for cell in read.slow],
        missing=[list(cell) for cell in missing],
        named=read.named,
        impossible=highest if ceiling is not None and highest > ceiling * MEASURED else None,
    )


# -- gates -------------------------------------------------------------------------------------------------------------


def gates(record: TrialsRecord) -> list[Gate]:
    """One gate for each trial over all nodes, and one for each node that it names."""
    found: list[Gate] = []
    for name in record.asked:
        found += _between(record, name) if trials()[name].on == BETWEEN else _of_trial(record, name)
    return found


def _of_trial(record: TrialsRecord, name: str) -> Iterator[Gate]:
    its = [each for each in record.judged if each.trial == name]
    named: dict[str, list[Judged]] = defaultdict(list)
    for each in its:
        if each.standing == "named":
            named[each.node].append(each)
    for node, figures in named.items():
        yield Gate(
            name=name,
            verdict=Verdict.FAIL,
            wanted="as its peers",
            actual=some([_figure(each) for each in figures]),
            evidence=some([f"{_figure(each)}: {each.why}" for each in figures]),
            remedy=f"shakedown trials INVENTORY --only {name} again; then take {node} out of the job and look at it",
            job=NODES,
            node=node,
        )
    if not its and any(each.trial == name and each.state == "absent" and not each.figure for each in record.readings):
        return  # nothing that this trial is of is there, on any node
    rest = [each for each in its if each.node not in named]
    unsure = [f"{each.node} {_figure(each)}: {each.why}" for each in rest if each.standing in ("undecided", "unknown")]
    unsure += _not_whole(record, its, set(named))
    if unsure:
        count = f"{len(unsure)} are not"
        yield Gate(
            name=name,
            verdict=Verdict.UNKNOWN,
            wanted="every figure judged",
            actual=count,
            evidence=some(unsure),
            remedy=_remedy(name, rest),
            job=NODES,
        )
    elif rest:
        parts = counted(len({(each.node, each.part) for each in rest}), "part")
        text = f"{counted(len(rest), 'figure')} of {parts} of {counted(len({each.node for each in rest}), 'node')}"
        alone = sum(each.of_peers is None for each in rest)
        text += f"; {alone} by floors or earlier runs, without peers" if alone else ""
        yield Gate(name=name, verdict=Verdict.OK, wanted="as usual", actual="as usual", evidence=text, job=NODES)


def _remedy(name: str, figures: Sequence[Judged]) -> str:
    """What would have the figures of a trial judged."""
    again = f"shakedown trials INVENTORY --only {name} again"
    too_few = any(each.standing == "unknown" and each.peers < peers.LEAST_PEERS for each in figures)
    if not too_few and not any(peers.DIFFER in each.why for each in figures):
        return again
    needed = f"each part needs peers on {peers.LEAST_PEERS} other nodes"
    return f"{again} with more nodes ({needed}), or give floors in trials.floors"


def _not_whole(record: TrialsRecord, its: Sequence[Judged], named: Collection[str]) -> Iterator[str]:
    """Nodes of which something is missing: a part or a repetition whose reading was lost could be the one that is
    slow. A part is asked for where most nodes of the same GPUs have it."""
    incomplete = record.incomplete.get(NODES, {})
    own: dict[str, set[tuple[str, str]]] = {node: set() for node in record.groups}
    for each in its:
        own.setdefault(each.node, set()).add((each.part, each.figure))
    for node, has in own.items():
        if not has:
            why = incomplete.get(node)
            yield f"{node}: no figure{f' ({why})' if why else ''}"
            continue
        if node in named:
            continue
        alike = [own[other] for other in own if record.groups.get(other, "") == record.groups.get(node, "")]
        usual = Counter(figure for figures in alike for figure in figures)
        lacks = sorted(figure for figure, count in usual.items() if 2 * count > len(alike) and figure not in has)
        few = [each for each in its if each.node == node and each.values and len(each.values) < record.repetitions]
        said = [f"{' '.join(figure).strip()}: no figure" for figure in lacks]
        said += [f"{_figure(each)}: {len(each.values)} of {counted(record.repetitions, 'repetition')}" for each in few]
        said += [incomplete[node]] if node in incomplete else []
        if said:
            yield f"{node}: {some(said)}"


def _figure(each: Judged) -> str:
    return f"{each.part} {each.figure}".strip()


def _between(record: TrialsRecord, name: str) -> Iterator[Gate]:
    own: dict[str, list[str]] = defaultdict(list)
    between: dict[str, list[str]] = defaultdict(list)
    unsure, matrices = _absent(record, name), [each for each in record.matrices if each.trial == name]
    if not matrices and record.readings and len(unsure) >= len(record.places):
        return  # it is not there, on any node
    for matrix_of in matrices:
        for each in matrix_of.named:
            text = f"{_of_matrix(matrix_of)}: {each.what}: {each.evidence}"
            text += "; again in a fresh run" if each.confirmed else ""
            if each.kind in ("node", "sender", "receiver"):
                own[each.what].append(text)
            elif each.kind == "unnamed":
                unsure.append(text)
            else:
                between[f"{each.kind} {each.what}"].append(text)
    remedy = f"shakedown trials INVENTORY --only {name} again; then look at cable, port and switch"
    same: dict[str, Any] = {"name": name, "wanted": "as the others", "job": PAIRS}
    bad = {**same, "verdict": Verdict.FAIL, "remedy": remedy}
    for node, texts in own.items():
        yield Gate(**bad, actual="slow", evidence=some(texts), node=node)
    for what, texts in between.items():
        yield Gate(**bad, actual=what, evidence=some(texts))
    for each_matrix in matrices:
        if each_matrix.impossible is not None:
            text = (
                f"{_of_matrix(each_matrix)}: {each_matrix.impossible:.4g} {each_matrix.unit} is more than is physically"
            )
            unsure.append(f"{text} possible: the measurement is broken")
    read = [each for each in matrices if each.median is not None]
    if not read:
        unsure.append("fewer cells than can be compared: at least three nodes are needed")
        remedy = f"shakedown trials INVENTORY --only {name} with at least three nodes, or leave it out with --only"
    if unsure:
        yield Gate(**same, verdict=Verdict.UNKNOWN, actual="undecided", evidence=some(unsure), remedy=remedy)
    elif not between:
        text = some([f"{_of_matrix(each)}: median {each.median:.4g} {each.unit}" for each in read])
        yield Gate(**same, verdict=Verdict.OK, actual="as the others", evidence=text)


def _absent(record: TrialsRecord, name: str) -> list[str]:
    """Nodes on which a trial between nodes could not be taken, with why; what its partners say of it is the same."""
    said = {each.node: each.note for each in record.readings if each.trial == name and each.state == "absent"}
    own = {node: why for node, why in said.items() if not why.startswith("on the other node")}
    return [f"{node}: {why}" for node, why in own.items()]


def _of_matrix(each: Matrix) -> str:
    return f"{each.figure}{f' over {each.rail}' if each.rail else ''}"


def to_confirm(record: TrialsRecord) -> dict[str, list[str]]:
    """Node -> the trials that name it by itself, and would measure it again. What is wrong was compared with what it
    had to be, and is no matter of speed: it stays."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in record.judged:
        if each.standing == "named" and not confirm.is_proof(each) and each.trial not in found[each.node]:
            found[each.node].append(each.trial)
    return {node: names for node, names in found.items() if names}


def suspects(record: TrialsRecord) -> dict[str, list[int]]:
    """Trial between nodes -> the places of what stands out of its rounds."""
    found: dict[str, set[str]] = defaultdict(set)
    for each in record.matrices:
        for named in each.named:
            found[each.trial] |= set(named.nodes) if named.kind != "unnamed" else set()
    return {
        name: [place for place, node in enumerate(record.places) if node in nodes]
        for name, nodes in found.items()
        if nodes
    }


def named_nodes(record: TrialsRecord) -> dict[str, str]:
    """The nodes that trials name, with why."""
    return {gate.node: f"trial {gate.name}: {gate.evidence}" for gate in gates(record) if gate.node is not None}
