"""When a job is stopped, and for what: each rule at its boundary, in a time that stands still while nothing happens."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shakedown.evidence.results import JobResult
from shakedown.jobs.launch import Event
from shakedown.jobs.member import Member
from tests.plays import LINE, PHASES, TIMEOUTS, TORCHRUN, WAITS, Play, after, trains
from tests.turns import PIECE, Script, Turns

SLACK = 1.4  # a poll, and a look at what it brought
MOMENT = 0.125  # between two looks


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    return Play(Turns(monkeypatch), tmp_path)


def failed(result: JobResult) -> tuple[str | None, str, float]:
    """Node, kind, and when: seconds after the start, or after the beginning where nothing was started."""
    first = result.first_failure
    assert first is not None, result
    begin = result.started_at or datetime.fromtimestamp(0, first.at.tzinfo)
    return first.node, first.kind, (first.at - begin).total_seconds()


def test_a_job_of_scripted_nodes_completes(play: Play) -> None:
    result = play(a=trains(exits=4), b=trains(1, 2, 3, exits=4))
    assert result.completed, result
    assert (result.reason, result.first_failure, result.failures) == ("every leader exited with 0", None, [])
    assert result.last_iteration == 3
    assert [event.iteration.iteration for event in play.events if event.iteration] == [1, 2, 3]
    assert play.rack.removed == {"a", "b"} and play.rack.stopped == {}
    assert result.started_at is not None
    assert result.started_at < result.finished_at
    for node in result.nodes:
        assert node.started_at and node.ended_at
        assert (node.ended_at - node.started_at).total_seconds() == pytest.approx(4, abs=0.01)
    kinds = [event.text for event in play.events if event.kind in ("phase", "end")]
    assert kinds == ["preparing a, b", "all nodes are ready: starting", f"completed: {result.reason}"]


@pytest.mark.parametrize(
    "line",
    [
        "amd-smi: error: could not read power",
        "[aiter] import failed: No such file or directory",
        "[rank3] could not set nice(-5): Permission denied",
        "Error: unable to open /etc/rdma/x.conf: No such file or directory",
        "node05:77:91 [3] NCCL WARN NET/IB : Unable to open device mlx5_9",
    ],
)
def test_a_node_that_prints_no_iterations_and_ends_with_0_has_survived_what_it_said(play: Play, line: str) -> None:
    result = play(a=Script(says=[(0.5, f"{line}\n")], exits=(4, 0)), b=trains(1, 2, 3, exits=4))
    assert result.completed and result.failures == [], result.failures


def test_what_a_node_said_before_it_failed_is_evidence_with_the_failure(play: Play) -> None:
    says = [(0.5, "NCCL WARN Call to ibv_open_device failed\n"), (2, "torch.OutOfMemoryError: HIP out of memory\n")]
    result = play(a=Script(says=says, exits=(3, 1)), b=trains(1))
    kinds = [failure.kind for failure in result.failures]
    assert kinds[:2] == ["rdma_device_missing", "out_of_memory"]
    says = [(2, "NCCL WARN HIP failure 'unspecified launch failure'\n")]
    result = play(a=Script(says=says), b=trains(1, 2, 3))
    assert failed(result)[:2] == ("a", "gpu_launch_failure")


def test_the_other_nodes_are_asked_while_one_node_s_log_takes_long_to_read(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node can print lines of which each takes a millisecond: the others' leases end where nobody asks them."""
    read_line = Member._read_line

    def slowly(member: Member, line: str, when: float) -> None:
        play.turns.now += 0.25 if member.name == "a" else 0.0
        read_line(member, line, when)

    monkeypatch.setattr(Member, "_read_line", slowly)
    noise = [(2.0, f"error {number:x}\n") for number in range(200)]
    says = [*noise, (2.0, "torch.OutOfMemoryError: HIP out of memory\n")]
    result = play(plan={"timeout_s": 1000, "start_timeout_s": 1000}, a=Script(says=says, exits=(2.25, 1)), b=WAITS)
    assert failed(result)[:2] == ("a", "out_of_memory"), "the log is read before the exit code counts"
    asked = [at for at in play.rack.answered["b"] if at < play.rack.stopped["b"]]
    assert asked[-1] - asked[0] > 50 and max(b - a for a, b in pairwise(asked)) < 3
    late = play(plan={"timeout_s": 1000}, a=Script(says=noise), b=WAITS)
    assert failed(late)[:2] == ("b", "no start") and len(late.failures) == 1, "a node whose log is read is not silent"


