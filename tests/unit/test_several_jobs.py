"""Jobs that run at the same time, one on each node: what becomes of one is nothing to the others."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import gevent
import pytest

from shakedown.jobs.launch import Event, Job, LaunchPlan, Timeouts
from shakedown.jobs.remote import Connected
from shakedown.operations.smoke import carry_out
from tests.nodes import RUN, LocalNodes, hit, launch_plan, marked, until

TIMEOUTS = Timeouts(
    poll_s=0.2,
    poll_timeout_s=8,
    unreachable_s=8,  # on a busy machine a command takes seconds
    lease_s=60,
    grace_s=1,
    last_exit_s=2,
    prepare_s=60,
    stop_s=40,
    echo_s=0.5,
)
TRAIN = """
import time
for i in range(1, 6):
    figures = "elapsed time per iteration (ms): 9.5 | lm loss: 1.2E+01"
    print(f"[2026-09-24 09:43:42] iteration {i}/5 | {figures} |", flush=True)
    time.sleep(0.1)
"""
WAIT = "import time; print('waiting', flush=True); time.sleep(600)"
STALL = TRAIN.replace("range(1, 6)", "range(1, 3)") + "time.sleep(600)"


class Several:
    """Jobs of Python snippets, each on a node of its own."""

    def __init__(self, folder: Path) -> None:
        self.nodes = LocalNodes(folder / "nodes")
        self.folder = folder
        self.events: dict[str, list[Event]] = {}
        self.why: str | None = None

    def run_id(self, node: str) -> str:
        return f"{RUN}-each-{node}"

    def run(
        self, snippets: dict[str, str], act: Callable[[], None] = lambda: None, **timeouts: float
    ) -> dict[str, Job]:
        """Runs them all; `act` runs beside them."""
        jobs = {name: self._job(name, code, timeouts) for name, code in snippets.items()}
        beside = threading.Thread(target=act)
        beside.start()
        try:
            carry_out(list(jobs.values()), Connected(self.remote), lambda: self.why)
        finally:
            beside.join()
        return jobs

    def remote(
        self, node: str, argv: list[str], stdin: str | None, timeout: float
    ) -> tuple[bool, list[str], list[str]]:
        """In a thread, as a command over SSH lets the other greenlets go on."""
        done: tuple[bool, list[str], list[str]] = gevent.get_hub().threadpool.apply(
            self.nodes, (node, argv, stdin, timeout)
        )
        return done

    def _job(self, node: str, code: str, timeouts: dict[str, float]) -> Job:
        told = self.events[node] = []

        def plan() -> LaunchPlan:
            if not code:
                raise ValueError("the launch plan has 1 error")
            return launch_plan({node: [sys.executable, "-c", code]}, self.run_id(node), **timeouts)

        return Job(plan, self.folder / "each", node=node, on_event=told.append, timeouts=TIMEOUTS)

    def waiting(self, *names: str) -> bool:
        logs = [self.nodes.run_dir(name, self.run_id(name)) / "leader.log" for name in names]
        return all(log.exists() and b"waiting" in log.read_bytes() for log in logs)

    def nothing_left(self, *names: str) -> bool:
        ids = [(name, self.run_id(name)) for name in names]
        return not any(marked(run, name) or self.nodes.run_dir(name, run).exists() for name, run in ids)


@pytest.fixture
def several(tmp_path: Path) -> Several:
    return Several(tmp_path)


def outcomes(jobs: dict[str, Job]) -> dict[str, str]:
    return {name: job.result.outcome if job.result else f"none: {job.error}" for name, job in jobs.items()}


def test_each_ends_by_itself_and_leaves_nothing_behind(several: Several) -> None:
    jobs = several.run(dict.fromkeys("abc", TRAIN))
    assert outcomes(jobs) == dict.fromkeys("abc", "completed")
    assert several.nothing_left("a", "b", "c")
    assert all((several.folder / "each" / name / "leader.log").read_text().count("lm loss") == 5 for name in "abc")
    assert all(events[-1].kind == "end" for events in several.events.values())


def test_one_that_is_killed_stalls_or_cannot_be_planned_stops_no_other(several: Several) -> None:
    def kill() -> None:
        until(lambda: several.waiting("dead"), 60)
        hit(several.run_id("dead"), "dead", signal.SIGKILL)

    jobs = several.run({"dead": WAIT, "stalled": STALL, "unplanned": "", "good": TRAIN}, kill, stall_timeout_s=8)
    assert outcomes(jobs) == {
        "dead": "failed",
        "stalled": "failed",
        "unplanned": "none: the launch plan has 1 error",
        "good": "completed",
    }
    for name, said in (("dead", "signal 9"), ("stalled", "nothing for 8 s after iteration 2")):
        result = jobs[name].result
        assert result is not None and result.first_failure is not None
        assert result.first_failure.node == name and said in result.reason
    assert several.events["unplanned"][-1] == Event("end", "not started: the launch plan has 1 error", "unplanned")
    assert several.nothing_left("dead", "stalled", "good")


def test_one_that_falls_silent_stops_no_other(several: Several) -> None:
    def lose() -> None:
        until(lambda: several.waiting("lost"), 60)
        several.nodes.lost.add("lost")

    jobs = several.run({"lost": WAIT, "good": TRAIN}, lose)
    assert outcomes(jobs) == {"lost": "failed", "good": "completed"}
    watchdog = several.nodes.watchdog("lost", several.run_id("lost"))
    assert watchdog, "it ends the job when its lease is over, for which nobody waits here"
    os.kill(watchdog, signal.SIGTERM)
    until(lambda: not marked(several.run_id("lost"), "lost"), timeout=60)


def test_one_interrupt_ends_all(several: Several) -> None:
    def interrupt() -> None:
        until(lambda: several.waiting("a", "b", "c"), 60)
        several.why = "stopped by Ctrl-C"

    jobs = several.run(dict.fromkeys("abc", WAIT), interrupt)
    assert outcomes(jobs) == dict.fromkeys("abc", "interrupted")
    assert several.nothing_left("a", "b", "c")
