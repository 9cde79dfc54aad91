"""Reliability of nodes and parts: hours under load, failures, repairs. An hour counts for a run's nodes and their
parts. A failure is an incident that takes a node out of service; reports until a repair or a passed load are the same
one. A part failed where its slot or serial is named. A repair begins a new spell. A serial of two nodes at a time
counts for neither."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from statistics import median, quantiles
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, select

from shakedown.common.frozen import Frozen
from shakedown.ledger import schema
from shakedown.ledger.history import Line
from shakedown.ledger.store import Ledger
from shakedown.service.model import REPAIRS

LEVEL = 0.95  # two-sided


def poisson_below(count: int, mean: float) -> float:
    """Return the odds of fewer than `count` events of `mean`: 1 minus chi-squared (2 * count freedom) at 2 * mean."""
    if count <= 0 or mean < 0:
        return 0.0 if count <= 0 else 1.0
    if mean == 0:
        return 1.0
    return min(1.0, math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(count)))


def chi2_quantile(share: float, count: int) -> float:
    """Return the quantile of chi-squared for 2 * count degrees of freedom."""
    return 2 * _root(lambda mean: 1 - poisson_below(count, mean) - share, 0.0, count + 40 + 20 * math.sqrt(count))


def mtbf_interval(hours: float, failures: int) -> tuple[float, float | None]:
    """Return the 95 % interval of the mean time between failures: 2T/chi2(.975, 2k+2) to 2T/chi2(.025, 2k) if any."""
    tail = (1 - LEVEL) / 2
    high = 2 * hours / chi2_quantile(tail, failures) if failures else None
    return 2 * hours / chi2_quantile(1 - tail, failures + 1), high


def binomial_least(count: int, tries: int, share: float) -> float:
    """Return the odds of `count` or more of `tries`, each with this share."""
    if count <= 0:
        return 1.0
    if share <= 0 or count > tries:
        return 0.0
    if share >= 1:
        return 1.0
    yes, no, whole, found = math.log(share), math.log1p(-share), math.lgamma(tries + 1), 0.0
    for i in range(count, tries + 1):
        odds = whole - math.lgamma(i + 1) - math.lgamma(tries - i + 1) + i * yes + (tries - i) * no
        found += math.exp(odds)
        if i > tries * share and odds < math.log(found or 1) - 40:  # what follows is smaller still
            break
    return min(1.0, found)


def share_interval(count: int, tries: int) -> tuple[float, float]:
    """Return the two-sided interval of a share of which `count` of `tries` were seen."""
    tail, seen = (1 - LEVEL) / 2, count / tries if tries else 0.0
    most = min(1.0, (count + 20 + 10 * math.sqrt(count)) / tries) if tries else 1.0
    low = _root(lambda share: binomial_least(count, tries, share) - tail, 0.0, seen) if count else 0.0
    high = _root(lambda share: binomial_least(count + 1, tries, share) - 1 + tail, seen, most) if count < tries else 1.0
    return low, high


def false_discovery(odds: Sequence[float]) -> list[float]:
    """Return for each test the smallest rate of false discoveries at which it is one."""
    order = sorted(range(len(odds)), key=lambda index: odds[index], reverse=True)
    least, found = 1.0, [1.0] * len(odds)
    for rank, index in enumerate(order):
        least = min(least, odds[index] * len(odds) / (len(odds) - rank))
        found[index] = least
    return found


def lemon_odds(hours: Mapping[str, float], failures: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return p and q of each unit: whether its share of all failures is what its share of all hours explains."""
    total, count = math.fsum(hours.values()), sum(failures.values())
    seen = ((failures.get(unit, 0), held) for unit, held in hours.items())
    odds = [binomial_least(failed, count, held / total) if total else 1.0 for failed, held in seen]
    return dict(zip(hours, zip(odds, false_discovery(odds), strict=True), strict=True))


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


NODE, KINDS = "node", ("node", "board", "gpu", "nic")
LEMON = 0.05
"""The largest rate of false discoveries (q) of a unit that is named a lemon."""
RETURN_S = 7 * 24 * 3600
"""A repair has held where the node passes a load and has no incident for as long."""


class Rate(Frozen):
    """Nodes, or parts of one kind: mean time between failures and interval; without a failure a lower bound alone."""

    kind: Line
    units: int
    hours: float
    failures: int
    mtbf_h: float | None
    low_h: float | None
    high_h: float | None


class Repairs(Frozen):
    """Times from a node's failure to the next passed load, and which repairs have held."""

    repaired: int
    open: int
    median_h: float | None
    p90_h: float | None
    attempts: int  # of which the outcome is known
    held: int
    low: float  # of the share that held
    high: float


class Unit(Frozen):
    """One node or part against the rest of its kind: how many times their rate of failures (`ratio`) it has."""

    kind: Line
    unit: Line
    nodes: list[Line]  # where it was under load
    hours: float
    failures: int
    spells: int
    ratio: float | None  # None: the rest has no failure
    low: float | None
    high: float | None
    p: float
    q: float
    lemon: bool