@pytest.mark.parametrize(("first_at", "kind"), [(18.5, "stall"), (60, "no start")])
def test_the_first_iteration_has_its_time(play: Play, first_at: float, kind: str) -> None:
    result = play(plan={"timeout_s": 1000}, a=WAITS, b=trains(first_at))
    node, found, when = failed(result)
    assert (node, found) == ("b", kind)
    begin = first_at if kind == "stall" else 0
    assert when == begin + 20 + MOMENT
    assert result.last_iteration == (1 if kind == "stall" else None)
    assert ("after iteration 1" in result.reason) == (kind == "stall")
    assert ("no iteration within 20 s" in result.reason) == (kind == "no start")
    assert play.rack.stopped.keys() == {"a", "b"} and play.rack.removed == {"a", "b"}
    assert play.rack.why == {"a": result.reason, "b": result.reason}


def test_each_standstill_is_looked_at_anew(play: Play) -> None:
    """What was written down of one that passed says nothing of the next."""
    plan = {"stall_timeout_s": 60, "timeout_s": 1000}
    result = play(plan=plan, a=WAITS, b=trains(1, 2, 3, 40, 41))
    assert failed(result)[:2] == ("b", "stall")
    looks = [at for text, at in play.phases if text.startswith("no progress")]
    assert len(looks) == 2 and looks[1] > 41 + 30 and play.rack.looked["a"] > looks[1] - MOMENT


def test_iterations_that_come_in_time_are_no_stall(play: Play) -> None:
    assert play(plan={"timeout_s": 1000}, a=trains(*range(19, 120, 19), exits=125)).completed


@pytest.mark.parametrize(("exits", "kind"), [(39.0, None), (41.0 + SLACK, "timeout")])
def test_a_job_has_its_time(play: Play, exits: float, kind: str | None) -> None:
    result = play(a=trains(*range(1, 60, 2), exits=exits))
    assert result.completed is (kind is None)
    if kind:
        node, found, when = failed(result)
        assert (node, found, when) == ("a", kind, 40 + MOMENT)
        assert result.first_failure is not None and result.first_failure.line, "the last line stands with it"
        assert result.first_failure.line_number == len([at for at in range(1, 60, 2) if at <= when - 1])


@pytest.mark.parametrize(("later", "fails"), [(29.0, False), (30.5 + SLACK, True)])
def test_the_others_have_their_time_to_settle(play: Play, later: float, fails: bool) -> None:
    plan = {"start_timeout_s": 1000, "stall_timeout_s": 1000, "timeout_s": 1000}
    result = play(plan=plan, a=trains(exits=1), b=trains(exits=1 + later), c=trains(exits=1 + later))
    assert result.completed is not fails
    if fails:
        node, kind, when = failed(result)
        assert (node, kind, when) == (None, "early exit", 31 + MOMENT)
        assert result.reason == "a had ended, and 30 s later these had not: b, c"


@pytest.mark.parametrize(("silence", "fails", "code"), [(14.0, False, 0), (19.0, True, -15), (40.0, True, None)])
def test_a_silence_counts_from_the_last_answer(play: Play, silence: float, fails: bool, code: int | None) -> None:
    plan = {"start_timeout_s": 1000, "timeout_s": 1000}
    gone = Script(lost=[(5.0, 5.0 + silence)], exits=(60, 0))
    result = play(replace(TIMEOUTS, poll_timeout_s=4), plan=plan, a=trains(exits=60), b=gone)
    assert result.completed is not fails
    if fails:
        node, kind, _when = failed(result)
        heard = max(at for at in play.rack.answered["b"] if at < play.rack.went["b"] + 5) - play.began
        assert (node, kind) == ("b", "unreachable")
        assert play.at["failure"] == heard + 20 + MOMENT
        assert "no route to host" in result.reason
    assert result.nodes[1].exit_code == code, "one that is there again in time is stopped"


