"""What a plan tells beside what it starts, and which key a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.jobs.plan import PlanError
from shakedown.jobs.plan.container import host_files
from shakedown.jobs.plan.participants import Split, least_gpu_bytes
from shakedown.recipes.recipe import Model
from tests.plans import IMAGE, draft, rack
from tests.states import desired, healthy, unreadable

TWO = "llama3.1-8b-fp8-2nodes"


def told(recipe: str, **more: Any) -> list[tuple[str, str]]:
    return [(each.name, str(each.value)) for each in rack(recipe, **more).derived]


def test_a_corrected_value_of_a_document_is_told_with_what_is_used() -> None:
    assert {("NO_TORCH_COMPILE", "left out"), ("MODEL_SIZE", "7")} <= set(told("llama2-7b-benchmark"))
    assert ("MBS", "7") in told("llama2-70b-bf16-fsdp")


def test_the_key_of_a_master_port_that_cannot_be_had() -> None:
    with pytest.raises(PlanError, match=r"smoke\.master_port = 7000: expected a port that nothing listens on"):
        rack(TWO, 2, changes={"node01": {"listening": [7000]}}, master_port=7000)
    with pytest.raises(PlanError, match=r"node01: listening = unknown: expected a list of the ports"):
        rack(TWO, 2, changes={"node01": {"listening": unreadable("not permitted")}})


def test_a_derived_variable_that_the_site_types_is_told_and_no_other() -> None:
    typed = told(TWO, nodes=2, environment={"NCCL_SOCKET_IFNAME": "eth0", "NCCL_PROTO": "LL"})
    assert ("NCCL_SOCKET_IFNAME", "eth0") in typed and ("NCCL_PROTO", "LL") not in typed


def test_another_image_than_the_document_s_is_told_and_the_same_is_not() -> None:
    data = {"data-path": "/d", "vocab-file": "/v", "merge-file": "/m"}
    assert ("image", IMAGE) in told("stanford-gpt", options=data)
    assert ("image", IMAGE) not in told("llama3.1-8b-fp8")


def test_experts_are_shared_out_over_their_ranks_and_the_rest_is_on_each() -> None:
    alone = Split(world_size=8, tensor=1, pipeline=1, context=1, data=8, micro_batch=1, global_batch=8)
    model = Model(parameters=10.0, expert_parameters=8.0, expert_parallel=4)
    assert least_gpu_bytes(model, alone, sharded=False) == (2 + 8 / 4) * (6 + 12 / 8)
    assert least_gpu_bytes(model, alone, sharded=True) == (2 + 8 / 4) * (6 + 12) / 8


def test_the_provider_is_copied_where_the_image_looks_for_it() -> None:
    inside = "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so"
    assert host_files(draft(desired(), {"node01": healthy(1)}), "node01")[1] == {f"{inside}.host": inside}


def test_a_plan_of_no_node_at_all_is_refused_in_words() -> None:
    with pytest.raises(PlanError, match="expected at least one node"):
        rack(TWO, 0)