class Claimed(Frozen):
    """A serial that several nodes claim: between the first and the last run of one of them, another had it."""

    kind: Line
    unit: Line
    nodes: list[Line]


class Reliability(Frozen):
    """The whole answer."""

    rates: list[Rate]
    repairs: Repairs
    units: list[Unit]
    claimed: list[Claimed] = []


class Event(NamedTuple):
    """An event of a node or a part: "failed", "passed" or "repair"."""

    at: int
    order: int  # of events of one second: a repair, a pass, a failure
    what: str


class Course:
    """The spells of one node or part, out of its events in order."""

    def __init__(self, events: Iterable[Event], now: int) -> None:
        self.failures, self.repairs = 0, 0
        self.times: list[int] = []  # from a failure to the next passed load, seconds
        self.held: list[bool] = []
        self.since: int | None = None  # of an open failure
        waiting: int | None = None  # the load that a repair led to
        repaired = False
        for event in sorted(events):
            if waiting is not None and event.at - waiting > RETURN_S:
                self.held.append(True)
                waiting = None
            if event.what == "failed":
                if waiting is not None or (repaired and self.since is not None):
                    self.held.append(False)
                    waiting = None
                self.failures += self.since is None or repaired
                self.since = event.at if self.since is None else self.since
                repaired = False
            elif event.what == "repair" and self.since is not None:
                self.repairs += not repaired  # several steps of one escalation without a load between
                repaired = True
            elif event.what == "passed" and self.since is not None:
                self.times.append(event.at - self.since)
                waiting = event.at if repaired else None
                self.since, repaired = None, False
        if waiting is not None and now - waiting > RETURN_S:
            self.held.append(True)


def reliability(ledger: Ledger, now: int, since: datetime | None = None) -> Reliability:
    """Return what the ledger shows of reliability. Raises LedgerError."""
    with ledger.reading() as connection:
        hours, spans = _exposure(connection, since)
        parts = _parts(connection, {equipment for _, equipment in spans if equipment})
        claimed = list(_claimed(spans, parts))
        doubtful = {(claim.kind, claim.unit) for claim in claimed}
        parts = {name: [part for part in own if (part[0], part[2]) not in doubtful] for name, own in parts.items()}
        courses = _courses(connection, parts, now, since)
    held: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in KINDS}
    places: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for (node, equipment), spent in hours.items():
        for kind, unit in {(NODE, node), *((kind, serial) for kind, _, serial in parts.get(equipment, ()))}:
            held[kind][unit] += spent
            places[kind, unit][node] = None
    rates: list[Rate] = []
    units: list[Unit] = []
    for kind in KINDS:
        failures = {unit: courses[kind, unit].failures for unit in held[kind] if (kind, unit) in courses}
        if held[kind]:
            rates.append(_rate(kind, held[kind], failures))
            units += _units(kind, held[kind], failures, places, courses)
    units.sort(key=lambda unit: (unit.q, unit.p, unit.kind, unit.unit))
    return Reliability(rates=rates, repairs=_repairs(courses), units=units, claimed=claimed)


def _since(column: Any, since: datetime | None) -> list[ColumnElement[bool]]:
    return [] if since is None else [column >= int(since.timestamp())]


Held = tuple[str, str | None]  # a node, and a set of parts that it had


def _exposure(connection: Connection, since: datetime | None) -> tuple[dict[Held, float], dict[Held, tuple[int, int]]]:
    """Return the hours of each node with each set of parts, and their first and last begin; no others' runs."""
    runs, nodes = schema.runs, schema.nodes
    loaded = and_(nodes.c.part.in_(("trained", "measured")), runs.c.finished.is_not(None))
    spent = func.sum(case((loaded, runs.c.finished - runs.c.started)))
    columns = (nodes.c.node, nodes.c.equipment, spent, func.min(nodes.c.started), func.max(nodes.c.started))
    query = select(*columns).join(runs, runs.c.run_id == nodes.c.run_id)
    query = query.where(~runs.c.run_id.contains("/"), *_since(nodes.c.started, since))
    found = connection.execute(query.group_by(nodes.c.node, nodes.c.equipment)).all()
    hours = {(node, parts): max(int(total), 0) / 3600 for node, parts, total, _, _ in found if total is not None}
    return hours, {(node, parts): (first, last) for node, parts, _, first, last in found}


def _claimed(
    spans: Mapping[Held, tuple[int, int]], parts: Mapping[str | None, list[tuple[str, str, str]]]
) -> Iterator[Claimed]:
    """Yield the serials that nodes have had at one time. A part that was moved has one node after the other."""
    of_unit: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
    for (node, equipment), (first, last) in spans.items():
        for kind, _, serial in parts.get(equipment, ()):
            before = of_unit[kind, serial].get(node, (first, last))
            of_unit[kind, serial][node] = min(first, before[0]), max(last, before[1])
    for (kind, serial), of_node in of_unit.items():
        times = sorted(of_node.values())
        latest = accumulate((last for _, last in times), max)
        if any(first <= last for (first, _), last in zip(times[1:], latest, strict=False)):
            yield Claimed(kind=kind, unit=serial, nodes=sorted(of_node))


