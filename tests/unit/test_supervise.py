"""A job as a whole on nodes that are there: what starts, ends and is left on them, and what comes of their logs. When a
job is stopped and for what: test_supervise_rules.py."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shakedown.evidence.results import JobResult
from shakedown.jobs import member
from shakedown.jobs.launch import Event, LaunchPlan
from shakedown.jobs.supervise import Job, Timeouts, run_job
from tests.nodes import RUN, LocalNodes, hit, launch_plan, marked, until

QUICK = Timeouts(
    poll_s=0.2,
    poll_timeout_s=3,
    unreachable_s=1.5,
    lease_s=5,
    grace_s=1,
    last_exit_s=2,
    prepare_s=10,
    stop_s=15,
    echo_s=0.5,
)
"""Where a node falls silent: each of these is waited for."""
PATIENT = replace(QUICK, poll_timeout_s=10, unreachable_s=20, lease_s=60, last_exit_s=30, prepare_s=60, stop_s=60)
"""Where no silence is waited for: the machine may be busy."""
ITERATION = "[2026-09-24 09:43:42] iteration {i}/5 | elapsed time per iteration (ms): 9.5 | lm loss: 1.250274E+01 |"
PREAMBLE = f"""
import os, signal, sys, time
def say(text): print(text, flush=True)
def go():
    while not os.path.exists('go'):
        time.sleep(0.05)
def train(steps, pace_s=0.1):
    for i in range(1, steps + 1):
        say({ITERATION!r}.format(i=i)); time.sleep(pace_s)
"""
WAIT = "say('waiting'); time.sleep(600)"
Act = Callable[[], None]


class Threads:
    """The scheduler of plain Python."""

    def spawn(self, function: Callable[[], None]) -> None:
        threading.Thread(target=function, daemon=True).start()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Jobs:
    """Runs jobs of Python snippets, one per node."""

    def __init__(self, folder: Path) -> None:
        self.nodes = LocalNodes(folder / "nodes")
        self.logs = folder / "logs"
        self.events: list[Event] = []
        self.why: str | None = None

    def plan(self, snippets: dict[str, str], **more: Any) -> LaunchPlan:
        commands = {name: [sys.executable, "-c", PREAMBLE + code] for name, code in snippets.items()}
        return launch_plan(commands, **more)

    def run(
        self, snippets: dict[str, str], timeouts: Timeouts = PATIENT, act: Act | None = None, **more: Any
    ) -> JobResult:
        """The result; `act` runs beside the job."""
        beside = threading.Thread(target=act) if act else None
        if beside:
            beside.start()
        try:
            plan = self.plan(snippets, **more)
            job = Job(lambda: plan, self.logs, plan=plan, on_event=self.events.append, timeouts=timeouts)
            return run_job(job, self.nodes, scheduler=Threads(), interrupted=lambda: self.why)
        finally:
            if beside:
                beside.join()

    def nothing_left(self, *names: str) -> bool:
        return not any(marked(RUN, name) or self.nodes.run_dir(name, RUN).exists() for name in names)

    def waiting(self, *names: str) -> bool:
        logs = [self.nodes.run_dir(name, RUN) / "leader.log" for name in names]
        return all(log.exists() and b"waiting" in log.read_bytes() for log in logs)

    def go_on(self, name: str, length: int) -> None:
        """Let the node's leader go on once so many bytes of its log have come."""
        came = self.logs / name / "leader.log"
        until(lambda: came.exists() and came.stat().st_size >= length)
        (self.nodes.run_dir(name, RUN) / "go").touch()


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def first(result: JobResult) -> tuple[str | None, str]:
    assert result.first_failure is not None, result
    return result.first_failure.node, result.first_failure.kind


