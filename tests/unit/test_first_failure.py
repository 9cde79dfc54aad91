"""Which failure was the first, at the edges of each rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shakedown.smoke import first_failure
from shakedown.smoke.job import Failure

BEGIN = datetime(2026, 9, 24, tzinfo=UTC)


def failure(kind: str = "out_of_memory", after_s: float = 0, **more: Any) -> Failure:
    return Failure(**{"node": "a", "kind": kind, "text": "it failed", "at": BEGIN + timedelta(seconds=after_s), **more})


@pytest.mark.parametrize(
    "kind",
    ["rank_failed", "collective_timeout", "nccl_remote_error", "early exit", "stall", "no start", "timeout", "exit"],
)
def test_what_may_follow_from_another_failure(kind: str) -> None:
    assert first_failure.may_be_echo(failure(kind))


@pytest.mark.parametrize(
    "kind", ["out_of_memory", "traceback", "killed", "rebooted", "unreachable", "watchdog", "not ready"]
)
def test_what_is_a_cause(kind: str) -> None:
    assert not first_failure.may_be_echo(failure(kind))


def test_a_signal_is_a_cause_and_a_plain_exit_may_be_an_echo() -> None:
    assert not first_failure.may_be_echo(failure("exit", text="the job ended with signal 9"))
    assert first_failure.may_be_echo(failure("exit", text="the job ended with exit code 1"))
    assert not first_failure.may_be_echo(failure("traceback", text="no signal"))


@pytest.mark.parametrize(
    "line",
    ["Connection closed by peer", "RESET BY PEER", "Broken pipe", "Connection refused", "ncclRemoteError: x",
     "a remote process exited", "collective operation timeout", "NCCL timeout", "Socket Timeout", "heartbeat lost",
     "timed out waiting for a store"],
)  # fmt: skip
def test_a_line_that_speaks_of_another_one_is_an_echo_but_of_who_is_lost(line: str) -> None:
    assert first_failure.may_be_echo(failure("traceback", line=line))
    assert not first_failure.may_be_echo(failure("traceback", line="ValueError"))
    for lost in ("rebooted", "unreachable", "watchdog"):
        assert not first_failure.may_be_echo(failure(lost, line=line))


@pytest.mark.parametrize(("after_s", "cause"), [(0.0, True), (20.0, True), (20.001, False)])
def test_a_cause_is_looked_for_within_twenty_seconds(after_s: float, cause: bool) -> None:
    echo, later = failure("stall"), failure("killed", after_s, node="b")
    assert first_failure.first([echo, later]) is (later if cause else echo)


def test_the_earliest_cause_is_the_first_and_without_one_the_earliest() -> None:
    causes = [failure("stall"), failure("killed", 1, node="b"), failure("killed", 2, node="c")]
    assert first_failure.first(causes).node == "b"
    assert first_failure.first([failure("stall", node="x"), failure("exit", 1)]).node == "x"


@pytest.mark.parametrize("kind", ["stall", "no start"])
@pytest.mark.parametrize("state", ["T", "t", "D"])
def test_a_process_that_did_not_run_names_its_node(kind: str, state: str) -> None:
    running = [
        ("a", ["1 python3 (S)", "2 x (R)"]),
        ("b", ["3 python3 (S)", f"4 python3 ({state})"]),
        ("c", ["5 y (T)"]),
    ]
    found = first_failure.with_culprit(failure(kind), running)
    assert (found.node, found.kind) == ("b", kind)
    assert found.text == f"it failed; on b this process did not run: 4 python3 ({state})"


def test_no_other_failure_gets_a_culprit_and_none_where_all_ran() -> None:
    timeout = failure("timeout")
    assert first_failure.with_culprit(timeout, [("b", ["4 python3 (T)"])]) is timeout
    stall = failure("stall")
    assert first_failure.with_culprit(stall, [("b", ["4 python3 (S)", "5 (T) x (S)"])]) is stall
