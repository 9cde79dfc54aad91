"""Primus: sizes and parallelism are those of AMD's file for the GPU, or of the site's own file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from shakedown.desired.models import Smoke
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.plan import PlanError, render
from shakedown.jobs.plan.participants import split
from shakedown.recipes.configurations import configurations, read_experiment
from shakedown.recipes.fitting import fit
from shakedown.recipes.options import choose
from shakedown.recipes.recipe import recipes
from tests.at_once import at_once
from tests.plans import rack
from tests.states import desired
from tests.unit.test_preflight import found

# Micro batch and global batch as a person read them in AMD's files at fd1eeab: MI300X, MI325X, MI355X, and for BF16 and
# FP8 where the two differ; MI355X's Qwen3-30B and GPT-OSS FP8 are those of pull requests 1011 and 1045. Then what all
# of the model's files have besides.
BATCHES: dict[str, tuple[str, str, str]] = {
    "llama3.1-8b": ("2/128", "4/128", "4/256 6/384"),
    "llama3.1-70b": ("3/24", "3/96 1/16", "1/128 4/32"),
    "llama3.3-70b": ("2/16 3/24", "3/96 1/24", "6/48 3/24"),
    "llama3.1-405b": ("1/256", "1/256", "1/256"),
    "llama2-7b": ("4/256", "4/256", "10/640 12/384"),
    "deepseek-v2-lite": ("4/640", "10/80 4/640", "12/768 14/896"),
    "deepseek-v3": ("4/256", "4/256", "2/4096"),
    "mixtral-8x7b": ("2/32", "3/192 2/32", "4/256 2/32"),
    "mixtral-8x22b": ("2/128", "2/128", "2/128"),
    "qwen2.5-72b": ("4/32", "16/256 4/32", "16/256 4/32"),
    "qwen3-30b-a3b": ("2/256", "8/512", "8/512"),
    "gpt-oss-20b": ("4/640", "8/640", "8/512 10/80"),
    "gpt-oss-120b": ("", "", "8/2048"),
}
SHAPES = {  # sequence length, TP, PP, EP
    "llama3.1-405b": (8192, 8, 8, 1),
    "llama2-7b": (4096, 1, 1, 1),
    "deepseek-v2-lite": (4096, 1, 1, 8),
    "deepseek-v3": (4096, 1, 1, 8),
    "mixtral-8x7b": (4096, 1, 1, 8),
    "mixtral-8x22b": (8192, 1, 4, 8),
    "qwen2.5-72b": (2048, 1, 1, 1),
    "qwen3-30b-a3b": (4096, 1, 1, 8),
    "gpt-oss-20b": (4096, 1, 1, 8),
    "gpt-oss-120b": (4096, 1, 2, 8),
}
GPUS = ("mi300x", "mi325x", "mi355x")
KNOWN = configurations("primus")


def argument(plan: LaunchPlan, name: str) -> str | None:
    """The value of an argument on the program's command line."""
    words = plan.nodes[0].command
    return words[words.index(f"--{name}") + 1] if f"--{name}" in words else None


def refused(recipe: str, nodes: int = 1, **more: Any) -> str:
    with pytest.raises(PlanError) as error:
        rack(recipe, nodes, **more)
    return str(error.value)


