"""The log parser: what it reads of each dialect, and what it refuses to read."""

from __future__ import annotations

import json
import math
import time
from dataclasses import fields
from pathlib import Path

import pytest

from shakedown.logs.iterations import Iteration, LogReader
from shakedown.logs.lines import MAX_LINE, LineSplitter
from tests.training_logs import parse, parse_line

LOGS = Path(__file__).parents[1] / "data" / "logs"
LINE = (
    " [2026-09-24 09:43:42] iteration        2/      20 | consumed samples:           32 | elapsed time per iteration"
    " (ms): 658.3 | mem usages: 0.5462 | throughput per GPU (TFLOP/s/GPU): 1441.4 | learning rate: 1.000000E-04 |"
    " global batch size:    16 | lm loss: 1.250274E+01 | loss scale: 1.0 | grad norm: 2.772 | number of skipped"
    " iterations:   0 | number of nan iterations:   0 |\n"
)
FIELDS = [
    "iteration",
    "total_iterations",
    "consumed_samples",
    "elapsed_ms",
    "tflops_per_gpu",
    "tokens_per_gpu_per_s",
    "tokens_per_s",
    "samples_per_s",
    "memory_fraction",
    "learning_rate",
    "global_batch_size",
    "lm_loss",
    "loss_scale",
    "grad_norm",
    "skipped_iterations",
    "nan_iterations",
]


def read(text: str | bytes) -> tuple[list[Iteration], LogReader]:
    reader = LogReader()
    return [*reader.feed(text), *reader.close()], reader


def test_a_line_of_the_rocm_fork_gives_all_its_fields_and_null_for_the_one_it_lacks():
    assert parse_line(LINE) == Iteration(
        iteration=2,
        total_iterations=20,
        consumed_samples=32,
        elapsed_ms=658.3,
        tflops_per_gpu=1441.4,
        tokens_per_gpu_per_s=None,
        memory_fraction=0.5462,
        learning_rate=1e-4,
        global_batch_size=16,
        lm_loss=12.50274,
        loss_scale=1.0,
        grad_norm=2.772,
        skipped_iterations=0,
        nan_iterations=0,
    )
    assert [field.name for field in fields(Iteration)] == FIELDS


@pytest.mark.parametrize(
    ("log", "elapsed", "tflops", "tokens", "memory", "scale"),
    [
        ("upstream", 655.9, 1446.9, None, None, 1.0),
        ("rocm", 655.9, 1446.9, None, 0.5462, 1.0),
        ("primus", 655.9, 1446.9, 6244.9, 0.6009, 1.0),
        ("primus_v26_5_1", 655.9, 1446.9, 6244.9, 0.6009, 1.0),
        ("primus_new", 655.9, 1446.9, 6244.9, 0.6009, 1.0),
        ("deepspeed", 655.9, 1446.87, None, None, 4096.0),
        ("fork_tok_s_gpu", 655.9, 1446.9, 6244.9, 0.8131, 1.0),
        ("fork_tokens_sec_gpu", 655.9, 1446.9, 6244.9, None, 1.0),
    ],
)
def test_each_dialect(log, elapsed, tflops, tokens, memory, scale):
    with (LOGS / f"{log}.log").open("rb") as file:
        iterations = list(parse(file))
    assert [it.iteration for it in iterations] == list(range(1, 21))
    assert iterations[4] == Iteration(
        iteration=5,
        total_iterations=20,
        consumed_samples=80,
        elapsed_ms=elapsed,
        tflops_per_gpu=tflops,
        tokens_per_gpu_per_s=tokens,
        samples_per_s=24.394 if log == "deepspeed" else None,
        memory_fraction=memory,
        learning_rate=5e-5,
        global_batch_size=16,
        lm_loss=11.5,
        loss_scale=scale,
        grad_norm=2.7,
        skipped_iterations=0,
        nan_iterations=0,
    )
    assert not read((LOGS / f"{log}.log").read_bytes())[1].damaged


def test_a_number_that_was_cut_is_no_number():
    cut = LINE[: LINE.index("658.3") + 2]
    assert cut.endswith("(ms): 65")
    assert parse_line(cut).elapsed_ms is None
    assert parse_line(cut + "\n").elapsed_ms is None
    assert parse_line(cut + "[rank3]: NCCL WARN something | else |\n").elapsed_ms is None
    assert read(cut)[1].damaged == [2]


