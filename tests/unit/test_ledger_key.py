"""What makes two jobs comparable, and what begins a new baseline."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from shakedown.checks.examination import Examination
from shakedown.gates.baselines.model import Key
from shakedown.jobs.launch import LaunchPlan
from shakedown.ledger.compared import key_of
from shakedown.runner.training import kept_plan
from shakedown.runs.directory import JobRecord
from shakedown.state.node import NodeState
from tests.plans import DIGEST, rack, small
from tests.states import bare, desired, healthy, unreadable, with_

RECIPE = "llama3.1-8b-fp8"


def key(plan: LaunchPlan, node: str | None = None, **states: NodeState) -> Key:
    given = {each.name: healthy(each.node_rank + 1) for each in plan.nodes} | states
    found = key_of(JobRecord(plan=plan, node=node), given)
    assert found is not None
    return found


def test_a_key_names_what_the_figures_depend_on() -> None:
    found = key(rack(RECIPE, nodes=2))
    assert (found.gpu, found.recipe, found.nodes, found.scope) == ("AMD Instinct MI300X", RECIPE, 2, "together")
    assert (found.image, found.rocm) == (DIGEST, "6.4.1")
    assert found.driver == "6.12.12"
    assert found.epoch == f"image {DIGEST}, ROCm 6.4.1, amdgpu 6.12.12"


@pytest.mark.parametrize(
    "asked",
    [
        {"options": {"MBS": 1}},
        {"environment": {"NVTE_CK_V3_ATOMIC_FP32": "1"}},
        {"options": {"SEQ_LENGTH": 4096}},
        {"nodes": 4},
    ],
)
def test_what_is_asked_for_otherwise_is_another_history(asked: dict[str, Any]) -> None:
    assert key(rack(RECIPE, **{"nodes": 2, **asked})).identity != key(rack(RECIPE, nodes=2)).identity


def test_jobs_that_differ_in_a_secret_alone_are_two_and_the_same_job_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))

    def kept(value: str) -> LaunchPlan:
        own = desired("cpu", None, smoke={"recipe": "gpt-small"})
        return kept_plan(small(2, environment={"ROUTING_KEY": value}), Examination({"node01": own}))

    plans = [kept("a-long-value"), kept("another-value"), kept("a-long-value")]
    one, other, again = (key(plan).identity for plan in plans)
    assert one == again != other
    assert not any("-value" in plan.model_dump_json() for plan in plans)
    assert stat.S_IMODE((tmp_path / "runs/digests.key").stat().st_mode) == 0o600
    (tmp_path / "runs/digests.key").unlink()
    assert key(kept("a-long-value")).identity != one, "without the key nobody can try values"
    plain = small(2)
    assert kept_plan(plain, Examination({})).hidden == "" == plain.hidden


def test_iterations_names_and_addresses_are_the_same_history() -> None:
    plan = rack(RECIPE, nodes=2)
    moved = plan.model_copy(update={"run_id": "another", "master_address": "10.9.9.9", "master_port": 4})
    again = key(rack(RECIPE, nodes=2, iterations=20, options={"DATA_CACHE_PATH": "/cache"}))
    assert key(plan) == key(moved) == again


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"rocm_version": "6.4.2"}, "ROCm 6.4.1, 6.4.2"),
        ({"gpus.3.driver": "6.14.0"}, "amdgpu 6.12.12, 6.14.0"),
        ({"rocm_version": unreadable("not permitted")}, "ROCm 6.4.1, not read"),
    ],
)
def test_a_version_that_changes_is_another_epoch_of_the_same_history(changes: dict[Any, Any], word: str) -> None:
    plan = rack(RECIPE, nodes=2)
    other = key(plan, node02=with_(healthy(2), changes))
    assert other.identity == key(plan).identity
    assert other.epoch != key(plan).epoch
    assert word in other.epoch


def test_a_job_of_one_node_has_a_history_of_its_own() -> None:
    plan = rack(RECIPE)
    keys = {key(plan, node=name).identity for name in (None, "node01")}
    assert len(keys) == 2
    assert key(plan, node="node01").scope == "each"


def test_nodes_without_gpus_are_told_by_their_cpus_and_a_hostile_name_is_one_line() -> None:
    found = key(small(), node01=with_(bare(), {"cpu.model": "AMD\x1b[31m EPYC\n9654"}))
    assert (found.gpu, found.image, found.driver) == ("CPU AMD EPYC 9654", "none", "none")


def test_a_job_without_a_plan_is_keyed_by_nothing() -> None:
    assert key_of(JobRecord(error="no node was left"), {}) is None
