"""What logs say of their job: ranks, nodes and sizes, from the lines of the programs that print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shakedown.gates import read_log
from shakedown.logs.job_shape import JobShape, shape_of

LOGS = Path(__file__).parents[1] / "data/logs"


def said(*lines: str) -> JobShape:
    return read_log([f"{line}\n" for line in lines]).shape


def test_megatron_s_arguments_are_read() -> None:
    shape = read_log(LOGS / "rocm.log").shape
    assert (shape.world_size, shape.seq_length, shape.global_batch) == (8, 2048, 16)
    assert shape.node_count() == 1


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("using world size: 8, data-parallel size: 8", 1),
        ("using world size: 9, data-parallel size: 9", None),
        ("0:   world_size ...................................... 32", None),
        ("node1:81:90 [0] NCCL INFO comm 0x55 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 0", 2),
        ("torchrun --nproc_per_node 8 --nnodes 4 --node_rank 0 pretrain_gpt.py", 4),
        ("torchrun --nproc-per-node=8 --nnodes=3 --node-rank=0 pretrain_gpt.py", 3),
        ("NODE: node_rank: 2", 3),
        ("node_rank=0", 1),
        ("a line of nothing", 1),
    ],
)
def test_the_number_of_nodes(line: str, nodes: int | None) -> None:
    assert said(line).node_count() == nodes


def test_hosts_that_rccl_names_are_nodes() -> None:
    lines = [f"[default{rank}]:gpu-{host}:8{rank}:90 [{rank}] NCCL INFO x" for host in "ab" for rank in range(8)]
    assert said(*lines).node_count() == 2
    assert said(*lines[:8]).node_count() == 1


def test_more_logs_than_nodes_said_are_nodes() -> None:
    assert said("a").node_count(3) == 3
    assert said("--nnodes 4").node_count(3) == 4


def test_ranks_of_a_node_that_are_said_count() -> None:
    assert said("--nproc_per_node 16", "using world size: 16, x").node_count() == 1
    assert said("--nproc_per_node 4", "using world size: 16, x").node_count() == 4


def test_how_many_ranks_a_node_has_is_not_guessed() -> None:
    assert said("using world size: 64, x").node_count() is None
    assert said("using world size: 64, x").node_count(3) is None, "of more nodes than there are logs"
    assert said("using world size: 64, x").node_count(16) == 16, "sixteen nodes with four GPUs each"
    assert said("using world size: 64, x", "--nnodes 16").node_count() == 16


def test_a_small_communicator_does_not_hide_the_whole_job() -> None:
    comm = "node1:81:90 [0] NCCL INFO comm 0x55 rank 0 nRanks {} nNodes {} localRanks {} localRank 0 MNNVL 0"
    assert said(comm.format(16, 2, 8), comm.format(8, 1, 8)).node_count() == 2


COMM = "node1:81:90 [0] NCCL INFO comm 0x55 rank 0 nRanks {} nNodes {} localRanks {} localRank 0 MNNVL 0"


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        (["using world size: 16, x", COMM.format(16, 1, 16)], 1),  # a node with sixteen GPUs
        (["using world size: 16, x", COMM.format(8, 1, 8)], None),  # a group within one of two nodes
        (["using world size: 8, x", COMM.format(2, 1, 2)], 1),
        (["using world size: 16, x", "--nnodes 1"], 1),
        (["--nnodes=1:4", "a:1:2 [0] NCCL INFO x", "b:1:2 [0] NCCL INFO x"], 2),
        (["12:30:11 [1] NCCL INFO x", "13:30:11 [1] NCCL INFO x"], 1),
        (["using world size: 16, x", "--nnodes 2 --nproc_per_node 8"], 2),
    ],
)
def test_a_part_of_the_job_is_not_taken_for_the_whole(lines: list[str], nodes: int | None) -> None:
    assert said(*lines).node_count() == nodes
    both = shape_of([said(line) for line in lines])
    assert both.node_count() == nodes or (nodes is not None and (both.node_count() or 0) > nodes)


def test_several_logs_together() -> None:
    both = shape_of([JobShape(world_size=8, hosts=frozenset("a")), JobShape(seq_length=4, hosts=frozenset("b"))])
    assert (both.world_size, both.seq_length, both.nodes, both.hosts) == (8, 4, None, frozenset("ab"))


def test_hostile_numbers_and_lines_are_bounded() -> None:
    assert said("using world size: " + "9" * 400).world_size is None
    assert said("world size" + "." * 1_000_000 + " 4").seq_length is None
    assert len(said(*(f"h{number}:1:1 [0] NCCL INFO" for number in range(5000))).hosts) == 4096


@pytest.mark.parametrize("shape", [JobShape(hosts=frozenset({"node07"})), JobShape(world_size=8), JobShape(nodes=2)])
def test_a_log_states_its_nodes_by_ranks_options_or_hosts(shape: JobShape) -> None:
    assert shape.states_nodes and not JobShape(seq_length=4096).states_nodes