def test_what_a_node_sends_beside_the_job_s_own_logs_has_a_limit_in_all(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node names up to 256 files of a hang, and each could be as large as a training's log."""
    monkeypatch.setattr(member, "BESIDE_LIMIT", 1500)
    many = [["sh", "-c", "yes | head -c 1000"]]
    result = jobs.run({"a": "train(5); say('x' * 3000)"}, setup=many, cleanup=many)
    kept = {log.name: log for log in result.nodes[0].kept}
    assert (kept["setup.log"].kept, kept["setup.log"].incomplete) == (1000, "")
    assert kept["cleanup.log"].kept == 500 and "no more than 500 bytes" in kept["cleanup.log"].incomplete
    assert kept["leader.log"].kept > 3000 and not kept["leader.log"].incomplete


def test_a_job_whose_leaders_all_exit_with_0_is_completed(jobs: Jobs) -> None:
    result = jobs.run({"a": "say('rank 0')", "b": "train(5)"})
    assert result.completed
    assert result.last_iteration == 5
    assert [event.iteration.iteration for event in jobs.events if event.iteration] == [1, 2, 3, 4, 5]
    assert (jobs.logs / "a/leader.log").read_text() == "rank 0\n"
    assert [node.exit_code for node in result.nodes] == [0, 0]
    assert [node.left for node in result.nodes] == [[], []]
    assert all(node.started_at and node.ended_at and node.started_at < node.ended_at for node in result.nodes)
    assert jobs.nothing_left("a", "b")


def test_no_node_starts_when_one_is_not_ready(jobs: Jobs) -> None:
    (jobs.nodes.home("b") / "unready").touch()
    setup = [["sh", "-c", 'if test -e "$HOME/unready"; then echo no image >&2; exit 1; fi']]
    result = jobs.run({"a": "say('started')", "b": "say('started')"}, setup=setup)
    assert result.outcome == "not started"
    assert first(result) == ("b", "not ready")
    assert "no image" in result.reason
    assert "started" not in (jobs.logs / "a/leader.log").read_text()
    assert "no image" in (jobs.logs / "b" / "setup.log").read_text()
    assert jobs.nothing_left("a", "b")


def test_a_leader_that_is_killed_stops_the_others_and_is_named(jobs: Jobs) -> None:
    def kill() -> None:
        until(lambda: jobs.waiting("a", "b", "c"))
        hit(RUN, "b", signal.SIGKILL)
        until(lambda: not marked(RUN, "a") and not marked(RUN, "c"), timeout=30)

    result = jobs.run(dict.fromkeys("abc", WAIT), act=kill)
    assert first(result) == ("b", "exit")
    assert "signal 9" in result.reason
    assert [(node.exit_code, node.stopped) for node in result.nodes] == [(-15, True), (-9, False), (-15, True)]
    assert jobs.nothing_left("a", "b", "c")


def test_a_job_that_stops_training_is_stopped_and_the_frozen_process_found(jobs: Jobs) -> None:
    freeze = "say('waiting'); os.kill(os.getpid(), signal.SIGSTOP)"
    result = jobs.run({"a": freeze, "b": "train(2); time.sleep(600)"}, stall_timeout_s=1)
    assert first(result) == ("a", "stall")
    assert "(T)" in result.reason
    assert result.last_iteration == 2


def test_a_node_that_falls_silent_is_named_and_the_others_are_stopped(jobs: Jobs) -> None:
    def lose() -> None:
        until(lambda: jobs.waiting("a", "b"))
        jobs.nodes.lost.add("b")
        until(lambda: not marked(RUN, "a"), timeout=60)

    # A node that a busy machine keeps waiting is not silent.
    timeouts = replace(PATIENT, poll_timeout_s=6, unreachable_s=4, lease_s=12)
    result = jobs.run(dict.fromkeys("ab", WAIT), timeouts, act=lose)
    assert first(result) == ("b", "unreachable")
    assert "no route to host" in result.reason
    assert any("its watchdog ends the job 12 s after" in note for note in result.nodes[1].notes)
    assert jobs.nothing_left("a")
    until(lambda: not marked(RUN, "b"), timeout=60)


def test_a_node_whose_watchdog_is_stopped_is_freed_by_the_controller(jobs: Jobs) -> None:
    """The lease is longer than the test: neither the watchdog nor its guardian has a part in it."""

    def stop() -> None:
        until(lambda: jobs.waiting("a", "b"))
        os.kill(jobs.nodes.watchdog("b", RUN) or 0, signal.SIGSTOP)

    timeouts = replace(PATIENT, poll_timeout_s=6, unreachable_s=8, lease_s=600)
    result = jobs.run(dict.fromkeys("ab", WAIT), timeouts, act=stop)
    assert first(result) == ("b", "watchdog")
    assert "no answer of its watchdog" in result.reason
    assert result.nodes[1].left == []
    assert jobs.nothing_left("a", "b")


# -- an answer that is lost -----------------------------------------------------------------------------------------


def test_a_lost_answer_to_the_preparation_leaves_nothing_behind(jobs: Jobs) -> None:
    jobs.nodes.deaf["b"] = 1
    result = jobs.run(dict.fromkeys("ab", WAIT))
    assert result.outcome == "not started"
    assert first(result) == ("b", "unreachable")
    assert result.nodes[1].left == []
    assert jobs.nothing_left("a", "b")


def test_a_preparation_that_never_came_to_the_node_leaves_no_doubt(jobs: Jobs) -> None:
    def come_back() -> None:
        until(lambda: len(jobs.nodes.unanswered) > 1, timeout=60)  # its preparation and its stop
        jobs.nodes.lost.clear()

    jobs.nodes.lost.add("b")
    result = jobs.run(dict.fromkeys("ab", WAIT), act=come_back)
    assert first(result) == ("b", "unreachable")
    assert result.nodes[1].left == []
    assert jobs.nothing_left("a", "b")


def test_a_node_that_may_be_busy_is_noted_with_its_remedy_and_frees_itself(jobs: Jobs) -> None:
    jobs.nodes.deaf["b"] = 100
    result = jobs.run(dict.fromkeys("ab", WAIT), replace(QUICK, lease_s=2, stop_s=2))
    assert first(result) == ("b", "unreachable")
    (note,) = result.nodes[1].left
    assert note.startswith("may be busy (the answer was lost)")
    assert "ends within 2 s" in note and f"~/.cache/shakedown/runs/{RUN}" in note
    jobs.nodes.deaf.clear()
    until(lambda: not jobs.nodes.watchdog("b", RUN))


def test_a_secret_without_a_value_is_an_error_before_anything_is_sent(jobs: Jobs) -> None:
    with pytest.raises(ValueError, match="HF_TOKEN"):
        jobs.run({"a": WAIT}, secrets=["HF_TOKEN"])
    assert jobs.nodes.argv == []


@pytest.mark.parametrize("silent_s", [5, 20, 180])
def test_a_node_may_be_as_slow_in_its_cleanup_as_in_the_job(silent_s: float) -> None:
    times = Timeouts.of(silent_s)
    assert times.poll_timeout_s < times.unreachable_s <= times.stop_s and times.stop_s >= Timeouts().stop_s


def test_a_cleanup_that_fails_is_told_and_counts_as_left(jobs: Jobs) -> None:
    result = jobs.run({"a": "train(5)"}, cleanup=[["sh", "-c", "echo no such container >&2; exit 1"]])
    (left,) = result.nodes[0].left
    assert "cleanup failed" in left and "no such container" in left
    assert left in result.nodes[0].notes


def test_no_two_nodes_share_a_file_and_none_leaves_the_folder(jobs: Jobs) -> None:
    names = ["node2 x", "node2_x", "../evil", "a", "a.log"]
    result = jobs.run({name: f"say({name!r})" for name in names}, logs=["{run_dir}/logs/perf.csv"])
    assert result.outcome == "completed", result
    paths = [node.logs[0] for node in result.nodes]
    assert [path.read_text() for path in paths] == [f"{name}\n" for name in names]
    assert len(set(paths)) == len(names)
    assert all(path.resolve().is_relative_to(jobs.logs.resolve()) for path in paths)
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in paths} == {0o700}


