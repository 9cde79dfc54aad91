"""The record of what becomes of one host: what counts where several things happen to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import PyinfraError

from shakedown.report.summary import HostOutcome
from shakedown.runner.ending import watch
from shakedown.runner.progress import HostRun, progress
from shakedown.state.findings import Verdict


def fail(run: HostRun) -> None:
    run.begin("Mount")
    run.message = "no such share"
    run.fail("Mount")
    run.operation = ""


HAPPENS: dict[str, Callable[[HostRun], None]] = {
    "failed": fail,
    "unreached": lambda run: run.lose("timed out"),
    "excluded": lambda run: run.exclude("not ready", Verdict.UNKNOWN),
    "stopped": lambda run: run.settle("stopped", "stopped by the controller"),
}
REASONS = {
    "failed": 'in "Mount": no such share',
    "unreached": "timed out",
    "excluded": "not ready",
    "stopped": "stopped by the controller",
}


@pytest.mark.parametrize("order", itertools.permutations(HAPPENS, 2))
def test_the_graver_of_two_things_counts_in_any_order(order: tuple[str, str]) -> None:
    run = HostRun()
    for kind in order:
        HAPPENS[kind](run)
    graver = min(order, key=list(HAPPENS).index)
    outcome = run.outcome("n1", interrupted=False, worst=Verdict.OK, different="")
    assert (outcome.kind, outcome.why) == (graver, REASONS[graver])


def test_findings_tell_where_nothing_else_does() -> None:
    run = HostRun()
    assert run.outcome("n1", False, Verdict.DRIFT, "mtu") == HostOutcome("n1", "drift", "mtu")
    assert run.outcome("n1", False, None, "the run ended") == HostOutcome("n1", "unknown", "the run ended")
    HAPPENS["stopped"](run)
    assert run.outcome("n1", False, Verdict.OK, "").kind == "stopped"


def test_an_interrupt_tells_what_was_under_way_but_hides_no_failure() -> None:
    run = HostRun()
    assert run.outcome("n1", True, None, "").why == "before it was examined"
    run.examined = True
    run.begin("Pull image")
    HAPPENS["excluded"](run)
    assert run.outcome("n1", True, None, "") == HostOutcome("n1", "interrupted", 'in "Pull image"', under_way=True)
    fail(run)
    assert run.outcome("n1", True, None, "").kind == "failed"


def test_a_host_that_answers_again_is_not_unreached_and_the_first_reasons_count() -> None:
    run = HostRun()
    run.lose("refused")
    run.lose("no answer after 3 tries")
    assert run.lost == "no answer after 3 tries"
    run.answer()
    assert (run.kind, run.lost) == (None, "")
    run.exclude("one", Verdict.FAIL)
    run.exclude("two", Verdict.UNKNOWN)
    run.lose("gone")
    run.answer()
    assert (run.kind, run.reason, run.excluded, run.verdict) == ("excluded", "one", "one", Verdict.FAIL)


def test_an_operation_that_begins_again_is_the_same_one() -> None:
    run = HostRun()
    assert run.begin("Mount") and not run.begin("Mount")
    run.message = "denied"
    assert run.begin("Other") and run.message == ""
    assert run.fail("Other") == "it gave no reason" and run.failure == 'in "Other": it gave no reason'
    run.message = "later"
    run.fail("Third")
    assert (run.unfinished, run.failure) == ("Other", 'in "Other": it gave no reason')


def test_a_host_that_pyinfra_fails_outside_an_operation_is_noted_there() -> None:
    state = State()
    state.init(Inventory((["n1", "n2", "n3"], {})), Config())
    watch(state)
    hosts = {host.name: host for host in state.inventory}
    for host in hosts.values():
        state.activate_host(host)
    runs = progress(state).hosts
    runs["n1"].message = "no such fact"
    runs["n2"].exclude("not ready", Verdict.UNKNOWN)
    state.fail_hosts({hosts["n1"], hosts["n2"]}, activated_count=3)
    assert state.failed_hosts == {hosts["n1"], hosts["n2"]}
    assert [(runs[name].kind, runs[name].reason) for name in ("n1", "n2")] == [
        ("failed", "no such fact"), ("excluded", "not ready"),
    ]  # fmt: skip
    assert [runs[name].fails for name in hosts] == [True, True, False]
    assert [runs[name].failure for name in hosts] == ["no such fact", "", ""]  # which the record of the run has


def test_a_fact_that_no_node_answers_fails_each_with_the_finding_it_was_read_for() -> None:
    state = State()
    state.init(Inventory((["n1", "n2"], {})), Config())
    watch(state)
    runs = progress(state).hosts
    for host in state.inventory:
        state.activate_host(host)
        runs[host.name].declaring, runs[host.name].message = "clock", "Failed to connect to bus"
    with pytest.raises(PyinfraError, match="No hosts remaining"):
        state.fail_hosts(set(state.inventory), activated_count=2)
    assert {runs[name].failure for name in ("n1", "n2")} == {"clock: Failed to connect to bus"}
