"""What must hold for the parser whatever the log: no wrong numbers, no matter where it is cut, mixed or chunked."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby, pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.catalogue import entries
from shakedown.evidence.stragglers.model import WindowReader
from shakedown.gates import judge_log, read_log
from shakedown.gates.iterations import iterations_complete
from shakedown.logs.iterations import Iteration, LogReader, fields
from shakedown.logs.job_shape import JobShapeReader
from shakedown.logs.lines import as_text, split
from shakedown.logs.metrics import METRICS
from shakedown.logs.signatures import FailureScanner, Scanner
from tests.gates import training
from tests.training_logs import parse, parse_line

LOGS = sorted((Path(__file__).parents[1] / "data" / "logs").glob("*.log"))
DIALECTS = [
    "upstream",
    "rocm",
    "primus",
    "primus_v26_5_1",
    "primus_new",
    "deepspeed",
    "fork_tok_s_gpu",
    "fork_tokens_sec_gpu",
]
LINES = [
    next(line for line in path.read_text().splitlines(keepends=True) if parse_line(line))
    for path in LOGS
    if path.stem in DIALECTS
]
HEADER, *FIELDS = [
    "[2026-09-24 09:43:42] iteration        2/      20",
    "consumed samples:           32",
    "elapsed time per iteration (ms): 658.3/660.1",
    "mem usages: 0.5462",
    "throughput per GPU (TFLOP/s/GPU): 1441.4",
    "tokens per GPU (tokens/s/GPU): 9801.4/9807.3",
    "learning rate: 1.000000E-04",
    "global batch size:    16",
    "lm loss: 1.250274E+01",
    "loss scale: 1.0",
    "grad norm: 2.772",
    "number of skipped iterations:   0",
    "number of nan iterations:   0",
]


def agrees(part: Iteration | None, whole: Iteration) -> bool:
    return part is None or all(value is None or value == getattr(whole, name) for name, value in asdict(part).items())


def read(chunks: list[bytes]) -> tuple[list[str], list[int], str]:
    reader = LogReader()
    iterations = [it for chunk in chunks for it in reader.feed(chunk)] + reader.close()
    return [it.json() for it in iterations], reader.damaged, reader.summary.model_dump_json()


def test_every_dialect_is_among_the_lines():
    assert len(LINES) == len(DIALECTS)


def test_a_line_cut_anywhere_gives_no_wrong_number():
    for line in LINES:
        whole = parse_line(line)
        assert all(agrees(parse_line(line[:end]), whole) for end in range(len(line)))


@given(
    st.sampled_from(LINES), st.data(), st.sampled_from(["[rank5]: UserWarning: x", "W0924 09:43 a | b |", "\n", "\x00"])
)
def test_output_that_lands_anywhere_in_a_line_gives_no_wrong_number(line, data, intruder):
    line = line.split("  | rocm mem usage")[
        0
    ]  # Primus has two memory figures: the second is right where the first is lost
    at = data.draw(st.integers(0, len(line)))
    assert agrees(parse_line(line[:at] + intruder + line[at:]), parse_line(line))


@given(st.sampled_from(LOGS), st.lists(st.integers(0, 20_000), max_size=20))
def test_chunks_of_any_size_give_the_same(path, cuts):
    text = path.read_bytes()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert read([text[a:b] for a, b in pairwise(edges)]) == read([text])


@given(
    st.permutations(FIELDS), st.lists(st.sampled_from(["num zeros: 960902016.0", "params norm: 1.5", "MoE aux: a:b"]))
)
def test_fields_come_in_any_order_among_unknown_ones(fields, unknown):
    line = " | ".join([HEADER, *unknown, *fields]) + " |\n"
    assert parse_line(line) == parse_line(" | ".join([HEADER, *FIELDS]) + " |\n")


@given(
    st.floats(0, 1e9).map(lambda value: round(value, 1)),
    st.floats(allow_nan=False).map(lambda value: float(f"{value:.6E}")),
    st.integers(0, 10**12),
)
def test_what_megatron_prints_is_what_is_read(elapsed, loss, samples):
    line = (
        f" iteration {3:8d}/{9:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {elapsed:.1f} |"
    )
    iteration = parse_line(f"{line} lm loss: {loss:.6E} |\n")
    assert (iteration.consumed_samples, iteration.elapsed_ms, iteration.lm_loss) == (samples, elapsed, loss)


# What a reader looks for, so that random logs reach beyond its first line.
PIECES = st.sampled_from(
    [
        *(line.encode() for line in LINES),
        *(f"{name}: ".encode() for name in fields()),
        *(text.encode() for group in (entries("job"), entries("rccl")) for entry in group for text in entry.anchors),
        *b"iteration 1/3;Training epoch 0, iteration 0/2 | ;lm loss ;nan;1e308;inf;-1;0;\x1b[;\x1b]0;\r;\0".split(b";"),
        b"\n",
        b" | ",
        b" iteration 999999999999999999/999999999999999999 | ",
        b" iteration 1/3000000000 | lm loss: 1.0 | loss scale: 4294967296.0 | number of skipped iterations: 1 |\n",
        b"Traceback (most recent call last):\n",
        b"Step Time : 1e308s GPU utilization: 1e308TFLOP/s/GPU\n",
        b"throughput per GPU: nan\n",
        b"[rank1]: ",
        b"9" * 5000,
        b"node7:12:13 [0] NCCL INFO x\n10:00:01 [0] NCCL node8:1:2 [3] NCCL INFO comm 0x1 nRanks 16 nNodes 2\n",
        b"own time: rank 3 of 8, steps 1 to 9, 12.5 ms each, waiting 1.0 ms\n",
    ]
)


@given(st.lists(st.binary(max_size=200) | PIECES), st.lists(st.binary(max_size=200) | PIECES))
@settings(max_examples=150, deadline=None)
def test_no_input_stops_the_reader_or_the_judge(chunks, others):
    logs = {"a": read_log(chunks), "b": read_log(others), "c": None}
    expect = dict.fromkeys(METRICS, 1.0)
    for some in (logs, {"a": logs["a"]}, {"a": logs["a"], "b": logs["b"]}):
        for how in ({}, {"iterations": 3, "seq_length": 2048, "world_size": 8, "rdma": True}):
            gates = judge_log(some, expect, **how)
            assert all(gate.verdict in ("ok", "fail", "unknown") for gate in gates)
            assert all(gate.model_dump_json() for gate in gates)
    list(parse(chunks))


@given(st.lists(st.integers(1, 12), max_size=12), st.integers(1, 12))
def test_a_run_is_complete_where_its_lines_are_one_to_the_last_and_nowhere_else(numbers, total):
    lines = [Iteration(iteration=number, total_iterations=total) for number in numbers]
    gate = iterations_complete(training(lines, total))
    if numbers[:1] == [1] and len(numbers) > 2 and numbers[1] > 2 and numbers[2] == 2 * numbers[1]:
        numbers = numbers[1:]  # newer versions print the first at once
    interval = numbers[0] if len(numbers) > 1 else 1
    regular = bool(numbers) and numbers == list(range(interval, total + 1, interval))
    expected = "fail" if not regular else "ok" if total % interval == 0 else "unknown"
    assert gate.verdict == expected


# Lines as programs print them again and again, with what may befall one of them.
TWINS = st.sampled_from(LINES).flatmap(
    lambda line: st.tuples(
        st.just(line),
        st.integers(0, len(line)),
        st.sampled_from(
            ["", "", "", " ", "7", "|", ".", "nan", "None", " iteration 3/9 | ", "\x1b[0m", "\t", "٣", "9" * 250]
        ),
        st.integers(0, 3),
    )
)


def spoiled(line: str, at: int, more: str, less: int) -> str:
    return line[:at] + more + line[at + less :]


@given(st.lists(TWINS, min_size=2, max_size=12))
@settings(deadline=None)
def test_a_line_read_by_the_form_of_one_before_says_what_it_says_alone(twins):
    reader = LogReader()
    for line in [*(line for line, *_ in twins), *(spoiled(*twin) for twin in twins)]:
        alone = LogReader()
        found, expected = reader.line(line), alone.line(line)
        assert [it.json() for it in found] == [it.json() for it in expected]
        assert reader.damaged == alone.damaged
        reader.damaged.clear()


@given(st.lists(st.binary(max_size=60) | PIECES, max_size=40))
@settings(deadline=None)
def test_passing_over_lines_without_a_mark_changes_nothing_that_is_read(pieces):
    text = b"".join(pieces)
    lines = split(as_text(text))
    failure, tuning, shape, windows = FailureScanner(), Scanner(entries("rccl"), True), JobShapeReader(), WindowReader()
    reader, iterations = LogReader(), []
    failure.hosts.block(text)
    for line in lines:
        found = reader.line(line)
        iterations += found
        if found:
            failure.went_on()
            failure.hosts.iteration(line)
        for each in (failure, tuning, shape, windows):
            each.line(line)
    failure.close()
    shape.hosts(text)
    log = read_log([text])
    once = [text for text, _ in groupby(it.json() for it in iterations)]
    assert [it.json() for it in log.iterations] == once
    assert (log.lines, log.failures, log.rccl) == (len(lines), tuple(failure.matches), tuple(tuning.matches))
    assert (log.harmless, log.damaged) == (tuple(failure.harmless), tuple(reader.damaged))
    assert (log.shape, log.measured) == (shape.shape(), windows.measured())
    assert log.summary.model_dump_json() == reader.summary.model_dump_json()
