"""The ledger: the same over SQLite and over a real PostgreSQL."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
import stat
import threading
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import URL, Connection, event, select, text

from shakedown import gates
from shakedown.common.text import file_name
from shakedown.gates import Gate, Observed
from shakedown.gates.baselines.model import Past
from shakedown.gates.observed import Expected, Speed
from shakedown.ledger import entry, schema, store
from shakedown.ledger import history as ledger_history
from shakedown.ledger.claims import known_of, write
from shakedown.ledger.claims import parts_of as changes_of
from shakedown.ledger.compared import Wanted, keep, key_of, past_of
from shakedown.ledger.entry import entry_of, parts_of
from shakedown.ledger.history import Asked, fleet, history
from shakedown.ledger.store import Ledger, LedgerError, Place, open_ledger, place_of
from shakedown.logs.figures import Figure, Figures
from shakedown.logs.metrics import METRICS
from shakedown.report import past
from shakedown.report.formats import Remembered
from shakedown.runs.directory import JobRecord, RunDirectory, RunNode, RunRecord
from shakedown.service.model import Step
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState
from shakedown.trials.models import NODES, Judged
from tests.plans import rack
from tests.states import healthy, with_

RECIPE = "llama3.1-8b-fp8"
PLAN = rack(RECIPE, nodes=2)
STATES = {"node01": healthy(1), "node02": healthy(2)}
SERIAL = "000000000000a103"  # of node01's GPU 3


def a_run(
    root: Path,
    number: int,
    states: Mapping[str, NodeState] = STATES,
    value: float = 400.0,
    verdict: Verdict = Verdict.OK,
    gate: str = "throughput_per_gpu",
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
        gates=[Gate(name=gate, verdict=verdict, wanted=380.0, actual=value)],
        jobs=[job],
    ).model_copy(update=more)
    directory.save(record, {})
    for name, state in states.items():
        directory.write(f"states/{file_name(name)}.json", state.model_dump_json())
    return directory


def with_mean(value: float) -> dict[str, float]:
    """The figures that the ledger keeps of one throughput: its median and its mean."""
    return {"throughput_per_gpu": value, "throughput_per_gpu.mean": value}


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
        "ledger_version": 1, "runs": 3, "jobs": 3, "figures": 6, "nodes": 6, "recipes": 6, "findings": 0,
        "parts": 2 * 17, "accusations": 0, "proofs": 6, "steps": 0, "claims": 0,
    }  # fmt: skip
    with ledger.writing() as connection:
        schema.metadata.drop_all(connection)
    for run in reversed(runs):
        ledger.add(run)
    assert rows(ledger) == kept


def test_each_figure_is_kept_with_its_mean_but_the_memory_and_nothing_that_is_no_number(
    ledger: Ledger, tmp_path: Path
) -> None:
    figures = {
        name: Figure(metric=METRICS[name], value=value, mean=mean, spread=spread, count=40)
        for name, value, mean, spread in [
            ("throughput_per_gpu", 400.0, 398.0, 0.0),
            ("tokens_per_gpu", 9000.0, 1e300, 1e300),
            ("elapsed_time_per_iteration", 1e300, 1.0, 1.0),
            ("mem_usage", 180.0, 179.0, 1.0),
        ]
    }
    run = a_run(tmp_path / "runs", 1, jobs=[JobRecord(plan=PLAN, figures=Figures(steady=40, **figures))])
    file = run.path / "run.json"
    file.write_text(file.read_text().replace("1e+300", "1e999"))
    assert ledger.add(run) == []
    columns = schema.figures.c
    with ledger.reading() as connection:
        kept = connection.execute(select(columns.metric, columns.value, columns.spread)).all()
    assert sorted(map(tuple, kept)) == [
        ("elapsed_time_per_iteration.mean", 1.0, None),
        ("mem_usage", 180.0, 1.0),
        ("throughput_per_gpu", 400.0, 0.0),
        ("throughput_per_gpu.mean", 398.0, None),
        ("tokens_per_gpu", 9000.0, None),
    ]


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
    assert [earlier.figures for earlier in found] == [with_mean(401.0), with_mean(403.0)]
    assert [earlier.epoch == key.epoch for earlier in found] == [True, False]
    assert found[0].at == datetime(2026, 11, 1, 1, tzinfo=UTC)
    assert len(ledger.earlier(key)) == 3
    assert [each.run_id for each in ledger.earlier(key, limit=1)] == [runs[4].path.name], "the newest"
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
    few = history(ledger, Asked(part=SERIAL, limit=3)).runs
    assert [row.at.hour for row in few] == [4, 3, 2], "the newest, wherever it sat"
    ledger.add(a_run(root, 25, states=swapped))
    ledger.add(a_run(root, 45, states=here))
    (change,) = changes_of(ledger, ["node01"])["node01"]
    assert change.startswith(f"2026-11-03 gpu 0000:04:00.0: {SERIAL} "), "on the day on which it came back"
    assert f"(was {spare} " in change
    assert history(ledger, Asked(part="b83f:d203:0002:0000")).stays[0].kind == "nic"
    assert history(ledger, Asked(part="CN0NODE02")).stays[0].node == "node02"
    assert history(ledger, Asked(part="no such")).runs == []


def test_the_runs_of_a_place_are_counted_up_to_a_bound(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count reads an index entry for each run: a million of them for a part that stays where it is."""
    swapped = {"node01": STATES["node02"], "node02": STATES["node01"]}
    newer = {"node01": with_(healthy(1), {"rdma.0.firmware": "232.0.0.0"}), "node02": STATES["node02"]}
    for number, states in enumerate([STATES, STATES, STATES, newer, swapped]):
        ledger.add(a_run(tmp_path / "runs", number, states=states))
    whole = history(ledger, Asked(part=SERIAL)).stays
    assert [(stay.node, stay.runs, stay.more) for stay in whole] == [("node02", 1, False), ("node01", 4, False)]
    monkeypatch.setattr(ledger_history, "COUNTED", 2)
    found = history(ledger, Asked(part=SERIAL))
    bounded = [("node02", 1, False), ("node01", 3, True)]  # of two sets of the node's parts, one after the other
    assert [(stay.node, stay.runs, stay.more) for stay in found.stays] == bounded
    assert [stay.first for stay in found.stays] == [stay.first for stay in whole]
    console = Console(width=200, file=io.StringIO())
    console.print(*past.history(Remembered(history=found)), sep="\n")
    assert ">= 3" in str(console.file.getvalue())  # type: ignore[attr-defined]


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
    with pytest.raises(LedgerError, match="node node: no such host; the nearest: node0"):
        hours(node="node", recipe=RECIPE)
    both = history(ledger, Asked(node="node[01-02]", recipe=RECIPE)).runs
    assert {row.node for row in both} == {"node01", "node02"}
    assert [row.at for row in both] == sorted((row.at for row in both), reverse=True)
    assert len(history(ledger, Asked(node="node*", limit=3)).runs) == 3
    (row,) = history(ledger, Asked(node="node01", recipe=RECIPE, limit=1)).runs
    assert (row.node_part, row.jobs[0].figures) == ("trained", with_mean(400.0))
    assert row.kept_at.endswith(str(runs[1].path))


