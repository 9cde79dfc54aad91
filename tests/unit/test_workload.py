"""The small GPT: one real training of two ranks, and its parts."""

from __future__ import annotations

import ast
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from itertools import islice
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

import numpy as np
import pytest

from shakedown.desired.models import Smoke
from shakedown.gates import judge_log, read_log
from shakedown.jobs.workload.arguments import Arguments
from shakedown.logs.figures import loss_scale
from shakedown.logs.iterations import Iteration as ParsedIteration
from shakedown.recipes.options import choose
from shakedown.recipes.recipe import recipes
from shakedown.state.findings import Verdict
from tests import torchrun
from tests.training_logs import parse_line

if TYPE_CHECKING:  # torch is imported when a test begins: each process of a parallel run collects this file
    from shakedown.jobs.workload.data import MockData
    from shakedown.jobs.workload.report import Iteration

STEPS = 12


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What two data-parallel ranks print, run from a copy: the folder has to work wherever it lands on a node."""
    folder = tmp_path_factory.mktemp("node") / "workload-0.1 copy"
    shutil.copytree(torchrun.WORKLOAD, folder, ignore=shutil.ignore_patterns("__pycache__"))
    arguments = f"{torchrun.TINY} --lr 5e-3 --train-iters {STEPS} --log-straggler"
    code, output = torchrun.train_forked(arguments, script=folder / "train.py")
    assert code == 0, output
    yield output


@pytest.fixture(scope="module")
def lines(output: str) -> list[ParsedIteration]:
    return torchrun.iterations(output)


def test_every_iteration_is_printed_once_and_with_every_field(lines: list[ParsedIteration]) -> None:
    assert [(line.iteration, line.total_iterations) for line in lines] == [(n, STEPS) for n in range(1, STEPS + 1)]
    assert [line.consumed_samples for line in lines] == [16 * n for n in range(1, STEPS + 1)]
    for line in lines:
        fields = asdict(line)
        assert [name for name, value in fields.items() if value is None] == ["tokens_per_s", "samples_per_s"], line
        assert (line.learning_rate, line.loss_scale, line.skipped_iterations, line.nan_iterations) == (5e-3, 1.0, 0, 0)


def test_a_cpu_trains_in_full_precision(output: str) -> None:
    assert "gloo on cpu, float32; world size 2 = " in output


def test_the_model_learns(lines: list[ParsedIteration]) -> None:
    losses = [line.lm_loss or math.nan for line in lines]
    assert losses[0] == pytest.approx(math.log(128), abs=0.2)  # before it has learned anything
    assert linear_regression(range(STEPS), losses).slope < -0.1
    assert losses[-1] < losses[0] - 1.5
    assert all((line.grad_norm or 0) > 0 for line in lines)


def test_the_figures_come_from_the_clock_and_the_process(lines: list[ParsedIteration]) -> None:
    sizes = {"seq_length": 64, "hidden_size": 64, "ffn_hidden_size": 128, "num_layers": 2, "vocab_size": 128}
    flops = Arguments(global_batch_size=16, **sizes).flops
    total_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in lines:
        assert line.elapsed_ms is not None
        assert line.tokens_per_gpu_per_s == pytest.approx(16 * 64 * 1000 / (line.elapsed_ms * 2), rel=0.02)
        assert line.tflops_per_gpu == pytest.approx(flops / (line.elapsed_ms * 1e9 * 2), rel=0.02, abs=1e-4)
        assert 1e8 < (line.memory_fraction or 0) * total_memory < 4e9  # torch alone has 200 MB
    assert len({line.elapsed_ms for line in lines}) > STEPS / 2


def test_the_summary_leaves_out_two_iterations_of_warm_up_and_the_last(
    output: str, lines: list[ParsedIteration]
) -> None:
    steady = lines[2:-1]
    elapsed_ms = fmean(line.elapsed_ms or math.nan for line in steady)
    printed = torchrun.summary(output)
    assert printed["elapsed time per iteration"] == pytest.approx(elapsed_ms, abs=0.1)
    assert printed["tokens/GPU/s"] == pytest.approx(16 * 64 * 1000 / (elapsed_ms * 2), rel=0.02)
    assert printed["throughput per GPU"] == pytest.approx(fmean(i.tflops_per_gpu or math.nan for i in steady), abs=2e-4)
    assert printed["mem usages"] == pytest.approx(fmean(i.memory_fraction or math.nan for i in steady), abs=2e-4)


def test_each_rank_tells_all_of_its_time(output: str) -> None:
    """Steps by two and two after the warm-up, up to the last pair that is whole."""
    log = read_log([output])
    assert sorted((w.rank, w.first, w.last) for w in log.measured.own) == [
        (rank, first, first + 1) for rank in (0, 1) for first in range(3, STEPS, 2)
    ]
    elapsed = {line.iteration: line.elapsed_ms or 0 for line in log.iterations}
    told = re.findall(r"rank 1 of 2, steps (\d+) to \d+, ([\d.]+) ms each, waiting ([\d.]+)", output)
    assert len(told) == len(range(3, STEPS, 2))
    for first, own, waiting in told:
        both = (elapsed[int(first)] + elapsed[int(first) + 1]) / 2  # the last rank prints the iterations
        assert float(own) + float(waiting) == pytest.approx(both, abs=0.2)
        assert 0 < float(waiting) < both


def test_the_recipe_in_half_precision_searches_for_a_loss_scale_and_then_learns() -> None:
    """The recipe's own options, with Megatron-Core's DynamicGradScaler on this machine."""
    smoke = Smoke(recipe="gpt-small-fp16", options={"global_batch_size": 16})
    chosen, problems = choose(recipes()[smoke.recipe], smoke)
    assert not problems
    code, output = torchrun.train_forked(" ".join(chosen.arguments()))
    assert code == 0, output
    lines = torchrun.iterations(output)
    scale = loss_scale(lines)
    assert scale.ended and not scale.later
    assert 5 < scale.lines == scale.skipped < 20
    assert lines[0].loss_scale == 2.0**32, "the first overflow leaves it as it is"
    assert [line.lm_loss is None for line in lines] == [line.iteration <= scale.lines for line in lines]
    assert [line.grad_norm is None for line in lines] == [line.iteration <= scale.lines for line in lines]
    gates = judge_log(read_log(output.splitlines(keepends=True)), {}, 30)
    timed = {"steady"}  # how even the iterations are is the machine's affair: other tests run beside this one
    assert [gate.name for gate in gates if gate.verdict is not Verdict.OK and gate.name not in timed] == []


def test_in_half_precision_a_scale_that_is_low_enough_is_not_searched_for() -> None:
    code, output = torchrun.train_forked(f"{torchrun.TINY} --fp16 --initial-loss-scale 4096 --train-iters 3", ranks=1)
    assert code == 0, output
    assert [(line.loss_scale, line.skipped_iterations) for line in torchrun.iterations(output)] == [(4096.0, 0)] * 3


@pytest.fixture
def mock_data() -> type[MockData]:
    from shakedown.jobs.workload.data import MockData

    return MockData


def test_samples_that_are_used_up_come_again(mock_data: type[MockData]) -> None:
    import torch

    cpu = torch.device("cpu")
    data = mock_data(vocab_size=64, seq_length=16, seed=1, count=3)
    batches = data.micro_batches(2, 0, 1, cpu)
    seen = torch.cat([next(batches) for _ in range(3)])
    assert np.array_equal(seen.numpy(), data.samples([0, 1, 2, 0, 1, 2]))


def test_nothing_but_what_a_node_has_is_imported() -> None:
    allowed = {"torch", "numpy", "megatron"} | sys.stdlib_module_names
    for path in torchrun.WORKLOAD.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            assert {name.partition(".")[0] for name in names} <= allowed, path.name


def test_flops_are_those_of_megatrons_formula() -> None:
    # By hand, per token: each of 2 layers QKV 3*64*64 = 12288, scores 32*64 = 2048, projection 64*64 = 4096, gated MLP
    # 3*64*128 = 24576, together 43008; logits 64*128 = 8192; times 2 (multiply, add) times 3 (forward, two gradients).
    # 6 * (2*43008 + 8192) = 565248, times 4 sequences of 32 tokens.
    sizes = {"seq_length": 32, "hidden_size": 64, "ffn_hidden_size": 128, "num_layers": 2, "vocab_size": 128}
    flops = Arguments(global_batch_size=4, **sizes).flops
    assert flops == 72_351_744
    wider = Arguments(global_batch_size=4, **{**sizes, "ffn_hidden_size": 256}).flops
    assert wider - flops == 2 * 6 * 3 * 64 * 128 * 4 * 32


def test_all_that_does_not_fit_is_said_at_once() -> None:
    wrong = Arguments(tensor_parallel=3, pipeline_parallel=1, global_batch_size=10, vocab_size=100, num_layers=4)
    errors = "\n".join(wrong.errors(world_size=6))
    for flag in ("--num-attention-heads: 4", "--vocab-size: 100", "--global-batch-size: 10", "MLP"):
        assert flag in errors
    assert Arguments(tensor_parallel=2).errors(world_size=3)
    assert Arguments(micro_batch_size=0, lr=float("nan")).errors(world_size=1) == [
        "--micro-batch-size: 0 is not above 0",
        "--lr: nan is not a finite number above 0",
    ]
    assert Arguments(tensor_parallel=2, pipeline_parallel=2).errors(world_size=8) == []
    assert Arguments(initial_loss_scale=1.0, min_loss_scale=1.0).errors(world_size=1) == []
    (error,) = Arguments(initial_loss_scale=1.0, min_loss_scale=2.0).errors(world_size=1)
    assert error.startswith("--initial-loss-scale: 1 is not between --min-loss-scale 2")


def test_a_rank_with_unusable_arguments_says_so_and_fails() -> None:
    code, output = torchrun.train_forked("--global-batch-size 10")
    assert code != 0
    assert "--global-batch-size: 10 is not divisible by --micro-batch-size x data parallel = 8" in output


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_layout_trains_on_the_same_global_batches(mock_data: type[MockData], replicas: int) -> None:
    import torch

    data = mock_data(vocab_size=64, seq_length=16, seed=1)
    cpu = torch.device("cpu")
    iterators = [data.micro_batches(2, rank, replicas, cpu) for rank in range(replicas)]
    seen = torch.cat([next(each) for _ in range(8 // replicas) for each in iterators])
    assert np.array_equal(seen.numpy(), data.samples(list(range(16))))


def test_tokens_follow_their_predecessor_nine_times_in_ten(mock_data: type[MockData]) -> None:
    tokens = mock_data(vocab_size=64, seq_length=2000, seed=1).samples([0, 1, 2, 3])
    assert tokens.shape == (4, 2001)
    assert (tokens >= 0).all() and (tokens < 64).all()
    follows = np.random.default_rng(1).permutation(64)[tokens[:, :-1]]
    assert (follows == tokens[:, 1:]).mean() == pytest.approx(0.9 + 0.1 / 64, abs=0.02)


@pytest.fixture
def iteration() -> Iteration:
    from shakedown.jobs.workload.report import Iteration

    return Iteration(
        number=2,
        total=20,
        global_batch_size=16,
        seq_length=128,
        world_size=2,
        elapsed_ms=658.3,
        flops=10**12,
        memory_fraction=0.5462,
        learning_rate=1e-4,
        lm_loss=12.50274,
        loss_scale=1.0,
        grad_norm=2.772,
        skipped=0,
        nan=0,
    )


def test_the_line_is_that_of_the_rocm_fork(iteration: Iteration) -> None:
    assert iteration.line(datetime(2026, 9, 24, 9, 43, 42)) == (
        " [2026-09-24 09:43:42] iteration        2/      20 | consumed samples:           32 |"
        " elapsed time per iteration (ms): 658.3 | mem usages: 0.5462 | throughput per GPU (TFLOP/s/GPU): 0.7595 |"
        " tokens per GPU (tokens/s/GPU): 1555.5 | learning rate: 1.000000E-04 | global batch size:    16 |"
        " lm loss: 1.250274E+01 | loss scale: 1.0 | grad norm: 2.772 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |"
    )


def test_a_skipped_iteration_has_neither_loss_nor_norm(iteration: Iteration) -> None:
    line = parse_line(replace(iteration, skipped=1, grad_norm=None).line(datetime.now()) + "\n")
    assert line is not None
    assert (line.lm_loss, line.grad_norm, line.skipped_iterations) == (None, None, 1)


def test_a_nan_loss_is_left_out_and_an_infinite_one_is_not(iteration: Iteration) -> None:
    nan = parse_line(replace(iteration, lm_loss=math.nan, nan=1).line(datetime.now()) + "\n")
    infinite = parse_line(replace(iteration, lm_loss=math.inf, nan=1).line(datetime.now()) + "\n")
    assert nan is not None and nan.lm_loss is None and nan.nan_iterations == 1
    assert infinite is not None and infinite.lm_loss == math.inf


@pytest.mark.parametrize("count", [0, 3])
def test_too_few_iterations_have_no_mean(iteration: Iteration, count: int) -> None:
    from shakedown.jobs.workload.report import summary

    assert all(line.endswith(": nan") for line in summary(list(islice([iteration] * 9, count))))