def test_a_header_that_was_cut_is_no_iteration():
    assert parse_line(" iteration        2/      2") is None
    assert parse_line(" iteration        2/      2[rank1]: warning: x | y |\n") is None


def test_a_line_cut_between_two_fields_is_known_to_be_damaged():
    cut = LINE[: LINE.index(" lm loss")]
    assert read(cut)[1].damaged == [2]
    assert read(LINE)[1].damaged == []
    assert read(LINE.rstrip("\n"))[1].damaged == []  # only the line end is missing


def test_a_last_field_without_a_bar_counts_only_at_a_line_end():
    line = LINE.rstrip().rstrip("|") + "| tokens/sec/GPU: 9801.4"
    assert parse_line(line + "\n").tokens_per_gpu_per_s == 9801.4
    assert parse_line(line).tokens_per_gpu_per_s is None
    assert parse_line(line[:-3]).tokens_per_gpu_per_s is None
    memory = LINE.rstrip().replace("| mem usages: 0.5462 ", "")
    memory += " hip mem usage/free/total/usage_ratio: 153.81GB/102.17GB/255.98GB/60.09%"
    assert parse_line(memory).memory_fraction == 0.6009  # the percent sign closes it
    assert parse_line(memory[:-2]).memory_fraction is None


def test_output_of_another_rank_in_the_middle_of_a_line_spoils_only_the_field_it_hit():
    spoilt = LINE.replace("1.250274E+01", "1.25[rank5]: UserWarning: deprecated")
    iterations, reader = read(spoilt)
    assert iterations[0].lm_loss is None
    assert iterations[0].elapsed_ms == 658.3
    assert reader.damaged == [2]


def test_a_header_in_a_field_of_somebody_else_begins_a_line_also_where_the_form_is_known():
    line = LINE.replace("| loss scale", "| num zeros: {} | loss scale")
    reader = LogReader()
    assert reader.line(line.format("7.0")) == reader.line(line.format("8.0")) == [parse_line(line.format("7.0"))]
    assert [it.iteration for it in reader.line(line.format("iteration 3/20"))] == [2, 3]


def test_two_iteration_lines_glued_in_one_are_both_read():
    third = LINE.replace("   2/ ", "   3/ ").replace("658.3", "700.1")
    iterations, reader = read(LINE.rstrip() + third)
    assert [(it.iteration, it.elapsed_ms) for it in iterations] == [(2, 658.3), (3, 700.1)]
    assert reader.damaged == []
    torn = LINE[: LINE.index(" | mem usages")] + third
    iterations, reader = read(torn)
    assert [(it.iteration, it.elapsed_ms) for it in iterations] == [(2, None), (3, 700.1)]
    assert reader.damaged == [2]


def test_text_glued_behind_a_whole_line_does_not_damage_it():
    iterations, reader = read(LINE.rstrip() + "Number of parameters in transformer layers in billions:  6.98\n")
    assert iterations == [parse_line(LINE)]
    assert reader.damaged == []


