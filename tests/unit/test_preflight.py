"""Whatever the desired state alone shows to be wrong is refused before the first connection, all of it at once."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError
from shakedown.logs.metrics import METRICS, METRICS_OF
from shakedown.node.launcher import needs
from shakedown.recipes.recipe import recipes
from shakedown.runner.features import resolve

IMAGES = {"megatron": "rocm/megatron-lm:v25.4"}
LLAMA = {"recipe": "llama3.1-8b-fp8", "image": "megatron"}


def found(
    smoke: dict[str, Any] | None = None, hosts: int = 1, whole: bool = False, to_train: bool = False, **site: Any
) -> dict[str, str]:
    """dotted path -> the problem as it is told; empty where there is none."""
    values = {"gpu": "mi300x", "images": IMAGES, **({"smoke": smoke} if smoke else {}), **site}
    layers = [Layer("group rack7", values)]
    try:
        resolve([HostLayers(f"n{number}", layers, "root") for number in range(hosts)], whole, to_train)
    except DesiredStateError as error:
        return {problem.path: str(problem) for problem in error.problems}
    return {}


def test_everything_wrong_is_told_at_once_with_its_layer() -> None:
    problems = found(
        {
            **LLAMA,
            "runtime": "process",
            "options": {"MSB": 2, "TP": 3, "BS": "many"},
            "expect": {"througput_per_gpu": 380.0},
            "environment": {"MASTER_ADDR": "a", "MBS": "2", "HF_TOKEN": "hf_secret"},
            "hf_token_file": "/nowhere/token",
        },
        datasets={"wikii": {"folder": "/d"}},
        benchmark=None,
    )
    assert problems.keys() == {
        "smoke.runtime",
        "smoke.options.MSB",
        "smoke.options.TP",
        "smoke.options.BS",
        "smoke.expect.througput_per_gpu",
        "smoke.environment.MASTER_ADDR",
        "smoke.environment.MBS",
        "smoke.environment.HF_TOKEN",
        "smoke.hf_token_file",
        "datasets.wikii",
    }
    assert all(problem.startswith("group rack7: ") for problem in problems.values())
    assert "throughput_per_gpu? one of" in problems["smoke.expect.througput_per_gpu"]
    assert "expected wiki? files" in problems["datasets.wikii"]
    assert "hf_secret" not in str(problems)


def test_a_recipe_is_refused_with_the_nearest_name() -> None:
    problem = found({**LLAMA, "recipe": "llama3.1-8b-fp9"})["smoke.recipe"]
    assert problem.startswith(
        "group rack7: smoke.recipe = 'llama3.1-8b-fp9': expected llama3.1-8b-fp8? one of llama3.1-8b-fp8, llama3-8b"
    )


def test_what_is_right_has_no_problem() -> None:
    assert found(LLAMA) == {}
    assert found({"recipe": "gpt-small"}, gpu="cpu", images={}) == {}
    assert found() == {}


def test_a_container_needs_an_image_and_a_process_none() -> None:
    assert "rocm/megatron-lm:v25.4" in found({"recipe": "llama3.1-8b-fp8"})["smoke.image"]
    assert "smoke.image" in found({"recipe": "gpt-small", "runtime": "container"})
    assert found({"recipe": "gpt-small", "runtime": "process"}) == {}


@pytest.mark.parametrize(
    ("metric", "bound", "expected"),
    [
        ("throughput_per_gpu", 0.0, "a number above zero"),
        ("throughput_per_gpu", -1.0, "a number above zero"),
        ("throughput_per_gpu", float("nan"), "a number above zero"),
        ("elapsed_time_per_iteration", float("inf"), "a number above zero"),
        ("mem_usage", 1.001, "a fraction"),
        ("mem_usage", 85.0, "a fraction"),
        ("tokens", 1.0, "tokens_per_gpu? one of"),
    ],
)
def test_a_bound_that_nothing_can_be_held_against(metric: str, bound: float, expected: str) -> None:
    assert expected in found({**LLAMA, "expect": {metric: bound}})[f"smoke.expect.{metric}"]


def test_bounds_that_just_are_some() -> None:
    assert found({**LLAMA, "expect": {"mem_usage": 1.0, "tokens_per_gpu": 0.001}}) == {}


def test_the_recipes_own_figures_are_figures() -> None:
    for recipe in recipes().values():
        assert set(recipe.family.metrics) <= set(METRICS_OF[recipe.family.parser])
        for expect in recipe.entry.expect:
            assert set(expect.figures) <= set(METRICS) and all(bound > 0 for bound in expect.figures.values())


def test_the_benchmarks_figures_too() -> None:
    own = {"mode": "pretrain", "model": "Llama-3.1-8B", "precision": "BF16", "image": "megatron"}
    wrong = found(benchmark={**own, "commit": "a" * 40, "expect": {"tokens": 1.0}})
    assert list(wrong) == ["benchmark.expect.tokens"]


@pytest.mark.parametrize(
    ("section", "values", "path"),
    [
        ("smoke", {**LLAMA, "environment": {"A-B": "1"}}, "smoke.environment.A-B"),
        ("smoke", {**LLAMA, "environment": {"1A": "1"}}, "smoke.environment.1A"),
        ("smoke", {**LLAMA, "environment": {"A": "x\ny"}}, "smoke.environment.A"),
        ("smoke", {**LLAMA, "environment": {"A": "x\ry"}}, "smoke.environment.A"),
        ("smoke", {**LLAMA, "environment": {"A": "x\0"}}, "smoke.environment.A"),
        ("rdma", {"environment": {"A B": "x"}}, "rdma.environment.A B"),
        ("gpu", {"profile": "mi300x", "environment": {"A": "x\ny"}}, "gpu.environment.A"),
        ("smoke", {**LLAMA, "volumes": {"data": "/data"}}, "smoke.volumes.data"),
        ("smoke", {**LLAMA, "volumes": {"/data": "data"}}, "smoke.volumes./data"),
        ("smoke", {**LLAMA, "volumes": {"/data": "/data:rx"}}, "smoke.volumes./data"),
        ("smoke", {**LLAMA, "volumes": {"/a:b": "/data"}}, "smoke.volumes./a:b"),
        ("smoke", {**LLAMA, "volumes": {"/a,b": "/data"}}, "smoke.volumes./a,b"),
        ("smoke", {**LLAMA, "interface": "ens0np0,ens1np0"}, "smoke.interface"),
        ("smoke", {**LLAMA, "interface": "a" * 16}, "smoke.interface"),
        ("smoke", {**LLAMA, "interface": "=eth0"}, "smoke.interface"),
        ("smoke", {**LLAMA, "shm_size": "64 G"}, "smoke.shm_size"),
        ("images", {"megatron": "Rocm/Megatron LM"}, "images.megatron.reference"),
    ],
)
def test_syntax(section: str, values: dict[str, Any], path: str) -> None:
    site = {"images": IMAGES, section: values}
    assert path in found(values if section == "smoke" else LLAMA, **{k: v for k, v in site.items() if k != "smoke"})


def test_syntax_that_just_is_right() -> None:
    volumes = {"/data": "/data:ro,z", "/x y": "/z"}
    right = {
        **LLAMA,
        "interface": "a" * 15,
        "volumes": volumes,
        "shm_size": "64g",
        "environment": {"_A1": "", "B": "a=b c"},
    }
    assert found(right) == {}


def test_files_of_this_machine_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    source = {"url": "https://x/y", "commit": "a" * 40, "path": "/opt/x", "patches": [str(tmp_path / "a.patch")]}
    images = {"megatron": {"reference": "r.example/x:1", "ca_file": str(tmp_path / "ca")}}
    provider = {"name": "bnxt_re", "source": str(tmp_path / "lib.so")}
    values: dict[str, Any] = {"source": source, "images": images, "nic": "thor2", "rdma": {"provider": provider}}
    smoke = {**LLAMA, "hf_token_file": str(tmp_path / "token")}
    paths = {"source.patches", "images.megatron.ca_file", "rdma.provider.source", "smoke.hf_token_file"}
    assert found(smoke, **values).keys() == paths
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    assert found(smoke, **values).keys() == paths - {"smoke.hf_token_file"}
    for name in ("a.patch", "ca", "lib.so"):
        (tmp_path / name).write_text("")
    assert found(smoke, **values) == {}
    (tmp_path / "ca").unlink()
    (tmp_path / "ca").mkdir()
    assert found(smoke, **values).keys() == {"images.megatron.ca_file"}


@pytest.mark.parametrize(
    ("smoke", "gpu", "path"),
    [
        ({**LLAMA, "ranks_per_node": 9}, "mi300x", "smoke.ranks_per_node"),
        (LLAMA, "cpu", "smoke.ranks_per_node"),
        ({**LLAMA, "recipe": "deepseek-v2-lite", "ranks_per_node": 4}, "mi300x", "smoke.ranks_per_node"),
        ({**LLAMA, "environment": {"HIP_VISIBLE_DEVICES": "0,8"}}, "mi300x", "smoke.environment.HIP_VISIBLE_DEVICES"),
        ({**LLAMA, "environment": {"HIP_VISIBLE_DEVICES": "0;1"}}, "mi300x", "smoke.environment.HIP_VISIBLE_DEVICES"),
        (
            {**LLAMA, "ranks_per_node": 3, "environment": {"CUDA_VISIBLE_DEVICES": "0,1"}},
            "mi300x",
            "smoke.environment.CUDA_VISIBLE_DEVICES",
        ),
    ],
)
def test_ranks_and_gpus(smoke: dict[str, Any], gpu: str, path: str) -> None:
    assert list(found(smoke, gpu=gpu)) == [path]


def test_gpus_that_are_not_there_are_told_with_those_that_are() -> None:
    asked = {**LLAMA, "environment": {"HIP_VISIBLE_DEVICES": "0,8"}}
    assert found(asked)["smoke.environment.HIP_VISIBLE_DEVICES"].endswith("GPUs 0 to 7, the 8 GPUs of mi300x")


def test_ranks_and_gpus_that_just_fit() -> None:
    assert found({**LLAMA, "ranks_per_node": 8}) == {}
    assert found({**LLAMA, "environment": {"HIP_VISIBLE_DEVICES": "0,7"}}) == {}
    assert found({**LLAMA, "recipe": "deepseek-v2-lite", "ranks_per_node": 8}) == {}
    assert found({"recipe": "gpt-small", "ranks_per_node": 9}, gpu="cpu") == {}


# -- over the hosts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["seen_nodes", "min_nodes"])
def test_as_many_hosts_as_there_must_be(key: str) -> None:
    assert list(found({**LLAMA, key: 3}, hosts=2, whole=True)) == [f"smoke.{key}"]
    assert found({**LLAMA, key: 2}, hosts=2, whole=True) == {}
    assert found({**LLAMA, key: 3}, hosts=2) == {}, "with --limit their number says nothing"


def test_a_batch_that_the_ranks_cannot_divide_is_refused_where_they_are_to_train() -> None:
    smoke = {**LLAMA, "options": {"BS": 128}}
    assert found(smoke, hosts=3) == {}
    problem = found(smoke, hosts=3, to_train=True)["smoke.options.BS"]
    assert "128: expected a multiple of micro batch 2 x data parallel 24 = 48" in problem
    assert "(over 3 x 8 ranks)" in problem
    assert found(smoke, hosts=4, to_train=True) == {}
    problem = found({**smoke, "min_nodes": 2}, hosts=3, to_train=True)["smoke.options.BS"]
    assert "128: expected a batch for 2 to 3 nodes, as smoke.min_nodes allows: a multiple of 96" in problem
    assert "such as 96 or 192; without BS it follows the nodes (8 steps)" in problem
    fits = {**smoke, "options": {"BS": 192}, "min_nodes": 2}
    assert found(fits, hosts=3, to_train=True) == {}
    assert found({**smoke, "min_nodes": 3}, hosts=3, to_train=True) != {}
    assert found({**smoke, "scope": "each"}, hosts=3, to_train=True) == {}
    assert found({**smoke, "scope": ["each", "together"]}, hosts=3, to_train=True) != {}


def test_parallel_sizes_that_do_not_divide() -> None:
    assert "multiple of 3" in found({**LLAMA, "options": {"CP": 3}}, to_train=True)["smoke.options"]
    assert (
        "divisor of the model's 32 layers" in found({**LLAMA, "options": {"PP": 3}}, to_train=True)["smoke.options.PP"]
    )


def test_a_program_for_one_node() -> None:
    deepseek = {**LLAMA, "recipe": "deepseek-v2-lite"}
    assert "runs on at most 1" in found(deepseek, hosts=2, to_train=True)["smoke.recipe"]
    assert found(deepseek, hosts=1, to_train=True) == {}
    assert found({**deepseek, "scope": "each"}, hosts=2, to_train=True) == {}
    assert found({**deepseek, "min_nodes": 1}, hosts=2, to_train=True) == {}


@pytest.mark.parametrize(
    ("options", "path", "expected"),
    [
        ({"resume_at": 20}, "resume_at", "between 1 and 19, before the last of --train-iters 20"),
        ({"resume_at": 5, "train_iters": 5}, "resume_at", "between 1 and 4"),
        ({"vocab_size": 255, "tensor_parallel": 2}, "vocab_size", "divisible by --tensor-parallel = 2"),
        ({"hidden_size": 100}, "hidden_size", "divisible by 2 x --num-attention-heads = 8"),
        ({"lr": 0}, "lr", "a finite number above 0"),
        ({"initial_loss_scale": 1, "min_loss_scale": 2}, "initial_loss_scale", "between --min-loss-scale 2 and 2^126"),
    ],
)
def test_what_the_embedded_program_would_refuse_is_refused_before_connecting(
    options: dict[str, Any], path: str, expected: str
) -> None:
    problems = found({"recipe": "gpt-small", "options": options, "ranks_per_node": 2})
    assert list(problems) == [f"smoke.options.{path}"] and expected in problems[f"smoke.options.{path}"]


def test_a_checkpoint_of_the_last_iteration_but_one_is_allowed() -> None:
    assert found({"recipe": "gpt-small", "options": {"resume_at": 19}}) == {}
    (problem,) = found({"recipe": "gpt-small", "options": {"resume_at": 7}, "iterations": 7}).values()
    assert "between 1 and 6" in problem


def test_what_a_job_over_all_hosts_would_be_refused_for_is_the_same_answer_without_a_job() -> None:
    """`show` refuses it, a comparison names it, and a choice of hosts has its own batch."""
    smoke = {**LLAMA, "options": {"BS": 128}}
    refused = found(smoke, hosts=64, to_train=True)
    layers = [Layer("group rack7", {"gpu": "mi300x", "images": IMAGES, "smoke": smoke})]
    hosts = [HostLayers(f"n{number}", layers, "root") for number in range(64)]
    assert {problem.path: str(problem) for problem in resolve(hosts, whole=True).of_job} == refused != {}
    assert resolve(hosts[:8], whole=False).of_job == () == resolve(hosts[:8], whole=True).of_job


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("Error response from daemon: No such image: r/m:v1", "has no image r/m:v1: Error response"),
        ("Error: No such object: r/m:v1", "has no image r/m:v1: Error: No such object"),
        ("Error: r/m:v1: image not known", "has no image r/m:v1: Error: r/m:v1"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "cannot be asked for r/m:v1: Cannot"),
        ("permission denied while trying to connect to the docker API", "cannot be asked for r/m:v1: permission"),
    ],
)
def test_an_engine_that_does_not_answer_lacks_no_image(tmp_path: Path, error: str, words: str) -> None:
    engine = tmp_path / "docker"
    engine.write_text(f"#!/bin/sh\necho {shlex.quote(error)} >&2\nexit 1\n")
    engine.chmod(0o755)
    assert f"{engine} {words}" in needs._image({"path": str(engine), "image": "r/m:v1"}, {})
    engine.write_text("#!/bin/sh\necho sha256:5d\n")
    assert needs._image({"path": str(engine), "image": "r/m:v1"}, {}) == ""
