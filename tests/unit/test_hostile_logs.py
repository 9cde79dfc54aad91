"""Logs that are made to hurt: whatever stands in one, it is read in bounded time and memory, and judged."""

from __future__ import annotations

import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from shakedown.catalogue import entries
from shakedown.gates import NodeLog, judge_log, read_log
from shakedown.logs.iterations import LogReader, fields
from shakedown.logs.lines import Hosts
from shakedown.logs.signatures import FailureScanner, Scanner
from shakedown.logs.texts import MARKS as TEXT_MARKS
from shakedown.logs.texts import Texts
from shakedown.state.findings import Verdict
from tests.at_once import at_once
from tests.training_logs import first_failure, parse

SIGNATURES = (*entries("job"), *entries("rccl"))
EXPECT = {"throughput_per_gpu": 1.0, "tokens_per_gpu": 1.0, "elapsed_time_per_iteration": 1e9, "mem_usage": 1.0}
# One of each class that a pattern may repeat, and what begins an escape sequence.
RUNS = [*" \t\r01:=-./|[](a_e,%\0\x1bé"]
SMALL, TIMES = 400, 8
HEADER = " [2026-09-24 09:43:42] iteration        2/      20 | "


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def assert_linear(work: Callable[[int], Callable[[], object]], small: int = SMALL) -> None:
    """Eight times as much takes about eight times as long: a square would take sixty-four times. A measurement that a
    busy machine made dearer is repeated."""
    few, many = work(small), work(small * TIMES)
    for _ in range(3):
        short, long = seconds(few), seconds(many)
        if long <= 3 * TIMES * max(short, 0.001):
            return
    raise AssertionError(f"{short:.4f} s for {small}, {long:.4f} s for {TIMES} times as much")


def read(lines: Iterable[str]) -> NodeLog:
    return read_log([line + "\n" for line in lines])


