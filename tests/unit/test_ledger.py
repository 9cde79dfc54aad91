"""The ledger: the same over SQLite and over a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from shakedown.findings import Verdict
from shakedown.ledger import schema
from shakedown.ledger.history import Asked, history
from shakedown.ledger.jobs import key_of
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.runs import JobRecord, RunDirectory, RunNode, RunRecord
from shakedown.smoke.figures import METRICS, Figure, Figures
from shakedown.smoke.gates import Gate
from shakedown.state import NodeState
from tests.plans import rack
from tests.postgresql import server
from tests.states import healthy, with_

RECIPE = "llama3.1-8b-fp8"
PLAN = rack(RECIPE, nodes=2)
STATES = {"node01": healthy(1), "node02": healthy(2)}
SERIAL = "000000000000a103"  # of node01's GPU 3


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    if request.param == "sqlite":
        yield open_ledger(tmp_path / "ledger.sqlite")
        return
    found = open_ledger(request.getfixturevalue("postgresql"))
    with found.writing() as connection:
        schema.metadata.drop_all(connection)
    yield found


def a_run(
    root: Path,
    number: int,
    states: Mapping[str, NodeState] = STATES,
    value: float = 400.0,
    verdict: Verdict = Verdict.OK,
    **more: Any,
) -> RunDirectory:
    """Run `number` of a rack, an hour each, as it lies in the runs' folder."""
    at = datetime(2026, 11, 1 + number // 20, number % 20, tzinfo=UTC)
    run_id = more.pop("run_id", f"{at:%Y%m%dT%H%M%S}-{number:06x}")
    directory = RunDirectory.create(run_id, root)
    figure = Figure(metric=METRICS["throughput_per_gpu"], value=value, mean=value, spread=1.0, count=40)
    plan = PLAN.model_copy(update={"nodes": [node for node in PLAN.nodes if node.name in states]})
    job = JobRecord(plan=plan, figures=Figures(steady=40, throughput_per_gpu=figure))
    record = RunRecord(
        run_id=run_id,
        started_at=at.isoformat(),
        finished_at=at.replace(minute=30).isoformat(),
        inventory="rack.py",
        desired_digest="0" * 64,
        verdict=verdict,
        nodes=[RunNode(name=name, verdict=verdict, part="trained") for name in states],
        gates=[Gate(name="throughput_per_gpu", verdict=verdict, wanted=380.0, actual=value)],
        jobs=[job],
    ).model_copy(update=more)
    directory.save(record, {})
    for name, state in states.items():
        directory.write(f"states/{name}.json", state.model_dump_json())
    return directory


def rows(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that is in it."""
    with ledger.reading() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in schema.metadata.sorted_tables
        }


def test_a_run_that_is_added_again_is_there_once_and_a_ledger_made_anew_is_the_same(
    ledger: Ledger, tmp_path: Path
) -> None:
    runs = [a_run(tmp_path / "runs", number) for number in range(3)]
    for run in [*runs, runs[1]]:
        assert ledger.add(run) == []
    kept = rows(ledger)
    assert {name: len(found) for name, found in kept.items()} == {
        "ledger_version": 1, "runs": 3, "jobs": 3, "figures": 3, "nodes": 6, "findings": 0, "parts": 2 * 17,
    }  # fmt: skip
    with ledger.writing() as connection:
        schema.metadata.drop_all(connection)
    for run in reversed(runs):
        ledger.add(run)
    assert rows(ledger) == kept


def test_a_baseline_has_the_passed_runs_that_ended_before(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    newer = {name: with_(state, {"rocm_version": "6.4.2"}) for name, state in STATES.items()}
    runs = [
        a_run(root, 1, value=401.0),
        a_run(root, 2, value=300.0, verdict=Verdict.FAIL),
        a_run(root, 3, states=newer, value=403.0),
        a_run(root, 4, finished_at=None),
        a_run(root, 5, value=405.0),
    ]
    for run in reversed(runs):
        ledger.add(run)
    job = runs[0].load().jobs[0]
    key = key_of(job, STATES)
    assert key is not None
    found = ledger.earlier(key, before=runs[4].path.name)
    assert [earlier.figures for earlier in found] == [{"throughput_per_gpu": 401.0}, {"throughput_per_gpu": 403.0}]
    assert [earlier.epoch == key.epoch for earlier in found] == [True, False]
    assert found[0].at == datetime(2026, 11, 1, 1, tzinfo=UTC)
    assert len(ledger.earlier(key)) == 3
    assert [each.run_id for each in ledger.earlier(key, before="20261101T020000-ffffff")] == [runs[0].path.name]
    other = key_of(job.model_copy(update={"node": "node01"}), STATES)
    assert other is not None and ledger.earlier(other) == []


def test_a_part_is_followed_to_another_slot_and_node(ledger: Ledger, tmp_path: Path) -> None:
    spare, root = "00000000000000ff", tmp_path / "runs"
    here = STATES
    swapped = {
        "node01": with_(healthy(1), {"gpus.3.serial": spare}),
        "node02": with_(healthy(2), {"gpus.5.serial": SERIAL}),
    }
    firmware = {**swapped, "node02": with_(swapped["node02"], {"rdma.0.firmware": "232.0.0.0"})}
    for number, states in enumerate([here, here, swapped, firmware, here]):
        ledger.add(a_run(root, number, states=states))
    found = history(ledger, Asked(part="0x" + SERIAL.upper()))
    assert [(stay.node, stay.slot, stay.runs, stay.first.hour, stay.last.hour) for stay in found.stays] == [
        ("node01", "0000:04:00.0", 1, 4, 4),
        ("node02", "0000:06:00.0", 2, 2, 3),
        ("node01", "0000:04:00.0", 2, 0, 1),
    ]
    assert [(row.at.hour, row.node) for row in found.runs] == [
        (4, "node01"), (3, "node02"), (2, "node02"), (1, "node01"), (0, "node01"),
    ]  # fmt: skip
    assert history(ledger, Asked(part="b83f:d203:0002:0000")).stays[0].kind == "nic"
    assert history(ledger, Asked(part="CN0NODE02")).stays[0].node == "node02"
    assert history(ledger, Asked(part="no such")).runs == []


def test_history_of_a_node_a_recipe_and_a_time(ledger: Ledger, tmp_path: Path) -> None:
    one = {"node01": STATES["node01"]}
    runs = [a_run(tmp_path, 1), a_run(tmp_path, 2, states=one), a_run(tmp_path, 3, jobs=[], verdict=Verdict.FAIL)]
    for run in runs:
        ledger.add(run)

    def hours(**asked: Any) -> list[int]:
        return [row.at.hour for row in history(ledger, Asked(**asked)).runs]

    assert hours() == [3, 2, 1]
    assert hours(limit=2) == [3, 2]
    assert hours(node="node02") == [3, 1]
    assert hours(node="node02", recipe=RECIPE) == [1]
    assert hours(recipe=RECIPE) == [2, 1]
    assert hours(since=datetime(2026, 11, 1, 2, tzinfo=UTC)) == [3, 2]
    assert hours(node="node", recipe=RECIPE) == []
    (row,) = history(ledger, Asked(node="node01", recipe=RECIPE, limit=1)).runs
    assert (row.node_part, row.jobs[0].figures) == ("trained", {"throughput_per_gpu": 400.0})
    assert row.kept_at.endswith(str(runs[1].path))