@pytest.mark.parametrize("gpu", [*GPUS, "mi350x"])
@at_once("model", BATCHES)
@at_once("precision", ["bf16", "fp8"])
def test_a_plan_has_the_sizes_of_the_gpu_s_file(model: str, precision: str, gpu: str) -> None:
    column = BATCHES[model][GPUS.index("mi355x" if gpu == "mi350x" else gpu)]
    name = f"primus-{model}-{precision}"
    if not column:
        assert f"AMD publishes gpt_oss_120B-{precision.upper()}: mi350x, mi355x" in refused(name, 2, gpu=gpu)
        return
    micro, batch = map(int, column.split()[-1 if precision == "fp8" else 0].split("/"))
    length, tensor, pipeline, expert = SHAPES.get(model, (8192, 1, 1, 1))
    if (model, gpu) in {("deepseek-v3", "mi355x"), ("deepseek-v3", "mi350x")}:
        pipeline = 16
    folder = "MI355X" if gpu == "mi350x" else gpu.upper()
    (path,) = (path for path in KNOWN.files if f"/{folder}/" in path and _recipe(path) == name)
    plan = rack(name, KNOWN.files[path].nodes or 1, gpu=gpu)
    assert (plan.micro_batch, plan.global_batch) == (micro, batch)
    assert (plan.seq_length, plan.tensor_parallel, plan.pipeline_parallel) == (length, tensor, pipeline)
    assert argument(plan, "expert_model_parallel_size") in (str(expert), None if expert == 1 else "")
    assert argument(plan, "config") == path
    assert {"micro_batch_size", "global_batch_size", "tensor_model_parallel_size"} <= {
        entry.name
        for entry in plan.derived
        if entry.why == f"{path}, {KNOWN.files[path].source or 'Primus at fd1eeab'}"
    }
    assert plan.expect == {}, "AMD publishes no figures for these"


def _recipe(path: str) -> str:
    experiment = path.rpartition("/")[2].removesuffix("-pretrain.yaml")
    return next(name for name, own in recipes().items() if own.entry.experiment == experiment)


@at_once("path", KNOWN.files)
def test_every_value_of_every_file_reaches_the_command(path: str) -> None:
    """The whole table, each on the nodes that its file is made for: what is passed is what the file says."""
    file, name = KNOWN.files[path], _recipe(path)
    gpu = next(gpu for gpu in KNOWN.gpus if f"/{KNOWN.gpus[gpu].folder}/" in path)
    smoke = Smoke(recipe=name)
    recipe, unfit = fit(recipes()[name], smoke, [gpu])
    chosen, problems = choose(recipe, smoke)
    sizes, undivided = split(chosen, 8 * (file.nodes or 1))
    assert [*unfit, *problems, *undivided] == []
    assert sizes is not None and sizes.global_batch == file.options["global_batch_size"]
    words = chosen.arguments()
    passed = {word[2:]: words[index + 1] for index, word in enumerate(words) if word.startswith("--")}
    assert {name: passed[name] for name in file.options} == {name: str(value) for name, value in file.options.items()}


def test_sharding_and_recomputing_are_those_of_the_file() -> None:
    plan = rack("primus-llama3.1-70b-bf16", gpu="mi355x")
    assert argument(plan, "use_torch_fsdp2") == "true"
    assert [argument(plan, f"recompute_{part}") for part in ("granularity", "method", "num_layers")] == [
        "full",
        "block",
        "30",
    ]
    assert argument(rack("primus-llama3.1-70b-fp8", gpu="mi325x"), "recompute_num_layers") == "72"


def test_values_that_are_newer_than_the_commit_name_their_source_and_what_they_need() -> None:
    """https://github.com/AMD-AGI/Primus/pull/1011, 1045 and 1119: without recomputation memory must not fragment."""
    allocator = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    for precision in ("bf16", "fp8", "mxfp4"):
        plan = rack(f"primus-qwen3-30b-a3b-{precision}", gpu="mi355x")
        assert (plan.micro_batch, plan.global_batch) == (8, 512)
        assert argument(plan, "recompute_num_layers") == (None if precision == "mxfp4" else "0")
        assert allocator.items() <= plan.nodes[0].environment.items()
        assert "pull request 1" in render(plan)
    assert not allocator.keys() & rack("primus-qwen3-30b-a3b-bf16").nodes[0].environment.keys()
    plan = rack("primus-qwen2.5-72b-mxfp4", gpu="mi350x")
    assert (plan.micro_batch, plan.global_batch, plan.seq_length) == (1, 32, 2048)
    assert (argument(plan, "use_torch_fsdp2"), plan.nodes[0].environment["NVTE_USE_CAST_TRANSPOSE_TRITON"]) == (
        "false",
        "0",
    )
    assert allocator.items() <= plan.nodes[0].environment.items()


