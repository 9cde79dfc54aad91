"""The sampler beside a job: started, ended and collected with it, and no part of its verdict's processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from shakedown.evidence.results import JobResult
from shakedown.evidence.telemetry.summary import Watched, steady_window
from shakedown.logs.iterations import Iteration
from shakedown.logs.kept_logs import KeptLog
from shakedown.runs import copies
from tests.nodes import RUN, hit, marked, until
from tests.unit.test_supervise import PATIENT, QUICK, WAIT, Jobs

TRAIN = "train(5)"
SLOWLY = "train(5, pace_s=0.6)"  # a sampler that a busy machine starts late still takes several samples


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def watched(jobs: Jobs, result: JobResult) -> Watched:
    logs = {
        node.name: [log.model_copy(update={"path": str(Path(log.path).relative_to(jobs.logs))}) for log in node.kept]
        for node in result.nodes
    }
    return copies.watched(jobs.logs, logs, result.timing)


def names(kept: list[KeptLog]) -> list[str]:
    return [Path(log.path).name for log in kept]


def test_samples_and_kernel_log_are_collected_like_a_log(jobs: Jobs) -> None:
    result = jobs.run({"a": "time.sleep(3)", "b": SLOWLY}, telemetry_s=0.2)
    assert result.completed
    for node in result.nodes:
        assert names(node.kept) == ["leader.log", "telemetry.jsonl", "kernel.log", "devices.log"]
        assert not any(log.incomplete for log in node.kept)
        assert node.notes == [] and node.left == []
    found = watched(jobs, result)
    for name in ("a", "b"):
        series, kernel = found.series[name], found.kernel[name]
        assert series is not None and kernel is not None
        assert series.incomplete == kernel.incomplete == ""
        assert series.end is not None and series.end.why == "the job is over"
        assert len(series.times) >= 2
        began, ended = (result.timing.clocks[name].at(when) for when in (series.times[0], series.times[-1]))
        slack = 1 + result.timing.clocks[name].uncertainty_s
        assert result.timing.started_at is not None and result.timing.finished_at is not None
        assert result.timing.started_at - slack < began <= ended < result.timing.finished_at + slack
    assert jobs.nothing_left("a", "b")


def test_the_steady_iterations_have_a_window_of_time(jobs: Jobs) -> None:
    result = jobs.run({"a": SLOWLY}, telemetry_s=0.2)
    numbers = [number for number, _ in result.timing.iterations]
    assert numbers == [1, 2, 3, 4, 5]
    iterations = [Iteration(iteration=number, total_iterations=5) for number in numbers]
    window = steady_window(result.timing, iterations, 2)
    when = dict(result.timing.iterations)
    assert window == (when[2], when[4])
    found = watched(jobs, result).telemetry(iterations, 2)["a"]
    assert found.window == "steady iterations" and found.samples >= 2


def test_without_being_asked_for_nothing_is_sampled(jobs: Jobs) -> None:
    result = jobs.run({"a": TRAIN})
    assert names(result.nodes[0].kept) == ["leader.log"]


def test_the_sampler_is_none_of_the_processes_that_tell_who_was_left(jobs: Jobs) -> None:
    result = jobs.run({"a": "time.sleep(0.5); sys.exit(3)"}, telemetry_s=0.2)
    assert result.first_failure is not None
    assert "still running" not in result.first_failure.text and "python" not in result.first_failure.text
    assert names(result.nodes[0].kept) == ["leader.log", "telemetry.jsonl", "kernel.log", "devices.log"]


def test_it_ends_with_a_job_that_is_stopped(jobs: Jobs) -> None:
    def stop() -> None:
        until(lambda: jobs.waiting("a", "b"), 60)
        jobs.why = "stopped by Ctrl-C"

    result = jobs.run({"a": WAIT, "b": WAIT}, act=stop, telemetry_s=0.2, start_timeout_s=120, timeout_s=240)
    assert result.outcome == "interrupted"
    assert all("telemetry.jsonl" in names(node.kept) for node in result.nodes)
    assert jobs.nothing_left("a", "b")


def test_it_ends_when_everything_of_the_run_is_killed(jobs: Jobs) -> None:
    def kill() -> None:
        until(lambda: jobs.waiting("a"), 60)
        hit(RUN, "a", signal.SIGKILL)

    jobs.run({"a": WAIT}, PATIENT, kill, telemetry_s=0.2, start_timeout_s=120, timeout_s=240)
    until(lambda: jobs.nothing_left("a"), 60)


def test_it_ends_when_its_watchdog_is_killed(jobs: Jobs) -> None:
    def kill() -> None:
        until(lambda: jobs.waiting("a"), 60)
        pid = jobs.nodes.watchdog("a", RUN)
        assert pid is not None
        signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)

    result = jobs.run({"a": WAIT}, PATIENT, kill, telemetry_s=0.2, start_timeout_s=120, timeout_s=240)
    assert not result.completed
    until(lambda: jobs.nothing_left("a"), 60)


def test_it_ends_when_the_controller_vanishes(jobs: Jobs) -> None:
    def vanish() -> None:
        until(lambda: jobs.waiting("a"), 60)
        jobs.nodes.lost.add("a")

    jobs.run({"a": WAIT}, QUICK, vanish, telemetry_s=0.2)
    until(lambda: not marked(RUN, "a"), 60)
