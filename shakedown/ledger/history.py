"""Queries of earlier runs: of all, a node, a part wherever it sat, a recipe; all as JSON lines; each node's newest."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import AfterValidator

from shakedown import hosts
from shakedown.common.frozen import Frozen
from shakedown.common.text import line, name, plain
from shakedown.ledger import LedgerError, schema
from shakedown.ledger.store import Ledger
from shakedown.state.findings import Verdict

LIMIT = 20  # runs, unless asked for more
STAYS = 50  # places of a part at most, the newest
COUNTED = 2000  # runs of a stay that are counted: a part that stays sees every run of its rack
_PLACES = 500  # sets of parts that a part was seen in, the newest: one changes whenever a part or a firmware of it does


Line = Annotated[str, AfterValidator(line)]  # written so, but a file that somebody hands on may hold anything


class JobRow(Frozen):
    """One job of a run. `figures`: metric -> value; `units`: metric -> unit."""

    job: Line
    recipe: Line
    verdict: Verdict
    nodes: int
    figures: dict[str, float] = {}
    units: dict[str, str] = {}


class RunRow(Frozen):
    """One run; with a node or a part asked for, that node's part in it."""

    run_id: Line
    kind: Line
    at: datetime
    finished_at: datetime | None
    verdict: Verdict
    inventory: Line
    nodes: int
    wrong: Line  # the worst findings and gates, by name
    not_ok: int
    kept_at: Line
    jobs: list[JobRow] = []  # over all nodes, and the node's own where one was asked for
    node: Line | None = None
    node_verdict: Verdict | None = None
    node_part: Line | None = None
    node_why: Line | None = None


class Stay(Frozen):
    """Where a part sat: first and last run that saw it there, and how many did. `more`: at least so many."""

    kind: Line
    serial: Line
    model: Line
    firmware: Line
    node: Line
    slot: Line
    first: datetime
    last: datetime
    runs: int
    more: bool = False


class History(Frozen):
    """The answer: runs, the newest first, and of a part where it sat, the last place first."""

    runs: list[RunRow] = []
    stays: list[Stay] = []


class Asked(Frozen):
    """What is asked for; all of it has to hold."""

    node: str | None = None
    part: str | None = None
    recipe: str | None = None
    since: datetime | None = None
    limit: int = LIMIT


def history(ledger: Ledger, request: Asked) -> History:
    """Return earlier runs. Raises LedgerError, also where no run had such a node."""
    with ledger.reading() as connection:
        equipment = _equipment(connection, request.part) if request.part else {}
        holders = {which: _holder(connection, which) for which in equipment}
        runs: list[RunRow] = []
        for node in _nodes(connection, request.node) if request.node else [None]:
            one = request.model_copy(update={"node": node})
            its_own = {which: at for which, at in equipment.items() if node is None or holders[which] == name(node)}
            rows = _with_part(connection, one, its_own) if request.part else _rows(connection, one)
            jobs = _jobs(connection, [(row["run_id"], row.get("node")) for row in rows])
            runs += [_run(row, jobs.get(row["run_id"], [])) for row in rows]
        runs.sort(key=lambda run: (run.at, run.run_id), reverse=True)
        return History(runs=runs[: request.limit], stays=_stays(connection, request, holders))


def _nodes(connection: sa.Connection, words: str) -> list[str]:
    """Return the nodes that the words choose: one by its name at once, others out of all that the ledger has."""
    column = schema.nodes.c.node
    if connection.execute(sa.select(column).where(column == name(words)).limit(1)).first():
        return [words]
    node = every_node().c.node
    try:
        return hosts.select([words], list(connection.scalars(sa.select(node).where(node.is_not(None)))))
    except ValueError as error:
        raise LedgerError(f"node {error}") from error


def every_node() -> sa.CTE:
    """Name every node once, in order: from each name an index leads to the next, past all rows between."""
    node = schema.nodes.c.node
    name = sa.select(sa.func.min(node).label("node")).cte("every_node", recursive=True)
    following = sa.select(sa.func.min(node)).where(node > name.c.node).correlate(name).scalar_subquery()
    return name.union_all(sa.select(following).where(name.c.node.is_not(None)))


def _rows(connection: sa.Connection, request: Asked, equipment: str | None = None) -> list[Any]:
    return list(connection.execute(_runs(request, equipment)).mappings())