def test_the_steps_of_the_file_hold_at_other_sizes() -> None:
    assert rack("primus-llama3.1-8b-fp8", 3, gpu="mi355x").global_batch == 3 * 384
    assert rack("primus-llama3.1-8b-bf16", 2, gpu="mi325x").global_batch == 2 * 128
    plan = rack("primus-llama3.1-8b-fp8", 1, gpu="mi355x", options={"micro_batch_size": 3})
    assert (plan.micro_batch, plan.global_batch) == (3, 8 * 3 * 8)
    (entry,) = (entry for entry in plan.derived if entry.name == "micro_batch_size")
    assert entry.value == "3" and entry.why.startswith("the site's; 6 in examples/megatron/configs/MI355X/llama3.1_8B")


def test_405b_divides_its_layers_by_hand() -> None:
    plan = rack("primus-llama3.1-405b-fp8", 8, gpu="mi325x")
    assert [argument(plan, f"decoder_{end}_pipeline_num_layers") for end in ("first", "last")] == ["15", "15"]
    plan = rack("primus-llama3.1-405b-fp8", 8, options={"decoder_first_pipeline_num_layers": 14})
    words = plan.nodes[0].command
    assert words.count("--decoder_first_pipeline_num_layers") == 1 and "15" not in words
    plan = rack("primus-llama3.1-405b-bf16", 9, options={"pipeline_model_parallel_size": 9})
    assert argument(plan, "decoder_first_pipeline_num_layers") is None
    assert "a multiple of 64 (tensor 8 x pipeline 8 x context 1 parallel)" in refused("primus-llama3.1-405b-bf16", 4)
    plan = rack("primus-llama3.1-405b-bf16", 16, min_nodes=7)
    (warning,) = (entry for entry in plan.derived if entry.name == "warning: min_nodes")
    assert warning.why == "no job fits 7, 9-15 nodes: the parallel sizes need a multiple of 64 ranks"
    assert not [entry for entry in rack("primus-llama3.1-8b-fp8", 3, min_nodes=1).derived if "min_nodes" in entry.name]
    text = refused("primus-mixtral-8x22b-fp8")
    assert "expected a multiple of 32 (tensor 1 x pipeline 4 x expert 8 parallel)" in text


@pytest.mark.parametrize("precision", ["mxfp8", "mxfp4"])
def test_mx_formats_are_for_gfx950(precision: str) -> None:
    name = f"primus-llama3.1-8b-{precision}"
    for gpu in ("mi350x", "mi355x"):
        plan = rack(name, gpu=gpu)
        assert (plan.micro_batch, plan.global_batch) == (6, 384)
        triton = plan.nodes[0].environment.get("NVTE_USE_CAST_TRANSPOSE_TRITON")
        assert triton == ("0" if precision == "mxfp4" else None)
    for gpu in ("mi300x", "mi325x"):
        assert f"not for {gpu}: gfx942 has no MX formats" in refused(name, gpu=gpu)


@pytest.mark.parametrize("gpu", ["mi250x", "radeon"])
def test_another_gpu_is_refused_with_what_is_published(gpu: str) -> None:
    text = refused("primus-llama3.1-8b-fp8", gpu=gpu)
    assert f"llama3.1_8B-FP8: mi300x, mi325x, mi350x, mi355x (Primus at fd1eeab); the GPU here is {gpu}" in text
    problems = found({"recipe": "primus-llama3.1-8b-fp8", "image": "megatron"}, gpu=gpu)
    assert "for which AMD publishes" in problems["smoke.recipe"]
    assert "smoke.options.config" not in problems


def test_two_models_in_one_job_share_a_file_or_are_refused() -> None:
    recipe = recipes()["primus-llama3.1-8b-fp8"]
    smoke = Smoke(recipe=recipe.name)
    fitted, problems = fit(recipe, smoke, ["mi350x", "mi355x"])
    assert problems == [] and fitted.entry.options["micro_batch_size"] == 6
    _, (problem,) = fit(recipe, smoke, ["mi300x", "mi355x"])
    assert "expected GPUs of one model: the values of examples/megatron/configs/MI300X/" in str(problem)
    _, (problem,) = fit(recipe, smoke, ["mi300x", None])
    assert "the GPU here is not known" in str(problem)