@pytest.mark.parametrize("prefix", ["", "[default7]:", "7: ", "\x1b[32m[rank-7/8]\x1b[0m [INFO ] [trainer.py:2560] : "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\x1b[0m\n"])
def test_prefixes_colours_and_line_ends_change_nothing(prefix, end):
    assert parse_line(prefix + LINE.rstrip("\n") + end) == parse_line(LINE)


def test_a_progress_bar_before_the_line_changes_nothing():
    assert parse_line(" 10%|#   | 2/20 [00:01<00:09]\r" + LINE) == parse_line(LINE)


def test_infinite_and_nan_values_stay_what_they_are():
    line = LINE.replace("1.250274E+01", "INF").replace("grad norm: 2.772", "grad norm: nan")
    iteration = parse_line(line)
    assert iteration.lm_loss == math.inf
    assert math.isnan(iteration.grad_norm)
    assert json.loads(iteration.json())["lm_loss"] == "Infinity"  # not null: the line has a value


def test_the_wall_clock_throughput_counts_before_the_compute_throughput():
    line = LINE.replace("| mem usages", "| compute per GPU (TFLOP/s/GPU): 2000.0 | mem usages")
    assert parse_line(line).tflops_per_gpu == 1441.4


def test_lines_that_only_look_like_iterations_are_none():
    for line in (
        " validation loss at iteration 10 | lm loss value: 1.067000E+01 | lm loss PPL: 4.304500E+04 | \n",
        "  saving checkpoint at iteration      10 to /ckpt | torch_dist\n",
        "throughput per GPU: 12.0\n",
        "| iteration |\n",
        "",
    ):
        assert parse_line(line) is None
        assert read(line)[0] == []


def test_the_summary_of_the_script_is_kept_apart():
    iterations, reader = read((LOGS / "rocm.log").read_bytes())
    assert len(iterations) == 20
    assert reader.summary.throughput_per_gpu == pytest.approx(1443.047, abs=1e-3)
    assert reader.summary.elapsed_time_per_iteration == pytest.approx(657.647, abs=1e-3)
    assert reader.summary.tokens_per_gpu == 6228.264758
    assert reader.summary.mem_usage == 0.5462
    nan = read((LOGS / "rocm_other_node.log").read_bytes())[1].summary
    assert math.isnan(nan.throughput_per_gpu)
    assert math.isnan(nan.tokens_per_gpu)


def test_a_summary_that_was_cut_is_none():
    assert read("throughput per GPU: 14")[1].summary.throughput_per_gpu is None


def test_a_growing_log_gives_each_iteration_when_its_line_is_complete():
    reader = LogReader()
    assert reader.feed(LINE[:100].encode()) == []
    assert reader.feed(LINE[100:-1].encode()) == []
    assert reader.feed(b"\n")[0].iteration == 2
    assert reader.close() == []


def test_bytes_that_are_no_text_do_not_stop_the_reader():
    iterations, _ = read(b"\xff\xfe\x00 core \xc3\n" + LINE.encode() + b"\xf0\x9f")
    assert iterations == [parse_line(LINE)]


def test_a_line_of_just_the_longest_length_is_one():
    splitter = LineSplitter()
    assert splitter.feed("x" * MAX_LINE) == []
    assert splitter.feed("\n") == ["x" * MAX_LINE + "\n"]
    assert splitter.feed("x" * (MAX_LINE + 1)) == ["x" * (MAX_LINE + 1)]


@pytest.mark.parametrize("character", ["é", "€", "𝄞"])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_line_that_is_too_long_is_cut_through_no_character(character: str, before: int) -> None:
    text = "x" * before + character * 1_000_000
    splitter = LineSplitter()
    data = text.encode()
    pieces = [line for at in range(0, len(data), 65_537) for line in splitter.feed(data[at : at + 65_537])]
    assert pieces and "".join([*pieces, *splitter.close()]) == text


def test_a_stream_without_line_ends_does_not_fill_the_memory():
    splitter = LineSplitter()
    pieces = [line for _ in range(40) for line in splitter.feed("x" * 100_000)]
    assert len(pieces) == 3
    assert all(len(piece) <= MAX_LINE + 100_000 for piece in pieces)
    assert sum(map(len, pieces)) + sum(map(len, splitter.close())) == 4_000_000


@pytest.mark.parametrize(
    "line",
    [
        f" iteration 2/20 | lm loss: {'1' * 200_000}x |\n",
        f"{'[]' * 200_000}x throughput per GPU: 1\n",
        f"{'[a] ' * 50_000}throughput per GPU: x\n",
        " iteration 2/ 20 |" * 20_000 + "\n",
    ],
)
def test_no_line_keeps_the_reader_busy(line):
    start = time.process_time()
    read(line)
    assert time.process_time() - start < 20


def test_a_long_log_is_read_fast_enough_to_follow_a_job():
    chunk = ("[rank3]: some ordinary line of a training log, with a few words and 12345\n" * 1000 + LINE).encode()
    reader, start = LogReader(), time.process_time()
    assert sum(len(reader.feed(chunk)) for _ in range(100)) == 100
    assert time.process_time() - start < 2  # takes about 0.1 s; lines of no interest must not meet the regexes


def test_of_two_names_for_one_figure_the_better_one_counts_on_every_line():
    lines = [
        f" iteration {at}/3 | elapsed time per iteration (s): 9.{at} | elapsed time per iteration (ms): 5{at}.5 |\n"
        for at in (1, 2, 3)
    ]
    for some in (lines, [line.replace("(s)", "x").replace("(ms)", "(s)").replace("x", "(ms)") for line in lines]):
        reader = LogReader()
        together = [it.elapsed_ms for line in some for it in reader.line(line)]
        assert together == [it.elapsed_ms for line in some for it in LogReader().line(line)]
        assert len(set(together)) == 3