def _parts(connection: Connection, wanted: set[str]) -> dict[str | None, list[tuple[str, str, str]]]:
    """Return kind, slot and serial of the parts of each set."""
    found: dict[str | None, list[tuple[str, str, str]]] = defaultdict(list)
    parts = schema.parts
    columns = (parts.c.equipment, parts.c.kind, parts.c.slot, parts.c.number)
    for equipment, kind, slot, number in connection.execute(select(*columns).where(parts.c.number != "")):
        if equipment in wanted and kind in KINDS:
            found[equipment].append((kind, slot, number))
    return found


def _courses(
    connection: Connection, parts: Mapping[str | None, list[tuple[str, str, str]]], now: int, since: datetime | None
) -> dict[tuple[str, str], Course]:
    """Return the course of each node and part that has failed."""
    events: dict[tuple[str, str], list[Event]] = defaultdict(list)
    failed: dict[str, set[tuple[str, str]]] = defaultdict(set)  # node -> itself and its parts
    table = schema.accusations
    for node, at, equipment, what in _of_runs(connection, table, since, table.c.drains == 1, table.c.what):
        for unit in {(NODE, node), *_named(what, parts.get(equipment, ()))}:
            events[unit].append(Event(at, 2, "failed"))
            failed[node].add(unit)
    passed = schema.proofs
    for node, at, equipment in _of_runs(connection, passed, since, passed.c.node.in_(select(table.c.node))):
        held = {(NODE, node), *((kind, serial) for kind, _, serial in parts.get(equipment, ()))}
        for unit in failed.get(node, set()) & held:
            events[unit].append(Event(at, 1, "passed"))
    steps = schema.steps
    query = select(steps.c.node, steps.c.at).where(steps.c.done == "begun", steps.c.rung.in_(REPAIRS))
    for node, at in connection.execute(query.where(*_since(steps.c.at, since))):
        for unit in failed.get(node, set()):
            events[unit].append(Event(at, 0, "repair"))
    return {unit: Course(found, now) for unit, found in events.items()}


def _of_runs(
    connection: Connection, table: Table, since: datetime | None, only: ColumnElement[bool], *columns: Any
) -> Iterator[Any]:
    """Yield node, time and set of parts of the rows that runs have left."""
    nodes = schema.nodes
    same = and_(nodes.c.run_id == table.c.run_id, nodes.c.node == table.c.node)
    query = select(table.c.node, table.c.at, nodes.c.equipment, *columns).join(nodes, same)
    yield from connection.execute(query.where(only, *_since(table.c.at, since)))


def _named(text: str, parts: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the parts that a text names by their slot or serial, as a word."""
    words = set(re.findall(r"[\w:.-]+", text.lower()))
    for kind, slot, serial in parts:
        if (slot and slot.lower() in words) or serial.lower() in words:
            yield kind, serial


def _rate(kind: str, hours: Mapping[str, float], failures: Mapping[str, int]) -> Rate:
    spent, count = math.fsum(hours.values()), sum(failures.values())
    low, high = mtbf_interval(spent, count) if spent else (None, None)
    between = spent / count if count else None
    return Rate(kind=kind, units=len(hours), hours=spent, failures=count, mtbf_h=between, low_h=low, high_h=high)


def _units(
    kind: str,
    hours: Mapping[str, float],
    failures: Mapping[str, int],
    places: Mapping[tuple[str, str], Iterable[str]],
    courses: Mapping[tuple[str, str], Course],
) -> Iterator[Unit]:
    """Yield the units of a kind that have failed, against the rest."""
    odds, total, count = lemon_odds(hours, failures), math.fsum(hours.values()), sum(failures.values())
    for unit, failed in failures.items():
        rest = (total - hours[unit]) / hours[unit] if hours[unit] else 0.0
        low, high = (share / (1 - share) * rest if share < 1 else None for share in share_interval(failed, count))
        others = count - failed
        p, q = odds[unit]
        yield Unit(
            kind=kind,
            unit=unit,
            nodes=list(places[kind, unit]),
            hours=hours[unit],
            failures=failed,
            spells=courses[kind, unit].repairs + 1,
            ratio=failed / others * rest if others else None,
            low=low,
            high=high,
            p=p,
            q=q,
            lemon=q <= LEMON and failed > 1,
        )


def _repairs(courses: Mapping[tuple[str, str], Course]) -> Repairs:
    nodes = [course for (kind, _), course in courses.items() if kind == NODE]
    times = sorted(seconds / 3600 for course in nodes for seconds in course.times)
    held = Counter(outcome for course in nodes for outcome in course.held)
    low, high = share_interval(held[True], held.total()) if held else (0.0, 1.0)
    ninth = quantiles(times, n=10, method="inclusive")[-1] if len(times) > 1 else next(iter(times), None)
    return Repairs(
        repaired=len(times),
        open=sum(course.since is not None for course in nodes),
        median_h=median(times) if times else None,
        p90_h=ninth,
        attempts=held.total(),
        held=held[True],
        low=low,
        high=high,
    )
