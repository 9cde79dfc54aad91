"""From readings to judged figures and matrices. Pure: the same when a run ends and, offline, at any later time. Only
what a second, fresh run names again is named; the record keeps both runs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal, some
from shakedown.evidence import peers
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import MINIMUM, Baseline, Past
from shakedown.trials.matrix import Cell, read
from shakedown.trials.models import MEASURED, Judged, Limits, Matrix, Named, Reading, Standing, TrialsRecord, references
from shakedown.trials.workload.registry import LOWER, PAIRS, Trial, trials

_OF_NODES = ("node", "sender", "receiver")
_NO_FRESH_RUN = "no fresh run confirms it"


def is_conclusive(judged: Judged) -> bool:
    """Return whether a figure needs no second run: a wrong result stays wrong, even if the next one is right."""
    return judged.standing == "named" and judged.wrong_results


def to_confirm(record: TrialsRecord) -> dict[str, list[str]]:
    """Return the trials of single nodes to measure again: node -> the trials that name it."""
    doubtful = (judged for judged in record.judged if judged.standing == "named" and not is_conclusive(judged))
    return grouped(dict.fromkeys((judged.node, judged.trial) for judged in doubtful))


def suspects(record: TrialsRecord) -> dict[str, list[int]]:
    """Return the nodes to measure again with others: trial between nodes -> their places in the rounds."""
    suspected: dict[str, set[str]] = defaultdict(set)
    for matrix in record.matrices:
        for named in matrix.named:
            suspected[matrix.trial] |= set(named.nodes) if named.kind != "unnamed" else set()
    return {
        name: [place for place, node in enumerate(record.places) if node in nodes]
        for name, nodes in suspected.items()
        if nodes
    }


def confirm_figures(first: Sequence[Judged], fresh: Sequence[Judged]) -> list[Judged]:
    """Return the figures of the first run; those that the fresh run does not name again become undecided."""
    again = {_key(judged): judged for judged in fresh}
    measured = {(judged.node, judged.trial) for judged in fresh}
    result = []
    for judged in first:
        if judged.standing != "named" or is_conclusive(judged):
            result.append(judged)
            continue
        second = again.get(_key(judged))
        if second is not None and second.standing == "named":
            reason = f"{judged.why}; again in a fresh run: {second.why}"
            change: dict[str, object] = {"why": reason, "again": second.values}
        elif (judged.node, judged.trial) not in measured:
            change = {"standing": "undecided", "why": f"{judged.why}; {_NO_FRESH_RUN}"}
        else:
            values = second.values if second is not None else []
            text = decimal(second.median) if second is not None and second.median is not None else "its figures came"
            text += f", {second.why}" if second is not None and second.why else ""
            change = {"standing": "undecided", "why": f"{judged.why}; not so in a fresh run: {text}", "again": values}
        result.append(judged.model_copy(update=change))
    # Wrong results that only the fresh run had are as conclusive.
    reported = {_key(judged) for judged in first if is_conclusive(judged)}
    return [*result, *(judged for judged in fresh if is_conclusive(judged) and _key(judged) not in reported)]


def _key(judged: Judged) -> tuple[str, str, str, str]:
    return judged.node, judged.part, judged.trial, judged.figure


def confirm_matrices(first: Sequence[Matrix], fresh: Sequence[Matrix]) -> list[Matrix]:
    """Return the matrices of the first run; causes that the fresh run does not name again become unnamed."""
    again = {(matrix.trial, matrix.figure, matrix.rail): matrix for matrix in fresh}
    seconds = [(matrix, again.get((matrix.trial, matrix.figure, matrix.rail))) for matrix in first]
    return [
        matrix.model_copy(update={"named": [_confirm(named, second) for named in matrix.named]})
        for matrix, second in seconds
    ]


def _confirm(named: Named, second: Matrix | None) -> Named:
    if named.kind == "unnamed":
        return named
    if second is not None and any(same(named, other) for other in second.named):
        return named.model_copy(update={"confirmed": True})
    if second is None or second.median is None:
        reason = _NO_FRESH_RUN
    else:
        others = ", ".join(f"{other.kind} {other.what}" for other in second.named) or "nothing"
        reason = f"not so in a fresh run, which names {others}"
    change = {"kind": "unnamed", "confirmed": False, "evidence": f"{named.evidence}; {reason}"}
    return named.model_copy(update={**change, "what": f"{named.kind} {named.what}"})


def same(named: Named, other: Named) -> bool:
    """Return whether two runs name the same cause: a node, its sends and its receives count as the same."""
    if named.kind in _OF_NODES:
        return other.kind in _OF_NODES and other.what == named.what
    return other.kind == named.kind and set(other.nodes) == set(named.nodes)


Key = tuple[str, str, str, str]  # group, trial, figure, kind of part


def metric(trial: str, figure: str, part: str) -> str:
    """Return the ledger's name for a figure of a part of a node."""
    return f"{trial}.{figure}.{part}"