def _with_part(connection: sa.Connection, request: Asked, equipment: Mapping[str, int]) -> list[Any]:
    """Return the newest runs with any of these part sets: by index, skipping sets last seen before the runs in hand."""
    rows: list[Any] = []
    for which, last in equipment.items():
        if len(rows) == request.limit and rows[-1]["started"] > last:
            break
        rows += _rows(connection, request, which)
        rows = sorted(rows, key=lambda row: (row["started"], row["run_id"]), reverse=True)[: request.limit]
    return rows


def _runs(request: Asked, equipment: str | None) -> sa.Select[Any]:
    """Return the newest runs. What comes first is what narrows most, by an index that has them in order of time."""
    runs, nodes, jobs, recipes = schema.runs, schema.nodes, schema.jobs, schema.recipes
    by_node = [nodes.c.node == name(request.node)] if request.node else []
    by_node = by_node if equipment is None else [nodes.c.equipment == equipment]  # which one node has
    recipe = name(request.recipe) if request.recipe else None
    found: sa.Select[Any] = sa.select(runs.c.run_id, runs.c.started)
    times, own = runs, []
    if by_node:
        times, own = nodes, [nodes.c.node, nodes.c.verdict.label("node_verdict")]
        own += [nodes.c.part.label("node_part"), nodes.c.why.label("node_why")]
        found = sa.select(nodes.c.run_id, nodes.c.started, *own).where(*by_node)
        if recipe is not None:
            times = recipes
            same = sa.and_(nodes.c.run_id == recipes.c.run_id, nodes.c.node == recipes.c.node)
            found = sa.select(recipes.c.run_id, recipes.c.started, *own).join(nodes, same)
            found = found.where(recipes.c.recipe == recipe, *by_node, *_held(equipment, request.node))
    elif recipe is not None:
        times = jobs
        found = sa.select(jobs.c.run_id, jobs.c.started).where(jobs.c.recipe == recipe).distinct()
    if request.since is not None:
        found = found.where(times.c.started >= int(request.since.timestamp()))
    few = found.order_by(times.c.started.desc(), times.c.run_id.desc()).limit(request.limit).subquery()
    whole = sa.select(runs, *(few.c[column.name] for column in own)).join(few, few.c.run_id == runs.c.run_id)
    return whole.order_by(runs.c.started.desc(), runs.c.run_id.desc())


def _held(equipment: str | None, node: str | None) -> list[sa.ColumnElement[bool]]:
    """Return which rows of `recipes` are worth a look: of the node, or of the part set's owner, between its runs."""
    recipes, seen = schema.recipes.c, schema.nodes.alias()
    if equipment is None:
        return [recipes.node == name(node)]
    holder, first, last = (
        sa.select(what).where(seen.c.equipment == equipment).limit(1).scalar_subquery()
        for what in (seen.c.node, sa.func.min(seen.c.started), sa.func.max(seen.c.started))
    )
    return [recipes.node == holder, recipes.started >= first, recipes.started <= last]


def _run(row: Any, jobs: list[JobRow]) -> RunRow:
    own = {key: value for key, value in row.items() if key in RunRow.model_fields}
    return RunRow(**own, at=row["started"], finished_at=row["finished"], jobs=jobs)


def _jobs(connection: sa.Connection, wanted: Sequence[tuple[str, str | None]]) -> dict[str, list[JobRow]]:
    """Return the jobs over all nodes, and of each node that is asked for its own, by the runs' ids."""
    jobs, figures = schema.jobs, schema.figures
    if not wanted:
        return {}
    nodes = {node for _, node in wanted}
    which = [
        jobs.c.run_id.in_([run_id for run_id, _ in wanted]),
        sa.or_(jobs.c.node.is_(None), jobs.c.node.in_([node for node in nodes if node])),
    ]
    same = sa.and_(figures.c.run_id == jobs.c.run_id, figures.c.job == jobs.c.job)
    columns = (jobs.c.run_id, jobs.c.job, jobs.c.recipe, jobs.c.verdict, jobs.c.nodes)
    query = sa.select(*columns, figures.c.metric, figures.c.value, figures.c.unit).join(figures, same, isouter=True)
    found: dict[str, dict[str, JobRow]] = {}
    for run_id, job, recipe, verdict, count, metric, value, unit in connection.execute(query.where(*which)):
        row = found.setdefault(run_id, {}).setdefault(job, JobRow(job=job, recipe=recipe, verdict=verdict, nodes=count))
        if metric is not None:
            row.figures[metric], row.units[metric] = value, unit
    return {run_id: list(of_run.values()) for run_id, of_run in found.items()}


