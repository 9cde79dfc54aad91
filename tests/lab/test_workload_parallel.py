"""The small GPT in every parallel layout, over two agents, and when something dies."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import linear_regression

import psutil
import pytest

from tests import torchrun

pytestmark = pytest.mark.lab

STEPS = 12
ARGUMENTS = f"{torchrun.TINY} --lr 5e-3 --train-iters {STEPS}"
ENDLESS = f"{torchrun.TINY} --train-iters 1000000"


def losses(output: str) -> list[float]:
    found = [line.lm_loss or math.nan for line in torchrun.iterations(output)]
    assert len(found) == STEPS, output
    return found


@pytest.fixture(scope="module")
def reference() -> list[float]:
    """The losses of a single rank: no parallelism at all."""
    code, output = torchrun.train_forked(ARGUMENTS, ranks=1)
    assert code == 0, output
    return losses(output)


@pytest.mark.parametrize("layout", ["", "--tensor-parallel 2"])
def test_data_and_tensor_parallel_runs_have_the_losses_of_a_single_rank(reference: list[float], layout: str) -> None:
    code, output = torchrun.train_forked(f"{ARGUMENTS} {layout}")
    assert code == 0, output
    assert losses(output) == pytest.approx(reference, rel=1e-3)


def test_a_pipeline_of_two_stages_learns_as_well(reference: list[float]) -> None:
    code, output = torchrun.train_forked(f"{ARGUMENTS} --pipeline-parallel 2")
    assert code == 0, output
    found = losses(output)
    assert found[0] == pytest.approx(math.log(128), abs=0.2)
    assert linear_regression(range(STEPS), found).slope < -0.1
    assert found[-1] == pytest.approx(reference[-1], rel=0.1)  # its stages draw other weights


@pytest.mark.long
def test_tensor_and_data_parallel_over_two_agents(reference: list[float]) -> None:
    port = torchrun.free_port()
    agents = [
        torchrun.start(f"{ARGUMENTS} --tensor-parallel 2", nodes=2, node_rank=rank, port=port) for rank in range(2)
    ]
    first, last = (agent.communicate(timeout=180)[0] for agent in agents)
    assert [agent.returncode for agent in agents] == [0, 0], first + last
    assert losses(last) == pytest.approx(reference, rel=1e-3)
    assert not torchrun.iterations(first)  # the last global rank alone prints them


def test_tensor_and_data_parallel_together(reference: list[float]) -> None:
    code, output = torchrun.train_forked(f"{ARGUMENTS} --tensor-parallel 2", ranks=4)
    assert code == 0, output
    assert losses(output) == pytest.approx(reference, rel=1e-3)  # each iteration is printed by the last rank alone


def test_a_loss_that_is_nan_is_left_out_and_counted() -> None:
    code, output = torchrun.train_forked(f"{torchrun.TINY} --lr 1e30 --train-iters 4", ranks=1)
    assert code == 0, output
    first, *later = torchrun.iterations(output)
    assert first.lm_loss is not None
    assert len(later) == 3
    assert all(line.lm_loss is None and line.nan_iterations == 1 for line in later[1:])


@pytest.fixture
def two_agents() -> Iterator[list[subprocess.Popen[str]]]:
    """Two agents of one rank each in the middle of a training."""
    port = torchrun.free_port()
    agents = [torchrun.start(ENDLESS, ranks=1, nodes=2, node_rank=rank, port=port) for rank in range(2)]
    try:
        wait_for_iterations(agents[1])
        yield agents
    finally:
        for agent in agents:
            for process in tree(agent):
                process.kill()
            agent.communicate()


def wait_for_iterations(agent: subprocess.Popen[str]) -> None:
    assert agent.stdout is not None
    for line in agent.stdout:
        if " iteration " in line and torchrun.iterations(line)[0].iteration == 3:
            return
    pytest.fail("no iteration came")


def tree(agent: subprocess.Popen[str]) -> list[psutil.Process]:
    """The agent and its ranks, as far as they live."""
    try:
        process = psutil.Process(agent.pid)
    except psutil.NoSuchProcess:
        return []
    return [*process.children(recursive=True), process]


def seconds_until_gone(processes: list[psutil.Process], agents: list[subprocess.Popen[str]]) -> float:
    """Seconds until all have ended; agents are reaped, since a zombie would count as alive."""
    assert len(processes) > len(agents)
    started = time.monotonic()
    for agent in agents:
        agent.communicate(timeout=60)
    psutil.wait_procs(processes, timeout=60)
    assert not [process for process in processes if process.is_running()]
    return time.monotonic() - started


@pytest.mark.long
def test_a_killed_rank_ends_the_whole_job_with_an_error(two_agents: list[subprocess.Popen[str]]) -> None:
    processes = [process for agent in two_agents for process in tree(agent)]
    psutil.Process(two_agents[0].pid).children()[0].kill()
    assert seconds_until_gone(processes, two_agents) < 40
    assert all(agent.returncode not in (0, None) for agent in two_agents)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_seconds(two_agents: list[subprocess.Popen[str]], number: signal.Signals) -> None:
    processes = [process for agent in two_agents for process in tree(agent)]
    for agent in two_agents:
        agent.send_signal(number)
    assert seconds_until_gone(processes, two_agents) < 40
    assert all(agent.returncode not in (0, None) for agent in two_agents)


def test_a_rank_that_waits_for_a_frozen_one_can_be_interrupted(two_agents: list[subprocess.Popen[str]]) -> None:
    psutil.Process(two_agents[0].pid).children()[0].suspend()
    processes = tree(two_agents[1])
    time.sleep(1)  # until the other rank waits in a collective
    two_agents[1].send_signal(signal.SIGINT)
    assert seconds_until_gone(processes, two_agents[1:]) < 40
    assert two_agents[1].returncode not in (0, None)


COUNT = """
import os, torch, torch.utils.flop_counter
from shakedown.jobs.workload import cpu
from shakedown.jobs.workload.arguments import Arguments
cpu.install()
torch.distributed.init_process_group("gloo")
from megatron.core import parallel_state
from shakedown.jobs.workload.trainer import Trainer
parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
trainer = Trainer(Arguments(hidden_size=64, num_layers=3, vocab_size=512, seq_length=32), torch.device("cpu"))
with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
    trainer.forward_backward()