def test_a_node_that_never_comes_back_costs_its_time_and_is_left(play: Play) -> None:
    gone = Script(lost=[(5.0, 1e9)])
    result = play(plan={"start_timeout_s": 1000, "timeout_s": 1000}, a=WAITS, b=gone)
    assert failed(result)[:2] == ("b", "unreachable")
    assert result.nodes[1].left and result.nodes[0].left == []
    assert play.took < 5 + 20 + 60 + 20
    other, lost = (node.kept[0] for node in result.nodes)
    assert "could not be asked for the rest" in lost.incomplete and other.incomplete == ""


@pytest.mark.parametrize(("ready_s", "starts"), [(298.0, True), (303.0, False)])
def test_nodes_have_their_time_to_get_ready(play: Play, ready_s: float, starts: bool) -> None:
    result = play(a=trains(1, exits=2), b=Script(ready_s=ready_s, exits=(2, 0)))
    assert result.completed is starts
    if not starts:
        assert (result.outcome, failed(result)[:2]) == ("not started", (None, "not ready"))
        assert result.reason == "not ready within 300 s: b"
        assert play.at["failure"] == 300 + MOMENT and play.rack.went == {}
        assert result.started_at is None and [node.started_at for node in result.nodes] == [None, None]


def test_an_answer_of_no_node_starts_nothing(play: Play) -> None:
    result = play(a=trains(1, exits=2), b=Script(lost_from_the_beginning=True))
    assert (result.outcome, failed(result)[:2]) == ("not started", ("b", "unreachable"))
    assert play.rack.went == {} and play.rack.removed == {"a"}
    assert "may be busy" in result.nodes[1].left[0]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"disk_free_bytes": (64 << 10) - 1}, "disk full"),
        ({"disk_free_bytes": 64 << 10}, None),
        ({"disk_free_bytes": 0}, "disk full"),
        ({"watchdog": False}, "watchdog"),
        ({"watchdog": False, "rebooted": True}, "rebooted"),
        ({"ending": "the controller was silent"}, "watchdog"),
        ({"setup_error": "no image"}, None),
    ],
)
def test_what_a_status_says(play: Play, fields: dict[str, Any], kind: str | None) -> None:
    node = Script(more=after(2, **fields), exits=(6, 0))
    result = play(a=trains(1, exits=6), b=node)
    assert result.completed is (kind is None), result
    if kind:
        assert failed(result)[:2] == ("b", kind)
        assert len([failure for failure in result.failures if failure.node == "b"]) == 1, "told once"
    assert ("disk was full" in result.nodes[1].kept[0].incomplete) is (kind == "disk full")


def test_the_clock_of_a_node_is_held_against_the_controllers(play: Play) -> None:
    result = play(a=Script(exits=(4, 0), more=lambda since: {"monotonic": 7000.0 + since}), b=trains(exits=4))
    assert result.completed, result
    assert result.timing.clocks.keys() == {"a"}, "b's watchdog tells no time"


@pytest.mark.parametrize(("code", "text"), [(1, "exit code 1"), (-9, "signal 9"), (137, "exit code 137")])
def test_an_exit_is_told_once_and_stops_the_others(play: Play, code: int, text: str) -> None:
    result = play(a=WAITS, b=Script(exits=(3, code)))
    node, kind, when = failed(result)
    assert (node, kind, when) == ("b", "exit", pytest.approx(3, abs=0.01))
    assert result.reason == f"b: the job ended with {text}"
    assert len(result.failures) == 1 and result.failures[0].line is None
    assert [node.exit_code for node in result.nodes] == [-15, code]