def _equipment(connection: sa.Connection, part: str) -> dict[str, int]:
    """Return the sets of parts that hold a part, and when each was seen last; the newest."""
    parts, last = schema.parts, _last().label("last")
    found = sa.select(parts.c.equipment, last).where(parts.c.number == name(plain(part))).order_by(last.desc())
    return {which: at for which, at in connection.execute(found.limit(_PLACES)) if at is not None}


def _holder(connection: sa.Connection, equipment: str) -> str:
    nodes = schema.nodes.c
    return str(connection.execute(sa.select(nodes.node).where(nodes.equipment == equipment).limit(1)).scalar_one())


def _last(until: Any = None) -> sa.ScalarSelect[int]:
    """When a set of parts was seen last, up to a time: one look into an index."""
    nodes = schema.nodes
    found = sa.select(sa.func.max(nodes.c.started)).where(nodes.c.equipment == schema.parts.c.equipment)
    return (found if until is None else found.where(nodes.c.started <= until)).correlate(schema.parts).scalar_subquery()


_EVER = 1 << 40  # seconds since 1970
_SEEN = schema.nodes.c
# Made once: to make a statement costs more than its answer. The first is the end of an index, and only the count reads
# what is between, up to COUNTED.
_WITHIN = _SEEN.equipment == sa.bindparam("digest"), _SEEN.started.between(sa.bindparam("since"), sa.bindparam("until"))
_FIRST = sa.select(sa.func.min(_SEEN.started)).where(*_WITHIN)
_SOME = sa.select(_SEEN.started).where(*_WITHIN).limit(sa.bindparam("most")).subquery()
_COUNT = sa.select(sa.func.count()).select_from(_SOME)


def _stays(connection: sa.Connection, request: Asked, equipment: Mapping[str, str]) -> list[Stay]:
    """Return where a part sat, newest first, by first and last runs of part sets: runs between are never read."""
    parts, until = schema.parts, _EVER
    if not equipment or request.part is None:
        return []
    where = parts.c.number == name(plain(request.part)), parts.c.equipment.in_(equipment)
    places = {row["equipment"]: row for row in connection.execute(sa.select(parts).where(*where)).mappings()}
    last = sa.select(_last(sa.bindparam("until")), parts.c.equipment).where(parts.c.equipment.in_(equipment)).distinct()
    stays: list[Stay] = []
    while len(stays) < STAYS:
        seen = connection.execute(last, {"until": until})
        newest = sorted(((at, digest) for at, digest in seen if at is not None), reverse=True)
        if not newest:
            break
        (at, here), *others = newest
        before = others[0][0] if others else -1
        since = before + 1 if before < at else at
        for digest in [here] if before < at else [digest for started, digest in newest if started == at]:
            within = {"digest": digest, "since": since, "until": at}
            first = connection.execute(_FIRST, within).scalar_one()
            count = connection.execute(_COUNT, within | {"most": COUNTED}).scalar_one()
            place = {key: places[digest][key] for key in ("kind", "serial", "model", "firmware", "slot")}
            times: dict[str, Any] = {"first": first, "last": at, "runs": count, "more": count == COUNTED}
            _append(stays, Stay(**place, **times, node=equipment[digest]))
        until = since - 1
    return stays


def _append(stays: list[Stay], stay: Stay) -> None:
    """Return a stay, as one with the next where only something else of the node has changed between them."""
    following = stays[-1] if stays else None
    same = ("kind", "serial", "model", "firmware", "slot", "node")
    if following and all(getattr(following, key) == getattr(stay, key) for key in same):
        runs, more = following.runs + stay.runs, following.more or stay.more
        stays[-1] = following.model_copy(update={"first": stay.first, "runs": runs, "more": more})
    else:
        stays.append(stay)


_PAGE = 200  # runs that are read at once: a writer waits for no more than that