def test_a_run_s_jobs_are_told_and_judged_each_by_itself(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    run = a_run(tmp_path / "runs", 1)
    record = run.load()
    (together,) = record.jobs
    alone = [together.model_copy(update={"node": name}) for name in STATES]
    record.jobs = [together, *alone]
    record.gates += [Gate(name="loss", verdict=Verdict.FAIL, node="node01", job=alone[0].name)]
    record.findings = [Finding(name="advice", node="node01", verdict=Verdict.WARN)]
    ledger.add(run, record)

    def jobs(**asked: Any) -> dict[str, str]:
        (row,) = history(ledger, Asked(**asked)).runs
        return {job.job: job.verdict for job in row.jobs}

    assert jobs() == {"together": "ok"}
    assert jobs(node="node01") == {"together": "ok", alone[0].name: "fail"}
    key = key_of(together, STATES)
    assert key is not None and len(ledger.earlier(key)) == 1, "another job's failure is not this one's"
    assert history(ledger, Asked()).runs[0].wrong == "loss", "advice is not wrong"


@pytest.mark.parametrize(
    ("values", "ceiling", "standing", "kept"),
    [
        ([9.0, 10.0], 10.0, "ok", True),
        ([9.0, 10.5], 10.0, "ok", False),
        ([9.0, 10.5], None, "unknown", True),
        ([9.0, 10.0], 10.0, "named", False),
    ],
)
def test_a_trials_figure_is_history_where_a_machine_can_have_it_and_it_did_not_stand_out(
    values: list[float], ceiling: float | None, standing: Any, kept: bool
) -> None:
    part = Judged(
        trial="gemm", figure="bf16", node="node01", part="gpu0", unit="TFLOP/s", values=values, median=9.5,
        ceiling=ceiling, standing=standing,
    )  # fmt: skip
    record: Any = SimpleNamespace(trials=SimpleNamespace(judged=[part]))
    for node in ("node01", "node02"):
        rows = list(entry._of_trials(record, JobRecord(node=node, trials=NODES)))
        assert [row["value"] for row in rows] == [9.5] * (kept and node == "node01")


def test_what_is_wrong_is_kept_with_what_was_wanted_of_it(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    findings = [Finding(name="kfd", node="node01", verdict=Verdict.FAIL, actual=0)]
    ledger.add(a_run(tmp_path / "runs", 1, verdict=Verdict.FAIL, findings=findings))
    columns = schema.findings.c
    with ledger.reading() as connection:
        kept = connection.execute(select(columns.name, columns.wanted, columns.actual)).all()
    assert sorted(map(tuple, kept)) == [("kfd", "", "0"), ("throughput_per_gpu", "380.0", "400.0")]


def test_an_export_in_pages_has_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    runs = [a_run(tmp_path / "runs", number) for number in (1, 2, 3)]
    for run in runs:
        ledger.add(run)
    monkeypatch.setattr(ledger_history, "_PAGE", 2)
    assert [json.loads(line)["run_id"] for line in ledger_history.export(ledger)] == [run.path.name for run in runs]


def test_what_has_no_number_of_its_own_is_no_part() -> None:
    whole = parts_of(healthy(1))
    blank = parts_of(with_(healthy(1), {"system.board_serial": "To Be Filled By O.E.M."}))
    assert {part.kind for part in whole} - {part.kind for part in blank} == {"board"}
    virtual = parts_of(with_(healthy(1), {"rdma.0.physical_function": "0000:05:00.0"}))
    assert len(virtual) == len(whole) - 1, "a virtual function is its card's"


def test_several_writers_at_once_lose_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """Each has a connection of its own, two of them the same run, all of them the same new parts."""
    runs = [a_run(tmp_path / "runs", number) for number in (1, 2, 3)]
    failed: list[BaseException] = []

    def write(run: RunDirectory) -> None:
        try:
            Ledger(ledger.place, wait_s=60).add(run)
        except BaseException as error:  # a thread's own end is not the test's
            failed.append(error)

    threads = [threading.Thread(target=write, args=(run,)) for run in (*runs, runs[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {name: len(found) for name, found in rows(ledger).items()} == {
        "ledger_version": 1, "runs": 3, "jobs": 3, "figures": 6, "nodes": 6, "recipes": 6, "findings": 0,
        "parts": 2 * 17, "accusations": 0, "proofs": 6, "steps": 0, "claims": 0,
    }  # fmt: skip


def test_of_much_that_is_wrong_the_worst_is_kept_and_named_first(ledger: Ledger, tmp_path: Path) -> None:
    run = a_run(tmp_path, 1)
    record = run.load()
    drift = [Finding(name=f"drift{number}", node="node01", verdict=Verdict.DRIFT) for number in range(1000)]
    record.findings = [*drift, Finding(name="gpu", node="node01", verdict=Verdict.FAIL)]
    run.save(record, {})
    assert ledger.add(run) == []
    (row,) = history(ledger, Asked(node="node01")).runs
    assert row.wrong.startswith("gpu, drift0, ")
    kept = rows(ledger)["findings"]
    assert len(kept) == 1000 and sum("gpu" in finding for finding in kept) == 1


def test_what_a_node_says_is_kept_as_one_line_and_found_by_it(ledger: Ledger, tmp_path: Path) -> None:
    name = "<script>'; drop table runs;--\x1b[31m\n\x00" + "n" * 600
    state = with_(healthy(), {"gpus.0.firmware": {"smc": "\x00\ufffd" + "f" * 5000}, "gpus.0.model": "x" * 5000})
    run = a_run(tmp_path, 1, states={name: state})
    record = run.load()
    finding = Finding(name="gpu", node=name, verdict=Verdict.FAIL, actual="\x00" * 9000, evidence="\x9b")
    record.findings = [finding, *[finding.model_copy(update={"actual": "\x00"})] * 1499]
    record.nodes[0].why = "a\nb\x1b]0;title\x07"
    run.save(record, {})
    assert ledger.add(run) == []
    (row,) = history(ledger, Asked(node=name)).runs
    assert row.node is not None and row.node.startswith("<script>'; drop table runs;--") and row.node.isprintable()
    assert row.node_why is not None and row.node_why.isprintable()
    assert (row.not_ok, row.wrong) == (1500, "gpu")
    assert len(rows(ledger)["findings"]) == 1000


@pytest.mark.parametrize(("by", "remedy"), [(1, "update shakedown"), (-1, "put it aside")])
def test_a_ledger_of_another_version_is_refused(ledger: Ledger, tmp_path: Path, by: int, remedy: str) -> None:
    run = a_run(tmp_path / "runs", 1)
    ledger.add(run)
    with ledger.writing() as connection:
        connection.execute(text(f"UPDATE ledger_version SET version = {schema.VERSION + by}"))
    for act in (lambda: history(ledger, Asked()), lambda: ledger.add(run)):
        with pytest.raises(LedgerError, match=f"this shakedown knows {schema.VERSION}: {remedy}"):
            act()
    if by < 0 and ledger.place.path is not None:  # the remedy, done
        ledger.place.path.rename(tmp_path / "aside.sqlite")
        anew = Ledger(ledger.place)
        anew.add(run)
        assert len(history(anew, Asked()).runs) == 1


def test_steps_are_kept_in_the_order_in_which_they_were_taken(ledger: Ledger, tmp_path: Path) -> None:
    ledger.add(a_run(tmp_path / "runs", 1))
    taken = [
        Step(node="node1", at=at, done=done, rung="mend", who="root@here:1")
        for at, done in ((7, "begun"), (7, "ended"))
    ]
    for step in taken:
        write(ledger, step)
    assert known_of(ledger, ["node1"], 8)["node1"].steps == tuple(taken), "in the order in which they were taken"
    assert len(history(ledger, Asked()).runs) == 1


QUESTIONS = (
    Asked(),
    Asked(since=datetime(2026, 11, 1, 3, tzinfo=UTC)),
    Asked(node="node01"),
    Asked(node="node[01-02]"),
    Asked(node="node01", recipe=RECIPE),
    Asked(node="node01", recipe="never"),
    Asked(node="node01", recipe=RECIPE, since=datetime(2026, 11, 1, 3, tzinfo=UTC)),
    Asked(recipe=RECIPE),
    Asked(part=SERIAL),
    Asked(part=SERIAL, node="node01"),
    Asked(part=SERIAL, recipe=RECIPE),
    Asked(part=SERIAL, node="node02", recipe="never"),
)


def test_no_question_reads_a_whole_table(ledger: Ledger, tmp_path: Path) -> None:
    """A ledger of a million runs answers as one of three does. The newest runs come in the order of an index."""
    swapped = {"node01": STATES["node02"], "node02": STATES["node01"]}
    for number in range(6):
        ledger.add(a_run(tmp_path / "runs", number, states=swapped if number in (2, 3) else STATES))
    statements: list[tuple[str, Any]] = []
    seen = lambda _c, _cursor, statement, values, _context, _many: statements.append((statement, values))  # noqa: E731
    event.listen(ledger._engine(), "before_cursor_execute", seen)
    for question in QUESTIONS:
        history(ledger, question)
    assert {entry.node for seen in fleet(ledger) for entry in seen} == {"node01", "node02"}
    event.remove(ledger._engine(), "before_cursor_execute", seen)
    asked = [
        (words, values) for words, values in statements if re.search(r"\bFROM (runs|nodes|jobs|parts|recipes)", words)
    ]
    assert len(asked) > 2 * len(QUESTIONS)
    sqlite = ledger.place.path is not None
    with ledger.reading() as connection:
        if not sqlite:  # of a table of three rows it reads all, unless it has to choose
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        for words, values in asked:
            rows = connection.exec_driver_sql(f"EXPLAIN {'QUERY PLAN ' if sqlite else ''}{words}", values)
            plan = [str(row[-1]) for row in rows]
            scans = [
                line for line in plan if re.search(r"(SCAN|Seq Scan on) (runs|nodes|jobs|figures|parts|recipes)", line)
            ]
            newest = ["SCAN runs USING COVERING INDEX runs_by_time"]
            assert not scans or (scans == newest and "LIMIT" in words and "WHERE" not in words), (words, plan)


def test_what_was_asked_of_a_node_and_a_recipe_is_found_again(ledger: Ledger, tmp_path: Path) -> None:
    swapped = {"node01": STATES["node02"], "node02": STATES["node01"]}
    for number in range(6):
        plan = PLAN.model_copy(update={"recipe": "another"}) if number == 4 else PLAN
        states = swapped if number in (2, 3) else STATES if number < 5 else {"node01": healthy(1)}
        ledger.add(a_run(tmp_path / "runs", number, states=states, jobs=[JobRecord(plan=plan)]))
    before = [history(ledger, question) for question in QUESTIONS]
    numbers = [[int(run.run_id[-6:]) for run in answer.runs] for answer in before]
    assert numbers[4:8] == [[5, 3, 2, 1, 0], [], [5, 3], [5, 3, 2, 1, 0]]
    assert numbers[8:] == [[5, 4, 3, 2, 1, 0], [5, 4, 1, 0], [5, 3, 2, 1, 0], []]
    assert [(stay.node, stay.runs) for stay in before[8].stays] == [("node01", 2 + 0), ("node02", 2), ("node01", 2)]


def test_a_record_of_few_fields_and_one_without_states_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    run = a_run(tmp_path, 1)
    plan = PLAN.model_dump_json()
    run.write(
        "run.json",
        f'{{"schema_version": 1, "run_id": "{run.path.name}", "started_at": "2026-11-01T01:00:00", "inventory": "r",'
        '"desired_digest": "0", "nodes": [{"name": "node01", "verdict": "ok", "part": "excluded"}], '
        f'"jobs": [{{"plan": {plan}}}]}}',
    )
    (run.path / "states/node01.json").unlink()
    run.write("states/node02.json", "{")
    assert ledger.add(run) == []
    (row,) = history(ledger, Asked(node="node01")).runs
    assert (row.verdict, row.node_part, row.finished_at) == ("unknown", "excluded", None)
    assert row.jobs[0].recipe == RECIPE


def test_damaged_run_directories_are_named_and_the_others_are_kept(tmp_path: Path, ledger: Ledger) -> None:
    run = a_run(tmp_path, 1)
    run.write("states/node01.json", run.path.joinpath("states/node01.json").read_text()[:500])
    (why,) = ledger.add(run)
    assert "states/node01.json" in why
    assert history(ledger, Asked()).runs[0].nodes == 2
    broken = a_run(tmp_path, 2)
    for text_of_it in ("", '{"run_id": 3', broken.path.joinpath("run.json").read_text().replace("2026-11", "26-11")):
        broken.write("run.json", text_of_it)
        with pytest.raises(ValueError, match=r"run\.json|Invalid isoformat"):
            ledger.add(broken)
    assert len(history(ledger, Asked()).runs) == 1


# What only a file has


def test_the_file_is_its_owners_alone_and_lies_beside_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("SHAKEDOWN_LEDGER", raising=False)
    old = os.umask(0)
    try:
        open_ledger().add(a_run(tmp_path / "runs", 1))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "runs/ledger.sqlite").stat().st_mode) == 0o600


def test_a_ledger_that_cannot_be_written_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path / "runs", 1)
    record = run.load()
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "noise").write_bytes(b"\x01noise" * 1000)
    for place, why in {
        tmp_path / "file/ledger": "unable to open",
        tmp_path / "runs": "unable to open",
        tmp_path / "noise": "not a database",
        "mysql://me:sesame@host/x": "mysql: no such database is known",
        "postgresql://me@host/x?password=sesame": "password in the URL",
        "postgresql://me@host/x?sslPassword=sesame": "sslPassword in the URL",
    }.items():
        monkeypatch.setenv("SHAKEDOWN_LEDGER", str(place))
        said = keep(run, record, STATES, {})
        assert said.startswith(("not in the ledger: ledger ", "not in the ledger: ledger: ")), said
        assert why in said and said.endswith(f"shakedown ledger add {run.path.name}")
        assert "sesame" not in said
        assert ("set $SHAKEDOWN_LEDGER to" in said) == isinstance(place, Path), said


def test_a_file_that_may_not_be_written_can_be_read(tmp_path: Path) -> None:
    """As another user, where root tests: to root every file is writable."""
    folder = Path("/tmp") / f"shakedown-ledger-{os.getpid()}"
    folder.mkdir()
    try:
        ledger = open_ledger(folder / "ledger.sqlite")
        run = a_run(tmp_path, 1)
        ledger.add(run)
        history(ledger, Asked())
        (folder / "ledger.sqlite").chmod(0o444)
        folder.chmod(0o555)
        entry_of_it = run.load()
        me = os.geteuid()
        if me == 0:
            os.seteuid(65534)
        try:
            assert len(history(ledger, Asked()).runs) == 1
            with pytest.raises(LedgerError, match="readonly database"):
                ledger.put(entry_of(entry_of_it, {}, run, {}))
        finally:
            os.seteuid(me)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_locked_file_is_waited_for_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    runs = [a_run(tmp_path / "runs", number) for number in (1, 2)]
    open_ledger(path).add(runs[0])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(
        LedgerError, match=r"ledger\.sqlite: database is locked: another program has been writing for 0\.1 s"
    ):
        open_ledger(path, wait_s=0.1).add(runs[1])
    other.execute("ROLLBACK")
    other.close()
    open_ledger(path).add(runs[1])
    assert len(history(open_ledger(path), Asked()).runs) == 2


def test_no_ledger_yet_is_no_history_and_no_error_for_a_gate(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "none.sqlite")
    key = key_of(a_run(tmp_path, 1).load().jobs[0], STATES)
    assert key is not None and ledger.earlier(key) == []
    with pytest.raises(LedgerError, match=r"there is none yet: .*ledger add --all"):
        history(ledger, Asked())
    assert not (tmp_path / "none.sqlite").exists()


def test_a_url_may_stand_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://me:sesame@db.example.org/shakedown\n")
    file.chmod(0o644)
    with pytest.raises(LedgerError, match="chmod 600") as refused:
        place_of(file)
    assert "sesame" not in str(refused.value)
    file.chmod(0o600)
    place = place_of(file)
    assert place.name == "postgresql://me:***@db.example.org/shakedown"
    assert place.url.password == "sesame"


def test_what_a_server_said_is_shown_without_the_password() -> None:
    place = Place(URL.create("postgresql", password="sesame"), "a ledger")
    assert place.plain("FATAL: sesame\nis wrong") == "FATAL: *** is wrong"


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    ledger = open_ledger(f"postgresql://me:sesame@/x?host={tmp_path}", wait_s=2)
    with pytest.raises(LedgerError, match=r"postgresql://me:\*\*\*@/x") as refused:
        history(ledger, Asked())
    assert "sesame" not in str(refused.value) and "No such file" in str(refused.value)


def test_a_run_that_only_its_baseline_failed_is_known_as_worse(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    runs = [
        a_run(root, 1, value=401.0),
        a_run(root, 2, value=380.0, verdict=Verdict.FAIL, gate="baseline.throughput_per_gpu"),
        a_run(root, 3, value=381.0, verdict=Verdict.WARN, gate="baseline.throughput_per_gpu"),
        a_run(root, 4, value=300.0, verdict=Verdict.FAIL, gate="counters"),
    ]
    for run in runs:
        ledger.add(run)
    key = key_of(runs[0].load().jobs[0], STATES)
    assert key is not None
    assert [each.worse for each in ledger.earlier(key)] == [[], ["throughput_per_gpu"], ["throughput_per_gpu"]]


def test_a_new_level_is_reported_once_and_ends_where_a_person_accepts_it(ledger: Ledger, tmp_path: Path) -> None:
    root, verdicts = tmp_path / "runs", []
    for number in range(1, 14):
        value = 400.0 + number % 3 - (20.0 if number > 7 else 0.0)
        job = a_run(tmp_path / f"asked{number}", number).load().jobs[0]
        made = _judged(past_of(job, STATES, None, Wanted(judge=True), ledger), value)
        verdict = made[0].verdict if made else Verdict.OK
        ledger.add(a_run(root, number, value=value, verdict=verdict, gate="baseline.throughput_per_gpu"))
        verdicts.append(verdict)
    assert verdicts == [Verdict.OK] * 7 + [Verdict.FAIL] * 2 + [Verdict.WARN] * 4
    asked = a_run(root, 25)  # a day later
    accepted = Wanted(judge=True, since=date(2026, 11, 2), by="A. Smith")
    for number in range(21, 25):
        ledger.add(a_run(root, number, value=380.0 + number % 2))
    past = past_of(asked.load().jobs[0], STATES, None, accepted, ledger)
    assert len(past.earlier) == 4 and past.by == accepted.by and not past.judged
    ledger.add(a_run(root, 26, value=381.0))
    past = past_of(asked.load().jobs[0], STATES, None, accepted, ledger)
    made = _judged(past, 380.0)
    assert {each.verdict for each in made} == {Verdict.OK}
    assert "since 2026-11-02 (smoke.baseline_since, accepted by A. Smith)" in made[0].evidence


def _judged(past: Past, value: float) -> list[Gate]:
    figure = Figure(metric=METRICS["throughput_per_gpu"], value=value, mean=value, spread=1.0, count=40)
    figures = Figures(steady=40, throughput_per_gpu=figure)
    made = gates.judge(Observed(speed=Speed(figures), expected=Expected(past=past)))
    return [each for each in made if each.name == "baseline.throughput_per_gpu"]


@pytest.mark.parametrize("clashes", [0, 1, 99])
def test_a_writer_that_clashes_with_another_tries_again_and_then_says_so(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clashes: int
) -> None:
    left, replace = [clashes], store._replace

    def clash(connection: Connection, entry: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise store._Clash("another writer")
        replace(connection, entry)

    monkeypatch.setattr(store, "_replace", clash)
    run = a_run(tmp_path / "runs", 1)
    if clashes > 9:
        with pytest.raises(LedgerError, match="another writer"):
            ledger.add(run)
    else:
        ledger.add(run)
        assert ledger.knows(run.path.name)


def test_a_fifo_in_the_place_of_a_ledger_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    opens = threading.Timer(10, lambda: os.close(os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)))
    opens.start()  # one that waits reads the end of the file then, and takes it for an empty ledger
    with pytest.raises(LedgerError, match=r"unable to open|disk I/O error"):
        open_ledger(tmp_path / "fifo").knows("x")
    assert opens.is_alive()
    opens.cancel()