def test_two_logs_of_one_base_name_are_kept_apart(jobs: Jobs) -> None:
    code = "for folder in 'ab': open(folder + '/perf.csv', 'w').write(folder)\ntrain(5)"
    names = ["{run_dir}/a/perf.csv", "{run_dir}/b/perf.csv"]
    kept = {log.name: log for log in jobs.run({"n": code}, logs=names).nodes[0].kept}
    assert [Path(kept[name].path).read_text() for name in names] == ["a", "b"]
    assert [kept[name].incomplete for name in names] == ["", ""]


@pytest.mark.parametrize("length", [1000, 50])
def test_a_log_that_was_cut_on_the_node_while_it_came_is_not_whole(jobs: Jobs, length: int) -> None:
    code = f"say('x' * {length}); go(); os.truncate('leader.log', 0); train(5)"
    log = jobs.run({"a": code}, act=lambda: jobs.go_on("a", length)).nodes[0].kept[0]
    assert "cut or replaced on the node" in log.incomplete
    assert log.kept >= length


def test_a_log_that_is_gone_at_the_end_is_not_whole(jobs: Jobs) -> None:
    code = "train(5); go(); os.unlink('leader.log')"
    result = jobs.run({"a": code}, act=lambda: jobs.go_on("a", len(ITERATION)))
    assert "at the end it was not" in result.nodes[0].kept[0].incomplete


def test_a_whole_log_has_the_size_and_digest_of_the_node_s(jobs: Jobs) -> None:
    result = jobs.run({"a": "train(5); open('more', 'w').write('m')"}, logs=["more"])
    leader, more = result.nodes[0].kept
    content = Path(leader.path).read_bytes()
    assert (leader.size, leader.kept, leader.incomplete) == (len(content), len(content), "")
    assert leader.sha256 == hashlib.sha256(content).hexdigest()
    assert (more.name, more.size, more.kept, more.incomplete) == ("more", 1, 1, "")
