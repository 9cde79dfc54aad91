"""Whatever is asked for: either a plan in which everything fits, or an error with its reasons."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.jobs.plan import PlanError, make_plan, render
from tests.plans import RUN_ID
from tests.states import bare, desired, with_

SIZES = st.integers(1, 9)


@settings(max_examples=150, deadline=None)
@given(
    nodes=st.integers(1, 5),
    ranks=SIZES,
    tensor=SIZES,
    pipeline=SIZES,
    micro=SIZES,
    total=st.none() | st.integers(1, 200),
    listening=st.sets(st.integers(1, 65535), max_size=50),
    run_id=st.text("abcdef0123456789-", min_size=1, max_size=20),
)
def test_a_plan_always_adds_up(
    nodes: int, ranks: int, tensor: int, pipeline: int, micro: int, total: int | None, listening: set[int], run_id: str
) -> None:
    options = {"tensor_parallel": tensor, "pipeline_parallel": pipeline, "micro_batch_size": micro}
    options |= {} if total is None else {"global_batch_size": total}
    own = desired("cpu", None, smoke={"recipe": "gpt-small", "ranks_per_node": ranks, "options": options})
    states = {f"n{index}": with_(bare(index + 1), {"listening": sorted(listening)}) for index in range(nodes)}
    try:
        plan = make_plan(dict.fromkeys(states, own), states, run_id)
    except PlanError as error:
        assert error.problems
        shape = nodes * ranks % (tensor * pipeline) or 4 % tensor or 4 % pipeline
        replicas = nodes * ranks // (tensor * pipeline)
        assert shape or (total is not None and total % (micro * replicas))
        return
    assert plan.world_size == nodes * ranks == tensor * pipeline * plan.data_parallel
    assert plan.global_batch % (plan.micro_batch * plan.data_parallel) == 0
    assert total in (None, plan.global_batch)
    assert [node.node_rank for node in plan.nodes] == list(range(nodes))
    assert len({node.address for node in plan.nodes}) == nodes
    assert plan.master_address == plan.nodes[0].address
    assert plan.master_port not in listening
    for node in plan.nodes:
        command = node.command
        assert command[command.index("--master-port") + 1] == str(plan.master_port)
        assert command[command.index("--global-batch-size") + 1] == str(plan.global_batch)
        assert int(node.environment["OMP_NUM_THREADS"]) >= 1
    assert all(node.name in render(plan) for node in plan.nodes)


def test_the_same_facts_make_the_same_plan() -> None:
    own = desired("cpu", None, smoke={"recipe": "gpt-small"})
    plans = [make_plan({"a": own}, {"a": bare()}, RUN_ID) for _ in range(2)]
    assert plans[0] == plans[1]