def test_an_allocator_for_70b_in_fp8_on_gfx942_is_in_the_container_s_environment() -> None:
    expandable = "expandable_segments:True"
    for gpu, wanted in (("mi300x", expandable), ("mi325x", expandable), ("mi355x", None)):
        node = rack("primus-llama3.1-70b-fp8", gpu=gpu).nodes[0]
        assert node.environment.get("PYTORCH_CUDA_ALLOC_CONF") == wanted
        assert ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in node.files["environment"]) == bool(wanted)
    assert "PYTORCH_CUDA_ALLOC_CONF" not in rack("primus-llama3.1-70b-bf16").nodes[0].environment
    assert "PYTORCH_CUDA_ALLOC_CONF" not in rack("primus-llama3.1-8b-fp8").nodes[0].environment


# -- another file -----------------------------------------------------------------------------------------------------

OWN = """
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${MODEL:llama3.1_70B}.yaml
    overrides:
      train_iters: 12
      micro_batch_size: 5
      global_batch_size: 80
      seq_length: ${LENGTH:2048}
      tensor_model_parallel_size: ${TP:2}
      use_torch_fsdp2: 1
      fp8: hybrid
      lr: 1.0e-5
"""


def own(folder: Path, text: str = OWN) -> str:
    (folder / "mine.yaml").write_text(text)
    return str(folder / "mine.yaml")


def test_another_file_of_amd_brings_its_own_sizes_and_parallelism() -> None:
    config = "examples/megatron/configs/MI300X/llama3.1_405B-BF16-pretrain.yaml"
    for path in (config, f"/primus/{config}"):
        plan = rack("primus-llama3.1-8b-bf16", 8, options={"config": path})
        assert (plan.tensor_parallel, plan.pipeline_parallel, plan.global_batch) == (8, 8, 256)
        assert argument(plan, "decoder_last_pipeline_num_layers") == "15"
    wrong = rack("primus-llama3.1-8b-bf16", gpu="mi355x", options={"config": config.replace("405B", "8B")})
    assert "warning: not made for mi355x" in render(wrong)
    assert wrong.micro_batch == 2


def test_a_file_of_the_site_is_read_and_goes_with_the_job(tmp_path: Path) -> None:
    config = own(tmp_path)
    plan = rack("primus-llama3.1-8b-bf16", options={"config": config})
    assert (plan.micro_batch, plan.global_batch, plan.seq_length, plan.iterations) == (5, 80, 2048, 12)
    assert (plan.tensor_parallel, plan.data_parallel) == (2, 4)
    assert argument(plan, "use_torch_fsdp2") == "true"
    assert argument(plan, "lr") is None, "the file has it"
    assert argument(plan, "config") == "/shakedown/experiment.yaml"
    assert plan.nodes[0].files["experiment.yaml"] == OWN
    assert plan.nodes[0].environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    entry = next(entry for entry in plan.derived if entry.name == "micro_batch_size")
    assert (entry.value, entry.why) == ("5", f"{config} of this machine")
    problems = found({"recipe": "primus-llama3.1-8b-bf16", "image": "megatron", "options": {"config": config}})
    assert set(problems) == {"smoke.options.checkout"}
    site = rack("primus-llama3.1-8b-bf16", 2, options={"config": config, "micro_batch_size": 1})
    assert (site.micro_batch, site.global_batch) == (1, 4 * 8)


def test_of_a_file_in_a_volume_the_host_s_is_read(tmp_path: Path) -> None:
    own(tmp_path)
    plan = rack("primus-llama3.1-8b-bf16", options={"config": "/c/mine.yaml"}, volumes={str(tmp_path): "/c:ro"})
    assert plan.micro_batch == 5