print(counter.get_total_flops(), trainer.arguments.flops, flush=True)
os._exit(0)
"""


def test_the_flops_formula_agrees_with_what_torch_counts_in_the_real_model(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    code, output = torchrun.train_forked("", ranks=1, script=tmp_path / "count.py")
    assert code == 0, output
    counted, formula = map(int, output.split())
    # The plain attention of the CPU computes the half of the scores, too, that the mask then hides: 16 sequences of
    # 32 x 32 / 2 pairs in 3 layers, two products of width 64, times 2 and times 3 as everything else.
    assert counted - formula == 16 * (32 * 32 // 2) * 3 * 2 * 64 * 6


def stand_in(folder: Path, **variables: str) -> subprocess.Popen[str]:
    """train_llama.sh with two ranks and its log in `folder`."""
    settings = {"MODEL_SIZE": "8", "GPUS_PER_NODE": "2", "MBS": "2", "SEQ_LENGTH": "32", "LOG_DIR": str(folder)}
    port = str(torchrun.free_port())
    return subprocess.Popen(
        ["bash", str(torchrun.WORKLOAD / "train_llama.sh")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**torchrun.environment(), **settings, "MASTER_PORT": port, "TMPDIR": str(folder), **variables},
    )


@pytest.mark.parametrize("tee", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_the_stand_in_takes_the_scripts_variables_and_keeps_its_log(tmp_path: Path, tee: str) -> None:
    job = stand_in(tmp_path, BS="8", TOTAL_ITERS="4", TP="2", EXP_NAME="trial", TEE_OUTPUT=tee, TE_FP8="1")
    output, _ = job.communicate(timeout=120)
    log = (tmp_path / "output_trial.log").read_text()
    assert job.returncode == 0, log
    assert output == (log if tee == "1" else "")
    assert [line.global_batch_size for line in torchrun.iterations(log)] == [8] * 4
    assert "stand-in" in log and "TE_FP8=1 is ignored" in log and "TP 2 x PP 1 x DP 1; 4 micro batches of 2" in log
    assert set(torchrun.summary(log)) == {
        "throughput per GPU",
        "elapsed time per iteration",
        "tokens/GPU/s",
        "mem usages",
    }


def test_the_stand_in_refuses_every_unusable_variable_at_once(tmp_path: Path) -> None:
    job = stand_in(tmp_path, MODEL_SIZE="9", TP="0", FSDP="1", TE_FP8="yes")
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 2
    assert all(name in output for name in ("MODEL_SIZE='9'", "TP='0'", "FSDP=1", "TE_FP8='yes'"))


def test_the_stand_in_fails_when_the_training_does(tmp_path: Path) -> None:
    job = stand_in(tmp_path, TP="2", BS="7")
    output, _ = job.communicate(timeout=60)
    assert job.returncode not in (0, None)
    assert re.search(r"--global-batch-size: 7 is not divisible by .* = 2", output)


def test_stopping_the_stand_in_stops_its_ranks(tmp_path: Path) -> None:
    job = stand_in(tmp_path, TOTAL_ITERS="1000000")
    wait_for_iterations(job)
    processes = tree(job)
    os.kill(job.pid, signal.SIGTERM)  # to the shell alone, as a container engine does
    assert seconds_until_gone(processes, [job]) < 40
    assert job.returncode not in (0, None)
    assert list(tmp_path.iterdir()) == [tmp_path / "output_perf.log"]
    assert torchrun.iterations((tmp_path / "output_perf.log").read_text())