def test_the_code_of_a_job_that_is_over_has_to_be_known(play: Play) -> None:
    result = play(a=Script(exits=(3, 0), more=lambda since: {"exit_code": None}))
    assert (result.outcome, result.reason) == ("failed", "not every exit code is known")
    assert failed(result)[:2] == (None, "exit")


def test_a_setup_that_failed_is_told_and_stops_all(play: Play) -> None:
    result = play(a=WAITS, b=Script(ready_s=1e9, more=lambda _since: {"setup_error": "no image"}))
    assert (result.outcome, failed(result)[:2]) == ("not started", ("b", "not ready"))
    assert result.reason == "b: setup failed: no image"


def test_what_nodes_lack_is_the_cause_itself(play: Play) -> None:
    lacks = Script(ready_s=1e9, more=lambda _since: {"setup_error": "/opt/nope/python is missing", "lacking": True})
    result = play(a=WAITS, b=lacks, c=WAITS)
    assert failed(result)[:2] == ("b", "lacking") and result.reason == "b: /opt/nope/python is missing"
    result = play(a=lacks, b=lacks, c=lacks)
    assert result.reason == "3 of 3 nodes: /opt/nope/python is missing: check the inventory or the image"
    assert result.first_failure is not None and result.first_failure.node is None


RESET = "RuntimeError: Connection reset by peer\n"


def test_an_echo_waits_for_what_was_first_and_no_longer(play: Play) -> None:
    told = Script(says=[(3.0, "Traceback (most recent call last):\n" + RESET)])
    alone = play(a=told, b=WAITS)
    assert failed(alone)[:2] == ("a", "peer_lost")
    assert failed(alone)[2] + play.started + TIMEOUTS.answer_s <= play.at["failure"]
    alone = play(a=replace(told, says=[(1.0, LINE.format(i=1)), *told.says]), b=WAITS)
    assert play.at["failure"] == failed(alone)[2] + play.started + TIMEOUTS.echo_s + TIMEOUTS.poll_s


@pytest.mark.parametrize(
    ("dead", "kind"),
    [(Script(exits=(4.2, -9)), "exit"), (Script(says=[(4.0, TORCHRUN)], exits=(4.2, 1)), "killed")],
)
def test_what_comes_while_an_echo_waits_is_the_first(play: Play, dead: Script, kind: str) -> None:
    told = Script(says=[(3.0, "Traceback (most recent call last):\n" + RESET)])
    result = play(a=told, b=dead)
    assert failed(result)[:2] == ("b", kind)
    assert {failure.node for failure in result.failures} == {"a", "b"}


def test_a_cause_waits_for_an_answer_of_the_others_and_no_longer(play: Play) -> None:
    says = [(1.0, LINE.format(i=1)), (3.0, "torch.OutOfMemoryError: HIP out of memory.\n")]
    result = play(a=Script(says=says), b=WAITS)
    assert failed(result)[:2] == ("a", "out_of_memory") and result.first_failure is not None
    assert result.first_failure.line_number == 2 and "HIP out of memory" in (result.first_failure.line or "")
    assert result.first_failure.remedy
    assert 3 < play.rack.stopped["b"] - play.rack.went["b"] <= 3 + TIMEOUTS.echo_s + 2 * SLACK
    play(a=Script(says=says), b=Script(lost=[(2.5, 1e9)]))
    most = TIMEOUTS.echo_s + TIMEOUTS.poll_timeout_s + TIMEOUTS.poll_s
    assert play.at["failure"] - play.started <= 3 + most + 2 * SLACK


@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_that_all_nodes_share_names_none_of_them(play: Play, phase: str) -> None:
    fault = PHASES[phase]
    result = play(a=fault(1.0), b=fault(3.0), c=fault(5.0))
    assert result.first_failure is not None and result.first_failure.node is None
    assert result.reason.startswith("3 of 3 nodes: ") and ": check " in result.reason
    assert not any(f"({node}: " in result.reason for node in "abc")
    assert [event.node for event in play.events if event.kind == "failure"] == [None]