def test_of_a_file_that_only_the_nodes_have_every_size_is_asked_for() -> None:
    config = {"config": "/nowhere/x.yaml"}
    text = refused("primus-llama3.1-8b-bf16", options=config)
    sizes = {"micro_batch_size": 2, "global_batch_size": 32, "seq_length": 512}
    parallel = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1}
    for name in {**sizes, **parallel}:
        assert f"smoke.options.{name} = nothing: expected a value, since /nowhere/x.yaml is not a file of AMD's" in text
    plan = rack("primus-llama3.1-8b-bf16", options={**config, **sizes, **parallel})
    assert (plan.global_batch, plan.seq_length) == (32, 512)
    assert argument(plan, "config") == "/nowhere/x.yaml"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            OWN.replace("overrides", "other"),
            "in YAML with modules.pre_trainer with model and overrides",
        ),
        ("{[", "an experiment file in YAML"),
        ("[" * 5000, "an experiment file in YAML"),
        ("- 1", "an experiment file in YAML"),
        (OWN.replace("${LENGTH:2048}", "${LENGTH}"), "a value in place of ${LENGTH}, which has no default"),
        (OWN.replace("seq_length: ${LENGTH:2048}", "seq_length: much"), "a whole number, at least 1"),
        (OWN.replace("seq_length: ${LENGTH:2048}", "seq_length: -4"), "a whole number, at least 1"),
        (OWN + "      extends: [x.yaml]\n" + "extends: [base.yaml]\n", "a file without `extends`"),
        (OWN.replace("fp8: hybrid", "fp4: e2m1\n      fp4_recipe: mxfp4"), "gfx942 has no MX formats"),
        ("x" * 2**19, "an experiment file of at most 262144 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in refused("primus-llama3.1-8b-bf16", options={"config": own(tmp_path, text)})


def test_a_size_that_the_file_leaves_out_is_primus_own(tmp_path: Path) -> None:
    text = OWN.replace("      micro_batch_size: 5\n", "").replace("      tensor_model_parallel_size: ${TP:2}\n", "")
    plan = rack("primus-llama3.1-8b-bf16", options={"config": own(tmp_path, text)})
    assert (plan.micro_batch, plan.tensor_parallel) == (2, 1)


def test_the_precision_of_a_file() -> None:
    for line, wanted in (("note: 1", "BF16"), ("fp8: e4m3\n      fp8_recipe: mxfp8", "MXFP8"), ("fp8: null", "BF16")):
        assert read_experiment(OWN.replace("fp8: hybrid", line), lambda _: True).precision == wanted


# -- variables of GPU and NIC -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS)
def test_what_amd_asks_for_on_an_architecture_is_in_the_environment(gpu: str) -> None:
    gfx942 = ("HSA_NO_SCRATCH_RECLAIM", "NVTE_CK_IS_V3_ATOMIC_FP32", "PRIMUS_TURBO_ATTN_V3_ATOMIC_FP32")
    environment = rack("primus-llama3.1-8b-bf16", gpu=gpu).nodes[0].environment
    on_gfx950 = gpu == "mi355x"
    assert [environment.get(name) for name in gfx942] == [None if on_gfx950 else "1"] * 3
    assert environment.get("RCCL_WARP_SPEED_AUTO") == ("0" if on_gfx950 else None)


def test_what_amd_asks_for_on_its_nic_is_in_the_environment() -> None:
    wanted = desired("mi355x", "ainic").rdma
    assert wanted.usual_gid_index == 1
    expected = {"USING_AINIC": "1", "NCCL_PXN_DISABLE": "0", "NCCL_IB_TC": "104", "NCCL_IB_FIFO_TC": "192"}
    assert expected.items() <= wanted.environment.items()
    assert "USING_AINIC" not in desired("mi355x", "thor2").rdma.environment


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("      fp8: &a [x, x]\n      fp4: [*a, *a]", "alias"),
        ("      fp8: hybrid\n      fp8: e4m3", "twice"),
        ("      fp8: ${FP8:[&a [x, x], [*a, *a]]}", "alias"),
        ("      fp8: hybrid\n      note: .nan", "a number"),
        ("      fp8: hybrid\n      note: ${NOTE:.inf}", "a number"),
        ("      fp8: !!python/object/apply:os.system [id]", "constructor"),
    ],
)
def test_a_site_s_file_that_is_more_than_values_is_refused(change: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_experiment(OWN.replace("      fp8: hybrid", change), lambda _: True)


def test_a_long_line_of_open_variables_is_read_at_once() -> None:
    began = time.process_time()
    read_experiment(OWN.replace("fp8: hybrid", f"fp8: hybrid\n      note: '{'${a:' * 60_000}'"), lambda _: True)
    assert time.process_time() - began < 10
