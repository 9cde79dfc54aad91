"""What a person sees of a running job."""

from __future__ import annotations

import io
import math
import time
from dataclasses import replace

import pytest
from rich.console import Console

from shakedown.jobs.launch import Event
from shakedown.jobs.progress import Progress, ProgressOfEach
from shakedown.logs.iterations import Iteration


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def shown(events: list[Event], *, terminal: bool = False, every_s: float = 0) -> str:
    output = io.StringIO()
    progress = Progress(every_s, Console(file=output, force_terminal=terminal, width=120, height=50, highlight=False))
    for event in events:
        progress(event)
    return output.getvalue()


def step(number: int, **more: float) -> Event:
    values = {"elapsed_ms": 2000.0, "lm_loss": 2.5, "tflops_per_gpu": 412.34, **more}
    return Event("iteration", "", "b", Iteration(iteration=number, total_iterations=40, **values))


def test_a_line_holds_the_figures_and_the_time_left() -> None:
    line = shown([step(10, tokens_per_gpu_per_s=8731.2)])
    assert "iteration 10/40 | loss 2.5000 | 412.3 TFLOP/s/GPU | 8,731 tokens/s/GPU | ETA 0:01:00" in line
    assert "iteration 10/40 | loss 2.5000 | 412.3 TFLOP/s/GPU | 2,000 ms | ETA 0:01:00" in shown([step(10)])


@pytest.mark.parametrize("kind", ["failure", "device", "note", "end"])
def test_no_line_is_wider_than_100_columns(kind: str) -> None:
    text = "killed (line 3 of its log): " + "E1129 elastic/multiprocessing/api.py:984] failed (exitcode: -9) " * 4
    steps = [step(number, tokens_per_gpu_per_s=18731.2) for number in (1, 1000)]
    for output in (shown([*steps, Event(kind, text, "node01.rack7")]), each([("a", Event("failure", text, "a"))])):
        assert max(map(len, output.splitlines())) <= 100
        assert "killed (line 3 of its log): E1129 elastic" in output and output.rstrip().endswith("...")


def test_a_loss_that_is_missing_is_said_to_be() -> None:
    event = Event("iteration", "", "b", Iteration(iteration=3, total_iterations=40))
    assert "iteration 3/40 | loss missing\n" in shown([event])


def test_without_a_terminal_only_the_first_the_last_and_a_few_lines_are_written() -> None:
    lines = shown([step(number) for number in range(1, 41)], every_s=600).splitlines()
    assert [line.split()[2] for line in lines] == ["1/40", "40/40"]


def test_a_terminal_that_cannot_write_over_a_line_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    lines = shown([step(number) for number in range(1, 41)], terminal=True, every_s=600).splitlines()
    assert [line.split()[2] for line in lines] == ["1/40", "40/40"]


def test_lines_that_another_node_repeats_are_shown_once() -> None:
    repeated = [replace(step(number), node="a") for number in (1, 2)]
    assert shown([step(1), step(2), *repeated]).count("iteration") == 2


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308, 0.0, -1.0])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_figure_that_cannot_be_hides_nothing(value: float, terminal: bool) -> None:
    fields = ("elapsed_ms", "lm_loss", "tflops_per_gpu", "tokens_per_gpu_per_s")
    output = shown([step(1, **{field: value}) for field in fields] + [step(2)], terminal=terminal)
    assert "iteration 2/40 | loss 2.5000 | 412.3 TFLOP/s/GPU" in output


def test_a_number_that_cannot_be_does_not_hide_those_that_follow() -> None:
    absurd = Event("iteration", "", "b", Iteration(iteration=10**17, total_iterations=10**17))
    assert "iteration 2/40" in shown([step(1), absurd, step(2)])
    assert "ETA" not in shown(
        [replace(step(1), iteration=Iteration(iteration=1, total_iterations=10**17, elapsed_ms=5e8))]
    )


def test_what_a_node_says_cannot_move_the_terminal() -> None:
    output = shown([Event("phase", "setup: \x1b]0;title\x07\x1b[2Jdone [/] [bold]", "b")])
    assert "b: setup: done [/] [bold]" in output
    assert "\x1b" not in output


def test_a_failure_ends_the_live_line_and_names_the_node_once() -> None:
    output = shown([step(1), Event("failure", "b: killed (line 3 of its log)", "b")], terminal=True)
    assert output.count("b: killed") == 1
    assert "FAILED" in output
    assert output.index("iteration 1/40") < output.index("FAILED")


def each(events: list[tuple[str, Event]], nodes: str = "abc", *, terminal: bool = False, every_s: float = 600) -> str:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120, height=50, highlight=False)
    progress = ProgressOfEach(every_s, console)
    for node in nodes:
        progress.of(node)(Event("phase", f"preparing {node}"))
    for node, event in events:
        progress.of(node)(event)
    return output.getvalue()


def test_jobs_at_the_same_time_share_a_line_that_names_the_slowest() -> None:
    shown = each([("a", step(9)), ("b", step(3)), ("c", step(5))], every_s=0).splitlines()
    assert shown[0] == "    each: 0 of 3 done, slowest b before its first iteration"
    assert shown[-1] == "    each: 0 of 3 done, slowest b at iteration 3/40"


def test_a_job_that_is_over_is_told_once_and_counted() -> None:
    end = Event("end", "completed: every leader exited with 0")
    shown = each([("a", step(9)), ("b", step(40)), ("b", end), ("c", step(2)), ("c", end), ("a", end)]).splitlines()
    assert [line for line in shown if "completed" in line] == [
        f"    each: {node}: completed: every leader exited with 0" for node in "bca"
    ]
    assert len(shown) == 4, "of how it stands there is a line now and then"
    live = each([("b", end), ("c", step(2))], terminal=True)
    assert "1 of 3 done, slowest a before its first iteration" in live


def test_the_first_line_comes_on_a_machine_that_has_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 2.0)  # seconds since boot, as Linux counts
    assert "slowest a at iteration 2/40" in each([("a", step(2))], nodes="a")


def test_a_node_that_fails_is_named_though_others_go_on() -> None:
    shown = each([("a", Event("failure", "a: killed (line 3 of its log)", "a")), ("a", Event("end", "failed: killed"))])
    assert shown.count("FAILED a: killed") == 1 and shown.count("killed") == 1, "the end says no more"


def test_phases_of_many_jobs_are_not_shown() -> None:
    assert each([], every_s=0) == ""


def test_a_node_whose_job_never_began_is_not_waited_for() -> None:
    end = Event("end", "completed: every leader exited with 0")
    assert "1 of 2 done, slowest b" in each([("a", end)], "ab", every_s=0)