@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_of_one_node_names_no_other(play: Play, phase: str) -> None:
    result = play(a=WAITS, b=PHASES[phase](1.0), c=WAITS)
    assert failed(result)[0] == "b" and "of 3 nodes" not in result.reason


def test_a_node_that_shows_the_fault_too_late_is_not_waited_for(play: Play) -> None:
    late = 1.0 + TIMEOUTS.answer_s + TIMEOUTS.poll_s + SLACK
    torch = PHASES["torch"]
    assert failed(play(a=torch(1.0), b=torch(late)))[0] == "a"
    assert play(a=torch(1.0), b=torch(late - 2 * SLACK - 1)).reason.startswith("2 of 2 nodes: ")


def test_one_who_was_silent_when_the_echo_came_is_waited_for_and_blamed(play: Play) -> None:
    told = Script(says=[(3.0, "Traceback (most recent call last):\n" + RESET)])
    result = play(plan={"start_timeout_s": 500, "timeout_s": 500}, a=told, b=Script(lost=[(2.0, 1e9)]))
    node, kind, when = failed(result)
    assert (node, kind) == ("b", "unreachable")
    assert when == 3 + TIMEOUTS.poll_timeout_s + TIMEOUTS.poll_s
    heard = max(play.rack.answered["b"]) - play.rack.went["b"]
    assert result.reason.startswith(
        f"b: no answer for {play.at['failure'] + play.began - play.rack.went['b'] - heard:.0f} s"
    )
    assert result.failures[0].node == "a"


def test_what_is_said_after_the_stop_is_no_failure(play: Play) -> None:
    late = Script(says=[(11.0, "Segmentation fault\n")], stops_s=3)
    result = play(a=late, b=Script(exits=(3, 7)))
    assert {failure.node for failure in result.failures} == {"b"}
    assert "Segmentation fault" in (play.folder / "logs/a/leader.log").read_text()


@pytest.mark.parametrize("stops_s", [50.0, 1e9])
def test_the_end_has_its_time(play: Play, stops_s: float) -> None:
    result = play(a=Script(stops_s=stops_s), b=Script(exits=(3, 7)))
    assert failed(result)[:2] == ("b", "exit")
    assert (play.rack.removed == {"a", "b"}) is (stops_s < 60)
    assert bool(result.nodes[0].left) is (stops_s > 60)
    assert play.took < 75
    if stops_s > 60:
        assert play.took == play.at["failure"] + 60 + MOMENT


def test_an_interrupt_is_told_and_is_the_outcome(play: Play) -> None:
    play.interrupted = lambda: "stopped by Ctrl-C" if play.turns.now > play.began + 5 else None
    result = play(a=Script(says=[(1.0, "waiting\n")]), b=WAITS)
    assert (result.outcome, result.reason) == ("interrupted", "stopped by Ctrl-C")
    assert failed(result)[:2] == (None, "interrupted") and len(result.failures) == 1
    assert play.rack.removed == {"a", "b"}
    assert (play.folder / "logs/a/leader.log").read_text() == "waiting\n"


def test_a_rank_that_ends_before_the_stop_reaches_its_node_has_not_failed(play: Play) -> None:
    """It loses the peers that were stopped first."""
    play.interrupted = lambda: "stopped by Ctrl-C" if play.turns.now >= play.rack.went.get("b", 1e9) + 5 else None
    result = play(a=WAITS, b=Script(exits=(5 + 2 * MOMENT, 1), lost=[(4, 5 + MOMENT)]))
    assert result.outcome == "interrupted" and len(result.failures) == 1
    assert play.rack.stopped["b"] > play.rack.went["b"] + 5 + 2 * MOMENT, "the exchange with it took that long"
    assert [(node.exit_code, node.stopped) for node in result.nodes] == [(-15, True), (1, True)], result.nodes


def test_an_interrupt_while_nodes_are_prepared_starts_nothing(play: Play) -> None:
    play.interrupted = lambda: "stopped by Ctrl-C"
    result = play(a=WAITS, b=WAITS)
    assert failed(result)[:2] == (None, "interrupted")
    assert result.started_at is None and play.rack.went == {} and play.rack.removed == {"a", "b"}


