"""Logs from anywhere: how many nodes they are of, what is expected of them, and TCP where RDMA was meant."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from shakedown.gates import Gate, NodeLog, read_log
from shakedown.gates.offline import Request, judge_logs
from shakedown.state.findings import Verdict

DATA = Path(__file__).parents[1] / "data/logs"
FP8 = {"recipe": "llama3.1-8b-fp8", "gpu": "mi300x"}


def rocm(
    *more: str, seq: int = 8192, batch: int = 128, ms: float = 12000.0, world: int = 8, arguments: bool = True
) -> NodeLog:
    """A log of the ROCm fork, which prints no tokens per second."""
    lines = [f"using world size: {world}, data-parallel size: {world}"] if arguments else []
    lines += [f"  seq_length ...................................... {seq}"] if arguments else []
    lines += [
        f"[2026-09-24 09:43:42] iteration {i}/20 | elapsed time per iteration (ms): {ms} | "
        f"throughput per GPU (TFLOP/s/GPU): 600.0 | global batch size: {batch} | lm loss: {12 - i / 10:.4E} | "
        "number of skipped iterations: 0 | number of nan iterations: 0 |"
        for i in range(1, 21)
    ]
    return read_log([f"{line}\n" for line in [*lines, *more]])


def judged(*logs: NodeLog, **asked: object) -> tuple[dict[str, Gate], list[str]]:
    judgement, notes = judge_logs({f"n{number}": log for number, log in enumerate(logs)}, Request(**asked))
    return {gate.name: gate for gate in judgement.gates}, notes


def other(*more: str) -> NodeLog:
    return read_log(["a node that prints no iterations\n", *(f"{line}\n" for line in more)])


def test_tokens_are_derived_and_held_against_the_recipe() -> None:
    gates, _ = judged(rocm(), **FP8)
    assert gates["tokens_per_gpu"].actual == pytest.approx(128 * 8192 / 12 / 8)
    assert {gate.verdict for gate in gates.values()} == {Verdict.OK}
    slow, _ = judged(rocm(ms=22000.0), **FP8)
    assert slow["tokens_per_gpu"].verdict is slow["elapsed_time_per_iteration"].verdict is Verdict.FAIL


def test_what_the_log_does_not_say_is_the_recipe_s() -> None:
    gates, _ = judged(rocm(arguments=False), **FP8)
    assert gates["tokens_per_gpu"].actual == pytest.approx(128 * 8192 / 12 / 8)


@pytest.mark.parametrize("asked", [{"seq_length": 4096}, {"world_size": 16}, {"nodes": 1}])
def test_what_is_said_wins(asked: dict[str, int]) -> None:
    judgement, _ = judge_logs({"a": rocm()}, Request(**asked))
    figure = judgement.figures.tokens_per_gpu
    assert figure is not None
    assert figure.value == pytest.approx(128 * asked.get("seq_length", 8192) / 12 / asked.get("world_size", 8))


def test_a_summary_of_the_script_is_read_where_no_line_has_the_figure() -> None:
    log = rocm("tokens/GPU/s: 6600.5", "mem usages: 0.5", arguments=False)
    gates, _ = judged(log, expect={"tokens_per_gpu": 6500.0, "mem_usage": 0.6, "throughput_per_gpu": 600.0})
    assert gates["tokens_per_gpu"].actual == 6600.5
    assert "script" in gates["tokens_per_gpu"].evidence
    assert gates["mem_usage"].verdict is Verdict.OK
    assert gates["throughput_per_gpu"].actual == 600.0
    nan, _ = judged(rocm("tokens/GPU/s: nan", arguments=False), expect={"tokens_per_gpu": 1.0})
    assert nan["tokens_per_gpu"].verdict is Verdict.FAIL


def test_figures_of_one_node_are_not_held_against_four() -> None:
    logs = [rocm(world=32, ms=1000.0), other(), other(), other()]
    gates, notes = judged(*logs, recipe="llama3.1-8b-fp8-mi350x", gpu="mi350x")
    assert "tokens_per_gpu" not in gates
    assert any("not for 4" in note for note in notes)
    four, _ = judged(*logs, **FP8)
    assert four["tokens_per_gpu"].wanted == 12000.0
    one, _ = judged(rocm(), **FP8)
    assert one["tokens_per_gpu"].wanted == 6500.0
    said, _ = judged(rocm(), nodes=4, **FP8)
    assert said["tokens_per_gpu"].wanted == 12000.0


@pytest.mark.parametrize("sizes", [{"seq": 2048}, {"batch": 16}])
def test_the_log_of_another_job_is_no_pass_of_the_recipe(sizes: dict[str, int]) -> None:
    gates, _ = judged(rocm(**sizes), **FP8)
    assert gates["recipe"].verdict is Verdict.UNKNOWN
    assert "tokens_per_gpu" not in gates


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu": "mi999"}, "mi999"),
        ({"recipe": "llama3.1-8b-fp8"}, "--gpu is needed"),
        ({"recipe": "nothing", "gpu": "mi999"}, "nothing.*mi999"),
        ({"recipe": "llama3.1-8b-fp8", "gpu": "mi355x"}, "no figures for mi355x"),
        ({"nodes": 1}, "2 logs"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        judged(rocm(), other(), **asked)


FALLBACKS = [
    "rack7-n1:812:812 [0] NCCL INFO NET/IB : No device found.",
    "rack7-n1:812:812 [0] NCCL INFO NET/Socket : Using [0]eth0:10.7.0.1<0>",
    "rack7-n1:812:812 [0] NCCL INFO Using network Socket",
    "rack7-n1:812:900 [0] NCCL INFO Assigned NET plugin Socket to comm",
    "rack7-n1:812:900 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0",
]


@pytest.mark.parametrize("line", FALLBACKS)
def test_several_nodes_that_fell_back_to_tcp_fail(line: str) -> None:
    for logs in itertools.permutations([rocm(line), other()]):
        assert judged(*logs)[0]["rccl_tuning"].verdict is Verdict.FAIL
    assert judged(rocm(), other(line))[0]["rccl_tuning"].verdict is Verdict.FAIL
    assert judged(rocm(line), other(), transport="sockets")[0]["rccl_tuning"].verdict is Verdict.OK
    assert judged(rocm(line), other(), transport="rdma")[0]["rccl_tuning"].verdict is Verdict.FAIL
    assert judged(rocm(line))[0]["rccl_tuning"].verdict is Verdict.OK


@pytest.mark.parametrize(
    "shown",
    [
        ["using world size: 16, data-parallel size: 16"],
        ["torchrun --nnodes 2 --node_rank 0"],
        ["NODE_RANK: node_rank=1"],
        ["b:1:1 [0] NCCL INFO x", "c:1:1 [0] NCCL INFO x"],
    ],
)
def test_one_log_of_several_nodes_that_fell_back_to_tcp_fails(shown: list[str]) -> None:
    log = rocm(*shown, FALLBACKS[1])
    assert judged(log)[0]["rccl_tuning"].verdict is Verdict.FAIL
    assert judged(log, nodes=1)[0]["rccl_tuning"].verdict is Verdict.OK
    assert judged(log, transport="sockets")[0]["rccl_tuning"].verdict is Verdict.OK
    assert judged(rocm(FALLBACKS[1]), nodes=2)[0]["rccl_tuning"].verdict is Verdict.FAIL


def test_logs_that_are_not_whole_have_a_gate_that_says_so() -> None:
    gates, _ = judged(rocm(), other().model_copy(update={"incomplete": "cut"}))
    assert gates["logs_complete"].verdict is Verdict.UNKNOWN
    assert gates["iterations_complete"].verdict is Verdict.OK, "the log with the lines is whole"
    assert gates["no_failure_signature"].verdict is Verdict.UNKNOWN
    assert "logs_complete" not in judged(rocm())[0]


OF_EVERY_NODE = ("ended_well", "logs_complete", "no_failure_signature", "rccl_tuning")


@pytest.mark.parametrize(
    ("logs", "asked", "seen"),
    [
        ([rocm()], {"nodes": 2}, "1 of 2 nodes' logs"),
        ([rocm(), other()], {"nodes": 4}, "2 of 4 nodes' logs"),
        ([rocm("a:1:1 [0] NCCL INFO x", "b:1:1 [0] NCCL INFO x")], {"nodes": 4}, "1 of 4 nodes' logs"),
    ],
)
def test_the_last_node_s_log_alone_has_the_iterations_and_says_nothing_of_the_others(
    logs: list[NodeLog], asked: dict[str, object], seen: str
) -> None:
    gates, _ = judged(*logs, **asked)
    assert {name for name, gate in gates.items() if gate.verdict is Verdict.UNKNOWN} == set(OF_EVERY_NODE)
    assert all(seen in gates[name].evidence and "--merged" in (gates[name].remedy or "") for name in OF_EVERY_NODE)
    assert gates["iterations_complete"].verdict is Verdict.OK
    for alone in (judged(*logs)[0], judged(*logs, **asked, merged=True)[0]):  # nobody says that there are more
        assert {gate.verdict for name, gate in alone.items() if name != "rccl_tuning"} == {Verdict.OK}


NETWORK = "n1:1:1 [0] NCCL INFO Using network IB"


@pytest.mark.parametrize(
    "line",
    [
        NETWORK,
        "n1:1:1 [0] NCCL INFO NET/IB : Using [0]bnxt_re0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "n1:1:1 [0] NCCL INFO Initialized NET plugin ANP",
        "n1:1:1 [0] NCCL INFO Channel 00/0 : 8[0] -> 7[7] [receive] via NET/IB/0/GDRDMA",
    ],
)
def test_without_a_line_of_rccl_nothing_shows_that_rdma_was_used(line: str) -> None:
    silent = judged(rocm(), other())[0]["rccl_tuning"]
    assert silent.verdict is Verdict.UNKNOWN and "no line of RCCL" in silent.evidence and silent.remedy
    assert judged(rocm(), nodes=2, merged=True)[0]["rccl_tuning"].verdict is Verdict.UNKNOWN
    assert judged(rocm(line), other())[0]["rccl_tuning"].verdict is Verdict.OK
    assert judged(rocm(), other(line))[0]["rccl_tuning"].verdict is Verdict.OK
    assert judged(rocm(), other(), transport="sockets")[0]["rccl_tuning"].verdict is Verdict.OK
    assert judged(rocm())[0]["rccl_tuning"].verdict is Verdict.OK, "one node"


@pytest.mark.parametrize(
    "line",
    [
        "using backend NCCL in ProcessGroupNCCL",
        "n1:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "RCCL version : 2.22.3-HEAD:4d",
        "[3] NCCL version 2.21.5",
        "n1:1:1 [0] NCCL WARN NET/Plugin: Could not find: librccl-net.so",
        "n1:1:1 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
        "n1:1:1 [0] NCCL INFO NET/Plugin: Using internal network plugin.",
        "n1:1:1 [0] NCCL INFO Failed to initialize NET plugin IB",
        "n1:1:1 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>",
        "the answer is: Using network IB, says NCCL ",
    ],
)
def test_lines_that_show_no_network_do_not_show_rdma(line: str) -> None:
    gate = judged(rocm(line), other())[0]["rccl_tuning"]
    assert gate.verdict is Verdict.UNKNOWN and "nothing shows that RDMA was used" in gate.evidence


def test_a_failure_in_the_logs_that_are_there_is_one_whatever_the_others_say() -> None:
    gates, _ = judged(rocm("torch.OutOfMemoryError: HIP out of memory"), nodes=2)
    assert gates["no_failure_signature"].verdict is Verdict.FAIL
    assert "1 of 2 nodes' logs" in gates["no_failure_signature"].evidence


def test_one_log_with_the_lines_of_every_host_is_of_all_nodes() -> None:
    log = rocm(*(f"n{number}:1:1 [0] NCCL INFO Using network IB" for number in range(4)))
    assert {gate.verdict for gate in judged(log, nodes=4)[0].values()} == {Verdict.OK}
    assert {gate.verdict for gate in judged(log, other(), nodes=5)[0].values()} == {Verdict.OK}


def test_the_log_of_a_node_that_prints_no_iterations_is_no_failed_run() -> None:
    gates, _ = judged(other(), nodes=2)
    assert gates["iterations_complete"].verdict is Verdict.UNKNOWN
    assert "the last rank alone prints them" in gates["iterations_complete"].evidence
    megatron = other("using world size: 8, data-parallel size: 8")
    assert judged(megatron)[0]["iterations_complete"].verdict is Verdict.FAIL


def test_nobody_guesses_how_many_nodes_there_were() -> None:
    log = rocm("using world size: 64, data-parallel size: 64")
    gates, notes = judged(log)
    assert "an unknown number of nodes" in notes[0] and gates["rccl_tuning"].verdict is Verdict.UNKNOWN
    assert "16 nodes (--nodes)" in judged(log, nodes=16)[1][0]
    with pytest.raises(ValueError, match="add --nodes"):
        judged(log, recipe="llama3.1-8b-fp8", gpu="mi300x")