def export(ledger: Ledger) -> Iterator[str]:
    """Yield a JSON object for each run: jobs, figures, nodes, parts, failures, loads. Raises LedgerError."""
    after: tuple[int, str] | None = None
    while True:
        with ledger.reading() as connection:
            page = _page(connection, after)
        yield from (json.dumps(run, default=str) for run in page)
        if len(page) < _PAGE:
            return
        after = (page[-1]["started"], page[-1]["run_id"])


def _page(connection: sa.Connection, after: tuple[int, str] | None) -> list[dict[str, Any]]:
    runs = schema.runs
    place = sa.tuple_(runs.c.started, runs.c.run_id)
    query = sa.select(runs).order_by(runs.c.started, runs.c.run_id).limit(_PAGE)
    query = query if after is None else query.where(place > sa.tuple_(*after))
    found = [dict(row) for row in connection.execute(query).mappings()]
    ids = [run["run_id"] for run in found]
    tables = (schema.jobs, schema.nodes, schema.figures, schema.findings, schema.accusations, schema.proofs)
    jobs, nodes, figures, findings, accusations, proofs = (_of(connection, table, ids) for table in tables)
    equipment = {node["equipment"] for of_run in nodes.values() for node in of_run if node["equipment"]}
    parts = _parts(connection, sorted(equipment))
    for run in found:
        run_id = run["run_id"]
        measured: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for figure in figures[run_id]:
            measured[figure.pop("job")].append(figure)
        run["jobs"] = [{**job, "figures": measured[job["job"]]} for job in jobs[run_id]]
        run["nodes_of_run"] = [{**node, "parts": parts[node.pop("equipment")]} for node in nodes[run_id]]
        run |= {"findings": findings[run_id], "accusations": accusations[run_id], "proofs": proofs[run_id]}
    return found


def _of(connection: sa.Connection, table: sa.Table, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of these runs by their ids, in the order of the table's key."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    query = sa.select(table).where(table.c.run_id.in_(ids)).order_by(*table.primary_key.columns)
    for row in connection.execute(query).mappings():
        found[row["run_id"]].append({key: value for key, value in row.items() if key != "run_id"})
    return found


def _parts(connection: sa.Connection, equipment: list[str]) -> dict[str | None, list[dict[str, Any]]]:
    table = schema.parts
    found: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for at in range(0, len(equipment), 500):
        query = (
            sa.select(table).where(table.c.equipment.in_(equipment[at : at + 500])).order_by(table.c.kind, table.c.slot)
        )
        for row in connection.execute(query).mappings():
            kept = {key: value for key, value in row.items() if key not in ("equipment", "number")}
            found[row["equipment"]].append(kept)
    return found


RUNS = 5  # of one node


class Seen(Frozen):
    """What one run saw of a node."""

    node: Line
    run_id: Line
    at: datetime
    inventory: Line
    verdict: Verdict
    part: Line
    why: Line


def fleet(ledger: Ledger, since: datetime | None = None) -> list[list[Seen]]:
    """Return what the newest runs saw of each node, the newest first. Raise LedgerError."""
    runs, nodes, newest, name = schema.runs, schema.nodes, schema.nodes.alias(), every_node().c.node
    columns = nodes.c.node, nodes.c.run_id, nodes.c.started, nodes.c.verdict, nodes.c.part, nodes.c.why
    times = newest.c.started.desc(), newest.c.run_id.desc()
    few = sa.select(newest.c.run_id).where(newest.c.node == name).order_by(*times).limit(RUNS)
    if since is not None:
        few = few.where(newest.c.started >= int(since.timestamp()))
    of_it = sa.and_(nodes.c.node == name, nodes.c.run_id.in_(few.correlate(name.table)))
    found = sa.select(*columns, runs.c.inventory).select_from(name.table).join(nodes, of_it)
    found = found.join(runs, runs.c.run_id == nodes.c.run_id)
    found = found.order_by(nodes.c.started.desc(), nodes.c.run_id.desc())
    of_node: dict[str, list[Seen]] = {}
    with ledger.reading() as connection:
        for row in connection.execute(found).mappings():
            rest = {key: row[key] for key in ("node", "run_id", "inventory", "verdict", "part", "why")}
            seen = Seen(at=datetime.fromtimestamp(row["started"], UTC), **rest)
            of_node.setdefault(seen.node, []).append(seen)
    return sorted(of_node.values(), key=lambda seen: seen[0].node)