def judge_record(record: TrialsRecord, pasts: Mapping[str, Past] | None = None) -> TrialsRecord:
    """Judge figures against peers, earlier runs (`pasts`), floors, ceilings; with `confirm`, the fresh run."""
    first = [reading for reading in record.readings if not reading.fresh]
    fresh = [reading for reading in record.readings if reading.fresh]
    figures, matrices = _figures(record, first, pasts or {}), _matrices(record, first, record.places)
    again = _matrices(record, fresh, record.places_again)
    if record.confirm:
        figures = confirm_figures(figures, _figures(record, fresh, pasts or {}))
        matrices = confirm_matrices(matrices, again)
    return record.model_copy(update={"judged": figures, "matrices": matrices, "matrices_again": again})


def _figures(record: TrialsRecord, readings: Sequence[Reading], pasts: Mapping[str, Past]) -> list[Judged]:
    registered = trials()
    single = [reading for reading in readings if reading.trial in registered and registered[reading.trial].on != PAIRS]
    values: dict[Key, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    missed: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for reading in single:
        if reading.value is not None and reading.state == "ok" and registered[reading.trial].unit(reading.figure):
            kind = reading.part.rstrip("0123456789")
            key = (record.groups.get(reading.node, ""), reading.trial, reading.figure, kind)
            values[key][reading.node, reading.part].append(reading.value)
        if reading.missed:
            missed[reading.node, reading.part, reading.trial, reading.figure].append(reading.note)
    result: list[Judged] = []
    for (group, name, figure, _), of_parts in values.items():
        for judged in _judge_figure(record, group, registered[name], figure, of_parts, pasts):
            result.append(_with_tool(judged, missed[judged.node, judged.part, judged.trial, judged.figure]))
    order = list(record.groups)
    result.sort(key=lambda judged: order.index(judged.node) if judged.node in order else len(order))
    return [*result, *_broken(record, single)]


def _judge_figure(
    record: TrialsRecord,
    group: str,
    trial: Trial,
    figure: str,
    values: Mapping[tuple[str, str], Sequence[float]],
    pasts: Mapping[str, Past],
) -> Iterator[Judged]:
    """Judge one figure of one trial on all parts that do the same work."""
    unit, limits = trial.unit(figure) or "", record.limits
    name = f"{trial.name}.{figure}"
    lower = unit in LOWER
    owners = {part: part[0] for part in values}
    places = peers.places(values, lower_is_better=lower, slower=limits.slower, owners=owners)
    published, ceiling = references().floor(group, name), references().ceiling(group, name)
    bound = limits.floors.get(name, published.bound if published else None)
    source = "the desired state" if name in limits.floors else published.origin if published else ""
    disputed = published.disputed if published and name not in limits.floors else ""
    for (node, part), repetitions in values.items():
        place = places.get((node, part), peers.Place(0))
        before = _history(pasts.get(node), metric(trial.name, figure, part), median(repetitions), lower)
        standing, reason = _standing(place, limits, repetitions, bound, ceiling, lower, disputed)
        standing, reason = _with_history(standing, reason, before)
        yield Judged(
            trial=trial.name,
            figure=figure,
            node=node,
            part=part,
            unit=unit,
            values=list(repetitions),
            median=median(repetitions),
            peers=place.peers,
            of_peers=place.of_peers,
            shortfall=None if place.of_peers is None else place.shortfall,
            earlier=before.count if before else 0,
            floor=bound,
            floor_source=source,
            ceiling=ceiling,
            standing=standing,
            why=reason,
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
    """Judge a figure by ceiling, floor and peers, in this order."""
    own = median(values)
    if ceiling is not None and max(values) > ceiling:
        beyond_physics = f"{decimal(max(values))} exceeds the physical limit ({decimal(ceiling)})"
        return "unknown", f"{beyond_physics}: the measurement is broken"
    beyond = floor is not None and (own > floor if lower else own < floor)
    if beyond and not disputed:
        return "named", f"{decimal(own)}, where {'at most' if lower else 'at least'} {decimal(floor)} is wanted"
    standing, reason = place.standing(limits.slower)
    dispute = f"; {decimal(own)} misses the published {decimal(floor)}, which is disputed: {disputed}" if beyond else ""
    if standing == "unknown" and floor is not None and not beyond and not disputed:
        return "ok", f"{reason}; it meets the floor"
    return standing, f"{reason}{dispute}".removeprefix("; ")  # type: ignore[return-value]


def _history(past: Past | None, name: str, value: float, lower: bool) -> Baseline | None:
    """Compare a figure with the same part's earlier runs. Returns None where these are too few."""
    if past is None or past.problem or len(past.of_metric(name)) < MINIMUM:
        return None
    return compare(past, name, value, "at most" if lower else "at least")


def _with_history(standing: Standing, reason: str, before: Baseline | None) -> tuple[Standing, str]:
    """Add earlier runs: they decide where peers cannot; else they only raise doubt, as all nodes may have changed."""
    if before is None or standing == "named":
        return standing, reason
    own = f"against its own {counted(before.count, 'earlier run')}: {before}"
    message = "; ".join(filter(None, (reason, own)))
    if before.lost:
        return ("named" if standing == "unknown" else "undecided"), message
    return ("ok", message) if standing == "unknown" and "broken" not in reason else (standing, reason)


def _with_tool(judged: Judged, missed: Sequence[str]) -> Judged:
    """Add the verdict of the tool that measured: a target missed in every repetition names the part."""
    if not missed or judged.standing == "named" or judged.median is None:
        return judged
    always = len(missed) >= len(judged.values)
    reason = "; ".join(filter(None, (judged.why, f"{missed[0]}, and has {decimal(judged.median)}")))
    reason += "" if always else f", in {len(missed)} of {counted(len(judged.values), 'repetition')}"
    return judged.model_copy(update={"standing": "named" if always else "undecided", "why": reason})


def _broken(record: TrialsRecord, readings: Sequence[Reading]) -> Iterator[Judged]:
    """Name parts with wrong results, and parts without a figure."""
    broken = grouped(
        ((reading.node, reading.part, reading.trial, reading.figure, reading.state), reading)
        for reading in readings
        if reading.state in ("wrong", "timeout", "crashed")
    )
    for (node, part, name, figure, state), same in broken.items():
        if state == "wrong":
            counts = [reading.wrong for reading in same if reading.wrong]
            times = f"{len(same)} of {counted(record.repetitions, 'repetition')}"
            reason = f"wrong results in {times} ({some(counts)} of them): data is corrupted"
        else:
            end = {"timeout": "its process did not answer", "crashed": "its process ended"}[state]
            reason = f"no figure: {end} ({same[0].note})" if same[0].note else f"no figure: {end}"
        yield Judged(
            trial=name,
            figure=figure,
            node=node,
            part=part,
            unit=trials()[name].unit(figure) or "",
            values=[],
            median=None,
            standing="named",
            wrong_results=state == "wrong",
            why=reason,
        )


def _matrices(record: TrialsRecord, readings: Sequence[Reading], nodes: Sequence[str]) -> list[Matrix]:
    """Collect the readings between nodes by trial, figure and rail, and judge each matrix."""
    registered = trials()
    cells: dict[tuple[str, str, str], dict[Cell, list[float]]] = defaultdict(lambda: defaultdict(list))
    tried: dict[tuple[str, str], set[Cell]] = defaultdict(set)
    for reading in readings:
        of_pairs = reading.trial in registered and registered[reading.trial].on == PAIRS
        cell = _cell(reading, nodes) if of_pairs and reading.state != "absent" else None
        if cell is None:
            continue
        tried[reading.trial, reading.rail or ""].add(cell)
        if reading.figure and reading.value is not None and reading.state == "ok":
            cells[reading.trial, reading.figure, reading.rail or ""][cell].append(reading.value)
    return [
        _matrix(record, name, figure, rail, nodes, cells[name, figure, rail], tried[name, rail])
        for name in registered
        for figure in registered[name].figures
        for rail in [rail for trial, rail in tried if trial == name]
    ]


def _cell(reading: Reading, nodes: Sequence[str]) -> Cell | None:
    """Return sender and receiver of a reading. A node reports only cells in which it sends."""
    sender, _, receiver = reading.part.partition(">")
    if not (sender.isdigit() and receiver.isdigit() and int(sender) < len(nodes) and int(receiver) < len(nodes)):
        return None
    cell = nodes[int(sender)], nodes[int(receiver)]
    return cell if cell[0] == reading.node and cell[0] != cell[1] else None


def _matrix(
    record: TrialsRecord,
    trial: str,
    figure: str,
    rail: str,
    nodes: Sequence[str],
    cells: Mapping[Cell, Sequence[float]],
    tried: set[Cell],
) -> Matrix:
    unit, name = trials()[trial].figures[figure], f"{trial}.{figure}"
    # A cell that one end began and the other reported as failed is missing both ways.
    missing = sorted((tried | {(b, a) for a, b in tried}) - set(cells))
    found = read(
        cells,
        figure=figure,
        lower_is_better=unit in LOWER,
        slower=record.limits.slower,
        nodes=nodes,
        blocks=record.limits.blocks,
        missing=missing,
        floor=record.limits.floors.get(name),
    )
    ceiling = record.limits.ceilings.get(name)
    highest = max((value for values in cells.values() for value in values), default=0.0)
    by_sender: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for (sender, receiver), values in cells.items():
        by_sender[sender][receiver] = list(values)
    return Matrix(
        trial=trial,
        figure=figure,
        unit=unit,
        rail=rail,
        nodes=list(nodes),
        cells=dict(by_sender),
        median=found.median,
        slow=[list(cell) for cell in found.slow],
        missing=[list(cell) for cell in missing],
        named=found.named,
        impossible=highest if ceiling is not None and highest > ceiling * MEASURED else None,
    )