def grown(begin: str, size: int) -> list[str]:
    """The beginning of something that a pattern looks for, and then too much of what it may repeat."""
    return [
        *(begin + run * (size // len(run)) + end for run in RUNS for end in ("", "x")),
        begin * (size // max(1, len(begin))),
        (begin + " ") * (size // (len(begin) + 1)),
    ]


def repeats(*patterns: str | None) -> bool:
    """Whether an expression repeats something without a limit, and so may take more than its share of time."""
    plain = [re.sub(r"\\.", "x", pattern or "") for pattern in patterns]
    return any(re.search(r"[*+]|\{\d*,?\d{2,}\}|,\}", pattern) for pattern in plain)


def test_what_repeats_is_told_from_what_does_not() -> None:
    assert all(map(repeats, ("a+", ".*?x", "x{3,}", r"\S{0,200}", "(a|b)+", r"\\+", r"\d{1,20}")))
    assert not any(map(repeats, (None, "a|b", r"\+", r"a\*b", "(?:a|b)?c", r"\d{1,3}", r"x{4}")))


@at_once("signature", [entry for entry in SIGNATURES if repeats(entry.pattern, entry.unless)])
def test_every_signature_takes_time_in_proportion_to_the_line(signature) -> None:
    def work(size: int) -> Callable[[], object]:
        # Of several anchors each has a share of the lines, another one than the next.
        step = min(len(signature.anchors), 3)
        lines = [line for at, text in enumerate(signature.anchors) for line in grown(text, size)[at % step :: step]]
        return lambda: [signature.matches(line) for line in lines]

    assert_linear(work, 200)  # hundreds of entries, each with dozens of lines


@pytest.mark.parametrize(
    "begin",
    [
        "Traceback (most recent call last):",
        "[rank1]: Traceback (most recent call last):",
        '  File "',
        '  File "a.py", line ',
        '  File "a.py", line 1, in ',
        "\u2502 a.py:1 in ",
        "    assert ",
        "Exception ignored in",
        "] Error waiting on exit barrier",
        "[",
        "3: ",
        "[a]",
        "[a] ",
        "\x1b[",
        "\x1b]0;",
        "torch.OutOfMemoryError",
    ],
)
def test_tracebacks_take_time_in_proportion_to_the_log(begin) -> None:
    def work(size: int) -> Callable[[], object]:
        lines = ["Traceback (most recent call last):\n", *grown(begin, size)]
        return lambda: [
            first_failure(lines),
            FailureScanner().batch(lines),
            list(map(Scanner(SIGNATURES, rdma=True).line, lines)),
        ]

    assert_linear(work)


@at_once("mark", TEXT_MARKS)
def test_texts_take_time_in_proportion_to_the_line(mark) -> None:
    def work(size: int) -> Callable[[], object]:
        line = f"{mark}error" * size
        return lambda: [Texts().closed(1, text, Hosts()) for text in (line, mark * size, f"a {line}")]

    assert_linear(work, 100)


@pytest.mark.parametrize(
    "begin",
    [
        "iteration",
        "iteration ",
        "iteration 1",
        "iteration 1/",
        "iteration 1/2",
        "iteration 1/2 |",
        "Training epoch 0, iteration ",
        "Training epoch 0, iteration 1/2 |",
        "|",
        "iteration | ",
        "Step Time : ",
        "Step Time : 1.0s GPU utilization: ",
        "utilization: throughput per GPU: ",
        "throughput per GPU: ",
        "[a]: throughput per GPU: ",
        "1: ",
        "\x1b[0m iteration 1/2 | ",
        "\x1b]0;iteration 1/2 | ",
        *(f"{HEADER}{name}: 1" for name in fields()),
        f"{HEADER}hip mem usage/free/total/usage_ratio: 1GB/1",
    ],
)
def test_the_parser_takes_time_in_proportion_to_the_line(begin) -> None:
    def work(size: int) -> Callable[[], object]:
        lines = [line + end for line in grown(begin, size) for end in ("\n", " |\n", "PU: iteration |\n")]
        return lambda: [LogReader().line(line) for line in lines]

    assert_linear(work)


def step(number: int, total: int, more: str = "lm loss: 1.0 | ") -> str:
    return f"iteration {number}/{total} | {more}number of skipped iterations: 0 | number of nan iterations: 0 |"


@pytest.mark.parametrize(
    "lines",
    [
        lambda n: [step(i, n) for i in range(1, n)],  # the last is missing
        lambda n: [step(i, n) for i in range(2, n + 1)],
        lambda n: [step(i, n) for i in range(n, 0, -1)],
        lambda n: [step(i, n) for i in range(2, n + 1, 2)],
        lambda n: [step(i, n) for i in range(3, n + 1, 2)],
        lambda n: [step(1, n)] * n,
        lambda n: [step(i, i) for i in range(1, n)],
        lambda n: [step(i, n, "") for i in range(1, n)],
        lambda n: [step(i, n, "lm loss: 1.0[rank1] | ") for i in range(1, n)],
        lambda n: [step(i, n, "loss scale: 65536.0 | ") for i in range(1, n)],
        lambda n: ["short"] * (20 * n),
        lambda n: [f"[rank{i}]: Traceback (most recent call last):" for i in range(n)],
        lambda n: [f"[rank{i}]: Exception ignored in" for i in range(n)],
    ],
)
def test_reading_and_judging_take_time_in_proportion_to_the_lines(lines) -> None:
    def work(size: int) -> Callable[[], object]:
        text = lines(size // 4)
        return lambda: judge_log({"a": read(text), "b": read(text[: len(text) // 2])}, EXPECT)

    assert_linear(work)


@pytest.mark.parametrize("total", ["3000000000", "1" + "0" * 17, "1" + "0" * 18, "9" * 5000], ids=len)
@pytest.mark.parametrize("wanted", [None, 20])
def test_the_number_that_a_line_counts_to_costs_nothing(total, wanted) -> None:
    text = [f"iteration 1/{total} | lm loss: 1.0 |", f"iteration {total}/{total} | lm loss: 1.0 |"]
    tracemalloc.start()
    gates = {gate.name: gate for gate in judge_log(read(text), EXPECT, wanted)}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert gates["iterations_complete"].verdict is Verdict.FAIL
    assert peak < 8 << 20


@pytest.mark.parametrize("falls_to", ["1e-320", "5e-324", "1e-300"])
def test_a_scale_that_falls_further_than_a_float_can_say_is_a_fault(falls_to) -> None:
    scales = ["4294967296.0", falls_to, falls_to]
    text = [f" iteration {i}/3 | lm loss: 2.0 | loss scale: {scale} |" for i, scale in enumerate(scales, 1)]
    gates = {gate.name: gate.verdict for gate in judge_log(read(text), {})}
    assert gates["no_skipped_or_nan"] is Verdict.FAIL


@at_once("value", ["1e308", "-1e308", "1e999", "-1e999", "nan", "1e38", "-0.0", "1e-320", "9" * 5000])
@at_once("name", fields())
def test_no_value_of_any_field_ends_in_anything_but_a_verdict(name, value) -> None:
    fields = {
        "elapsed time per iteration (ms)": "650.0",
        "global batch size": "16",
        "lm loss": "{}",
        "loss scale": "8.0",
    }
    fields[name] = value
    for bar in (" |", ""):
        body = " | ".join(f"{field}: {text}" for field, text in fields.items())
        text = [f"iteration {i}/9 | {body.replace('{}', str(9 - i))}{bar}" for i in range(1, 10)]
        gates = judge_log(read(text), EXPECT, seq_length=2048, world_size=8)
        assert len(gates) >= 11  # more where a norm of the gradient or a throughput is read
        list(parse(line + "\n" for line in text))


def test_what_no_machine_can_do_passes_no_gate() -> None:
    lines = [
        f"iteration {i}/9 | elapsed time per iteration (ms): -5.0 | mem usages: -1.0 |"
        f" throughput per GPU (TFLOP/s/GPU): 1e308 | tokens/sec/GPU: inf | lm loss: {9 - i} |"
        for i in range(1, 10)
    ]
    gates = {gate.name: gate for gate in judge_log(read(lines), EXPECT)}
    assert {name: gates[name].verdict for name in EXPECT} == dict.fromkeys(EXPECT, Verdict.FAIL)


def test_more_iterations_than_are_kept_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 5_000  # instead of the 100,000 that take 5 s
    for name in ("judge", "observed"):
        monkeypatch.setattr(sys.modules[f"shakedown.gates.{name}"], "MAX_ITERATIONS", most)
    count = most + 3
    log = read_log(
        "".join(step(i, count) + "\n" for i in range(first, min(first + 1000, count + 1)))
        for first in range(1, count, 1000)
    )
    assert (len(log.iterations), log.beyond, log.lines) == (most, 3, count)
    gates = {gate.name: gate for gate in judge_log(log, EXPECT)}
    assert gates.pop("no_failure_signature").verdict is Verdict.OK
    assert gates.pop("rccl_tuning").verdict is Verdict.OK
    assert gates.pop("ended_well").verdict is Verdict.OK
    assert {gate.verdict for gate in gates.values()} == {Verdict.UNKNOWN}
    assert str(most) in gates["loss_finite"].evidence


def test_more_lines_of_errors_than_are_read_leave_the_log_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shakedown.logs.signatures.MOST_LINES", 50)
    storm = [f"WARNING: ignoring RuntimeError: HIP error {number}\n" for number in range(60)]
    trained = [f" iteration {at:8d}/      20 | lm loss: {9 - at / 10:.6E} |\n" for at in range(1, 21)]
    verdicts = {gate.name: gate.verdict for gate in judge_log(read_log([*storm, *trained]), {})}
    assert verdicts["no_failure_signature"] is Verdict.UNKNOWN
    log = read_log([*storm, "Traceback (most recent call last):\n", '  File "a.py", line 1, in <module>\n'])
    assert "50 lines" in log.incomplete and not log.failures and log.lines == 62
    assert not read_log([*storm[:50], *trained]).incomplete


def test_tracebacks_of_more_ranks_than_there_can_be_are_a_failure() -> None:
    begin = "Traceback (most recent call last):\n"
    assert read_log([f"[rank{i}]: {begin}" for i in range(5000)]).failure.name == "traceback"


def test_a_quoted_line_is_short_and_cannot_move_a_terminal() -> None:
    match = first_failure([f"\x1b[31m\x1b]0;t\x07\x00 GPU Hang \x9b2J{'x' * 1_000_000}\n"])
    assert "GPU Hang" in match.line
    assert len(match.line) <= 400
    assert match.line.isprintable()
