"""The families beside Llama: the adaptation guide's, Stanford's and Primus'."""

from __future__ import annotations

import pytest

from shakedown.jobs.plan import PlanError, render
from shakedown.recipes.recipe import families, recipes
from tests.documents import commands, variables
from tests.plans import rack

GUIDE = commands("003_commands.txt")
DATA = {"data-path": "/data/text_document", "vocab-file": "/data/vocab.json"}
GPT_DATA = {**DATA, "merge-file": "/data/merges.txt"}
STANFORD = {**GPT_DATA, "titles-data-path": "/data/titles"}


def arguments(words: list[str]) -> dict[str, str | None]:
    """--name value, and --flag without one, after the program."""
    rest = words[next(i for i, word in enumerate(words) if word.endswith(".py")) + 1 :]
    found: dict[str, str | None] = {}
    for index, word in enumerate(rest):
        if word.startswith("--"):
            following = rest[index + 1] if index + 1 < len(rest) else "--"
            found[word] = None if following.startswith("--") else following
    return found


def same(ours: str | None, theirs: str | None) -> bool:
    try:
        return float(ours or "") == float(theirs or "")
    except ValueError:
        return ours == theirs


@pytest.mark.parametrize("name", [title for title in GUIDE if title in recipes()])
def test_the_guides_examples_argument_by_argument(name: str) -> None:
    (words,) = GUIDE[name]
    plan = rack(name, nic=None, options=GPT_DATA)
    (node,) = plan.nodes
    ours, theirs = arguments(node.command), arguments(words)
    own = {f"--{option}" for option in (*recipes()[name].entry.corrected, *GPT_DATA)}
    paths = {"--save", "--load", "--tensorboard-dir"}  # a trial keeps nothing
    different = {option for option in theirs if not same(ours.get(option), theirs[option])}
    assert different <= own | paths
    defaults = {"--tensor-model-parallel-size": "1", "--pipeline-model-parallel-size": "1", "--log-interval": "1"}
    added = {option: value for option, value in ours.items() if option not in theirs and option not in own}
    assert added.items() <= defaults.items()
    ranks = [word.partition("=")[2] for word in words if word.startswith("--nproc_per_node=")] or ["1"]
    assert str(plan.world_size) == ranks[0]
    assert node.command[:2] == ["env", "--chdir=/opt/megatron-lm"]


def test_the_guides_environment_and_its_warning_on_instinct() -> None:
    (words,) = GUIDE["environment"]
    plan = rack("radeon-gpt-2gpus", nic=None, options=GPT_DATA, environment={"NCCL_IB_DISABLE": "1"})
    assert variables(words).items() <= plan.nodes[0].environment.items()
    text = render(plan)
    assert "warning: HSA_ENABLE_SDMA" in text
    assert "warning: NCCL_IB_DISABLE" in text
    for variable in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "PYTORCH_ROCM_DEVICE"):
        assert plan.nodes[0].environment[variable] == "0,1"


def test_paths_that_only_the_site_knows_are_asked_for_at_once() -> None:
    with pytest.raises(PlanError) as error:
        rack("radeon-gpt-1gpu")
    assert [problem.path for problem in error.value.problems] == [f"smoke.options.{name}" for name in GPT_DATA]


@pytest.mark.parametrize(
    ("recipe", "program"),
    [
        ("stanford-bert", "pretrain_bert.py"),
        ("stanford-gpt", "pretrain_gpt.py"),
        ("stanford-gpt-moe", "pretrain_gpt.py"),
        ("stanford-t5", "pretrain_t5.py"),
        ("stanford-ict", "pretrain_ict.py"),
    ],
)
def test_stanfords_models_each_run_their_program(recipe: str, program: str) -> None:
    plan = rack(recipe, 2, options=STANFORD)
    for node in plan.nodes:
        job = node.command[node.command.index("torchrun") :]
        assert program in job
        assert job[job.index("--node-rank") + 1] == str(node.node_rank)
        assert not {"model", "checkout"} & set(node.environment)
    assert (plan.global_batch, plan.data_parallel) == (128, 16)


def test_stanfords_features_are_options() -> None:
    options = {"recompute-granularity": "full", "recompute-method": "uniform"}
    (node,) = rack("stanford-gpt-moe", options={**GPT_DATA, **options}).nodes
    given = arguments(node.command)
    assert given["--recompute-granularity"] == "full"
    assert given["--moe-num-experts"] == "64"
    (node,) = rack("stanford-gpt", options={**GPT_DATA, **options, "use-distributed-optimizer": 1}).nodes
    assert "--use-distributed-optimizer" in arguments(node.command)
    with pytest.raises(PlanError, match="does not work with expert parallelism"):
        rack("stanford-gpt-moe", options={**GPT_DATA, "use-distributed-optimizer": 1})


def test_stanford_supports_few_gpus() -> None:
    with pytest.raises(PlanError, match=r"node01: gpu.profile = mi355x: expected one of mi300x, mi250x, mi210 with"):
        rack("stanford-bert", gpu="mi355x", options=DATA)


def test_stanfords_image_is_the_documented_one() -> None:
    assert str(families()["stanford"].container.image).startswith(
        "rocm/stanford-megatron-lm:stanford-megatron-lm85f95ae"
    )
    assert "the document uses rocm/stanford-megatron-lm" in render(rack("stanford-bert", options=DATA))


def test_primus_gets_its_experiment_and_what_the_plan_derived() -> None:
    plan = rack("primus-llama3.1-8b-fp8", 2, options={"micro_batch_size": 4})
    node = plan.nodes[1]
    job = node.command[node.command.index("primus-cli") :]
    config = "examples/megatron/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml"
    assert job[:7] == ["primus-cli", "direct", "--", "train", "pretrain", "--config", config]
    assert job[job.index("--micro_batch_size") + 1] == "4"
    wanted = {"NNODES": "2", "NODE_RANK": "1", "GPUS_PER_NODE": "8", "MASTER_ADDR": plan.master_address}
    assert wanted.items() <= node.environment.items()
    # The options are Primus' own arguments, not torchrun's.
    assert "arguments" not in node.files
