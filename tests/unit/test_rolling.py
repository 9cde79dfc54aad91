"""Runs in batches: whose turn it is, when enough have failed, what a later run goes on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError
from shakedown.desired.values import nodes_in
from shakedown.runner.features import resolve
from shakedown.runs import rolling as plan
from shakedown.runs.directory import RunDirectory, RunRecord
from shakedown.runs.rolling import Rolling, Turn
from shakedown.state.findings import Verdict
from tests import forks

NODES = [f"node{number:02}" for number in range(1, 33)]


def begun(batch: str, max_failed: str | None = None, **status: str) -> Rolling:
    made = Rolling(batch=batch, max_failed=max_failed, turns=plan.turns(dict.fromkeys(NODES, "d")))
    for node, now in status.items():
        made.turn(node).status = now  # type: ignore[assignment]
        made.turn(node).run = "this"
    return made


@pytest.mark.parametrize(("amount", "nodes"), [("10%", 3), ("1%", 1), ("4", 4), ("100%", 32), ("64", 32), ("9.4%", 3)])
def test_a_batch_is_a_number_or_a_share_of_all_and_never_empty(amount: str, nodes: int) -> None:
    assert plan.next_batch(begun(amount), NODES) == NODES[:nodes]


def test_who_does_not_answer_holds_nobody() -> None:
    made = begun("3", node02="done")
    answering = [name for name in NODES if name not in ("node01", "node04")]
    assert plan.next_batch(made, answering) == ["node03", "node05", "node06"]
    assert plan.next_batch(made, []) == []
    assert plan.batches(made) == 11
    assert list(plan.pauses(1)) == [] and list(plan.pauses(7)) == [5, 10, 20, 40, 80, 120]


def test_more_failed_nodes_than_max_failed_stop_it() -> None:
    two = {"node01": "failed", "node03": "failed"}
    assert plan.why_stop(begun("4", "2", **two), "this", NODES[:4]) == ""
    assert plan.why_stop(begun("4", "5%", **two), "this") == "2 of 32 nodes failed (node01, node03), max_failed is 1"
    assert plan.why_stop(begun("4", "0", **two), "that") == ""  # of an earlier run
    assert plan.why_stop(begun("2", "2", **two), "this", ["node01", "node03"]) == ""


def test_without_max_failed_a_batch_that_failed_as_a_whole_stops_it() -> None:
    made = begun("2", node01="failed", node02="failed", node03="failed", node04="done")
    assert "every node of the batch failed (node01, node02)" in plan.why_stop(made, "this", NODES[:2])
    assert plan.why_stop(made, "this", NODES[2:4]) == ""
    assert plan.why_stop(made, "this") == ""
    assert plan.why_stop(made, "this", ["node03"]) == ""  # one node alone may be broken
    assert "(node01)" in plan.why_stop(begun("1", node01="failed"), "this", ["node01"])
    assert plan.why_stop(begun("1", node01="failed"), "this") == "", "before the first batch"


def test_done_is_done_unless_something_else_is_asked_for_now() -> None:
    done = Turn(node="a", desired_digest="1", status="done", verdict=Verdict.DRIFT, batch=1, run="first")
    others = [Turn(node=name, desired_digest="1", status=status) for name, status in (("b", "failed"), ("c", "done"))]
    earlier = Rolling(batch="1", turns=[done, *others, Turn(node="gone", desired_digest="1", status="done")])
    now = plan.turns({"a": "1", "b": "1", "c": "2", "new": "1"}, earlier)
    assert now[0] == done
    assert [(turn.node, turn.status) for turn in now[1:]] == [("b", "waiting"), ("c", "waiting"), ("new", "waiting")]


def test_how_far_it_came_is_said_in_a_line() -> None:
    turns = [Turn(node=name, desired_digest="1", status=status) for name, status in (("a", "done"), ("b", "failed"))]
    made = Rolling(batch="1", turns=turns)
    assert made.complete and made.words() == "in batches of 1: 1 done, 1 failed (b)"
    stopped = made.model_copy(update={"resumes": "first", "stopped": "too many"})
    assert stopped.words() == "in batches of 1, going on with first: 1 done, 1 failed (b); stopped: too many"
    assert not stopped.complete
    turns[1].status = "under way"
    assert not Rolling(batch="1", turns=turns).complete, "killed in its last batch"


def test_a_run_that_was_killed_in_a_batch_has_that_batch_again() -> None:
    earlier = begun("1", node01="done", node02="under way")
    assert not earlier.complete
    assert [turn.status for turn in plan.turns(dict.fromkeys(NODES, "d"), earlier)][:3] == [
        "done",
        "waiting",
        "waiting",
    ]


@pytest.mark.parametrize(
    ("wanted", "path"),
    [({"batch": "0"}, "rolling.batch"), ({"batch": "110%"}, "rolling.batch"), ({"max_failed": "few"}, "rolling.max_")],
)
def test_an_amount_that_is_none_is_refused_with_its_place(wanted: dict[str, object], path: str) -> None:
    with pytest.raises(DesiredStateError, match=path):
        resolve([HostLayers("a", [Layer("group rack", {"gpu": "cpu", "rolling": wanted})])])


def test_numbers_and_shares_are_taken_as_they_are_written() -> None:
    states = resolve([HostLayers("a", [Layer("all", {"gpu": "cpu", "rolling": {"batch": 4, "max_failed": "5%"}})])])
    assert states.states["a"].rolling.batch == "4"
    assert nodes_in("5%", 32) == 1 and nodes_in("29%", 100) == 29


def test_hosts_that_are_to_go_in_different_batches_are_refused() -> None:
    layers = [HostLayers(name, [Layer(name, {"gpu": "cpu", "rolling": {"batch": name}})]) for name in ("1", "2")]
    with pytest.raises(DesiredStateError, match="the same on every host"):
        resolve(layers)


def record(folder: Path, **fields: object) -> Path:
    made = RunRecord(run_id="20261123T080000-abc123", started_at="", inventory="", desired_digest="", **fields)  # type: ignore[arg-type]
    folder.mkdir(exist_ok=True)
    RunDirectory(folder).save(made)
    return folder


ASKED = """
import json, sys
from shakedown.runner import engine, rolling
state = engine.load(sys.argv[1])
told = []
for batch, most, run in json.loads(sys.argv[2]):
    try:
        found = rolling.requested(state, batch, most, run)
        told.append([found.batch, found.max_failed, found.tries, str(found.earlier or "")])
    except engine.InventoryError as error:
        told.append(str(error))
print(json.dumps(told))
"""


def test_a_command_line_wins_over_the_run_that_it_resumes_and_that_over_the_desired_state(tmp_path: Path) -> None:
    site = tmp_path / "site.py"
    site.write_text('rack = (["node01", "other"], {"gpu": "cpu", "rolling": {"batch": "50%", "tries": 2}})\n')
    earlier = record(tmp_path / "20261123T080000-abc123", rolling=begun("4", "1", node01="done"))
    questions = [
        (None, None, None),
        (None, "0", "20261123"),
        ("many", None, None),
        (None, None, "nowhere"),
        (None, None, str(record(tmp_path / "whole"))),
        (None, None, str(record(tmp_path / "else", rolling=Rolling(batch="1")))),
    ]
    done = forks.python(ASKED, site, json.dumps(questions), SHAKEDOWN_RUNS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told[:2] == [["50%", None, 2, ""], ["4", "0", 2, str(earlier)]]
    for said, why in zip(
        told[2:],
        (
            "--batch many: expected a number of nodes",
            "nowhere: no such file",
            "it was no run in batches",
            "none of its nodes is among the hosts",
        ),
        strict=True,
    ):
        assert why in said