def test_a_keyboard_interrupt_ends_the_job_like_that(play: Play) -> None:
    told: list[float] = []

    def interrupt() -> str | None:
        if play.turns.now > play.began + 5 and not told:
            told.append(play.turns.now)
            raise KeyboardInterrupt
        return None

    play.interrupted = interrupt
    result = play(a=WAITS, b=WAITS)
    assert result.outcome == "interrupted" and play.rack.removed == {"a", "b"}


def test_time_that_stands_still_is_no_sleep(play: Play) -> None:
    real = time.perf_counter()
    play(plan={"start_timeout_s": 3000, "timeout_s": 3000}, a=WAITS)
    assert play.took > 3000 and time.perf_counter() - real < 30


def test_what_goes_wrong_in_showing_it_does_not_end_a_job(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a terminal that went away."""

    def broken(event: Event) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(play, "_on_event", broken)
    assert play(a=trains(1, 2, exits=3)).completed


@pytest.fixture(params=[400, -400, 86400 * 3650])
def stepping(request: pytest.FixtureRequest, play: Play, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A controller whose wall clock steps in mid-run."""

    def step() -> None:
        if play.turns.now > play.began + 3:
            monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0 + play.turns.now + request.param)

    play.interrupted = step
    return play


def test_a_wall_clock_that_steps_changes_nothing(stepping: Play) -> None:
    begin = time.time()
    result = stepping(a=trains(1, 5, exits=8), b=Script(exits=(8, 0)))
    assert result.completed and abs(time.time() - begin) > 380
    for node in result.nodes:
        assert node.started_at and node.ended_at
        assert begin < node.started_at.timestamp() < node.ended_at.timestamp() < begin + 15
    assert begin < result.finished_at.timestamp() < begin + 15


def test_a_failure_is_placed_rightly_though_the_clock_stepped_before_it(stepping: Play) -> None:
    node, kind, when = failed(stepping(a=WAITS, b=Script(exits=(5, -9))))
    assert (node, kind, when) == ("b", "exit", pytest.approx(5, abs=0.01))


@pytest.mark.parametrize(("collect_s", "whole"), [(1000, True), (100, False)])
def test_a_long_log_may_come_for_as_long_as_it_comes(play: Play, collect_s: float, whole: bool) -> None:
    """Longer than the time for ending, which counts from the last piece of it."""
    node = Script(exits=(3, 0), pieces=("trace", 8, 50.0))
    timeouts = replace(TIMEOUTS, collect_s=collect_s, poll_timeout_s=55)
    kept = play(timeouts, plan={"logs": ["trace"]}, a=node).nodes[0]
    assert kept.kept[-1].name == "trace"
    assert (kept.kept[-1].kept == 8 * len(PIECE), kept.kept[-1].incomplete == "") == (whole, whole)
    assert any("trace" in note for note in kept.notes) is not whole
    assert (play.took > 400) is whole


@pytest.mark.parametrize("code", [0, 1])
def test_no_node_is_given_up_while_its_log_is_read(play: Play, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """All nodes end at once, each behind a megabyte of lines that take a millisecond."""
    read_line = Member._read_line

    def slowly(member: Member, line: str, when: float) -> None:
        play.turns.now += 0.25
        read_line(member, line, when)

    monkeypatch.setattr(Member, "_read_line", slowly)
    noise = [(2.0, f"error {number:x}\n") for number in range(200)]
    says = [*noise, (2.0, "torch.OutOfMemoryError: HIP out of memory\n")]
    result = play(
        plan={"timeout_s": 1000}, a=Script(says=says, exits=(2.25, code)), b=Script(noise, exits=(2.25, code))
    )
    assert failed(result)[:2] == ("a", "out_of_memory"), "no other cause while lines are still to be read"
    assert [(node.left, node.exit_code, node.kept[0].incomplete) for node in result.nodes] == [([], code, "")] * 2
