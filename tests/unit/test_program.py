"""Recipes and documented commands are held against what their programs take."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from shakedown.desired.models import Smoke
from shakedown.jobs.plan import PlanError, render
from shakedown.recipes.option import Option, as_text
from shakedown.recipes.options import ResolvedOptions, choose
from shakedown.recipes.program import further_option, gated, of_image, program
from shakedown.recipes.recipe import Family, families, recipes
from tests.at_once import at_once
from tests.documents import commands, variables
from tests.plans import rack
from tests.program_arguments import variables_of
from tests.unit.test_preflight import found

GPT = {"data-path": "/d", "vocab-file": "/v", "merge-file": "/m"}
STANFORD = {**GPT, "titles-data-path": "/t"}
PROGRAMS = sorted(path.name[:-5] for path in (files("shakedown.recipes") / "programs").iterdir())


def chosen(recipe: str, **options: Any) -> tuple[ResolvedOptions, list[str]]:
    found, problems = choose(recipes()[recipe], Smoke(recipe=recipe, options=options))
    return found, [str(problem) for problem in problems]


def refusal(recipe: str, **options: Any) -> str:
    _, problems = chosen(recipe, **options)
    assert len(problems) == 1, problems
    return problems[0]


def takes(family: Family, name: str) -> bool:
    return any(program(each).takes(name, family.script) for each in family.programs)


# -- the data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_file_names_its_source_and_can_be_made_options_of(name: str) -> None:
    known = program(name)
    assert known.source.startswith("https://github.com/")
    assert len(known.commit) == 40 and int(known.commit, 16)
    assert name.rpartition("_")[2] in (known.commit[:7], "v0.12.1", "v3.0.2")
    assert len(known.arguments) > 150
    for argument, row in known.arguments.items():
        kind, values = row["type"], row.get("values", [])
        option = Option(type=kind, values=values, description="x", argument=f"--{argument}", loose=kind == "text")
        if row.get("default", "") != "" and not row.get("many") and not row.get("values"):
            assert option.parse(row["default"]) is not None


def test_every_program_belongs_to_a_family() -> None:
    assert {name for family in families().values() for name in family.programs} == set(PROGRAMS)


def test_the_variables_of_a_script() -> None:
    script = 'export FIXED=1\nMBS="${MBS:-2}"\nif [ -z ${MP_VP} ]; then x=1; fi\n# OLD="${OLD:-3}"\nLOG="a/${MBS}"\n'
    assert variables_of(script) == ({"MBS": "2", "MP_VP": ""}, ["FIXED", "LOG"])


@at_once("name", [name for name in recipes() if recipes()[name].family.programs])
def test_every_option_of_a_recipe_is_one_of_its_program(name: str) -> None:
    family = recipes()[name].family
    for option, known in family.options.items():
        if not known.placed:
            assert takes(family, (known.argument or option).removeprefix("--")), option
    for part in family.conditional:
        for word in part.arguments:
            assert not word.startswith("--") or takes(family, word[2:]), word


@pytest.mark.parametrize("family", [name for name, family in families().items() if family.programs])
def test_choices_are_those_of_the_program(family: str) -> None:
    known = families()[family]
    for name, option in known.options.items():
        rows = [program(each).arguments.get((option.argument or name).removeprefix("--")) for each in known.programs]
        for row in [row for row in rows if row and row.get("values") and option.values]:
            assert set(option.values) & set(row["values"]), name
        for row in [row for row in rows if row and option.argument]:
            same = {"choice": {"text", "choice"}, "path": {"text"}, "text": {"text"}}.get(option.type, {option.type})
            assert row["type"] in {*same, "text"}, name


@pytest.mark.parametrize("recipe", [title for title in commands("000_commands.txt") if title in recipes()])
def test_documented_variables_of_000_are_known_or_said_to_be_none(recipe: str) -> None:
    own = recipes()[recipe]
    for words in commands("000_commands.txt")[recipe]:
        for name in variables(words):
            known = all(program(each).takes(name, own.family.script) for each in own.family.programs)
            assert known or name in own.entry.corrected, name


def documented_arguments() -> list[tuple[str, str | None]]:
    found = []
    for lines in commands("003_options.txt").values():
        for words in lines:
            for word, following in zip(words, [*words[1:], "--"], strict=True):
                if word.startswith("--"):
                    found.append((word[2:], None if following.startswith("--") else following))
    return found


@pytest.mark.parametrize(("name", "value"), sorted(set(documented_arguments()), key=str))
def test_each_argument_of_003_is_passed_or_refused_with_the_reason(name: str, value: str | None) -> None:
    own = recipes()["radeon-gpt-2gpus"].family
    there = takes(own, name) and name != "checkpoint-activations"
    number = 1 if value is None else float(value) if value.replace(".", "").replace("e-", "").isdigit() else value
    given = int(number) if isinstance(number, float) and number.is_integer() else number
    found, problems = chosen("radeon-gpt-2gpus", **{**GPT, name: given})
    if there:
        assert problems == []
        words = found.arguments()
        place = words.index(f"--{name}")
        assert value is None or words[place + 1] == str(given) or float(words[place + 1]) == float(value)
    else:
        (problem,) = problems
        assert f"smoke.options.{name}" in problem and "Megatron-LM" in problem


# -- any argument of the program -------------------------------------------------------------------------------------


def test_an_argument_that_no_recipe_names_is_typed_by_the_program() -> None:
    found, problems = chosen("radeon-gpt-1gpu", **{**GPT, "loss-scale-window": 1000, "no-bias-gelu-fusion": 1})
    words = found.arguments()
    assert (problems, words[words.index("--loss-scale-window") + 1]) == ([], "1000")
    assert "--no-bias-gelu-fusion" in words
    assert "--no-bias-gelu-fusion" not in chosen("radeon-gpt-1gpu", **{**GPT, "no-bias-gelu-fusion": 0})[0].arguments()
    assert refusal("radeon-gpt-1gpu", **{**GPT, "loss-scale-window": "many"}).endswith("expected a number")
    assert refusal("radeon-gpt-1gpu", **{**GPT, "distributed-backend": "mpi"}).endswith("expected one of nccl, gloo")


def test_an_argument_with_several_values_becomes_several_words() -> None:
    options = {**STANFORD, "retriever-report-topk-accuracies": "1 5 20"}
    words = chosen("stanford-ict", **options)[0].arguments()
    place = words.index("--retriever-report-topk-accuracies")
    assert words[place + 1 : place + 4] == ["1", "5", "20"]
    assert chosen("stanford-ict", **{**options, "retriever-report-topk-accuracies": 1})[1] == []
    for wrong in ("1 five", " ", "1 2.5"):
        problem = refusal("stanford-ict", **{**options, "retriever-report-topk-accuracies": wrong})
        assert "each a whole number" in problem


def test_a_variable_of_the_script_that_no_recipe_names() -> None:
    found, problems = chosen("llama3.1-8b-fp8", EVAL_ITERS=3)
    assert (problems, found.variables()["EVAL_ITERS"]) == ([], "3")
    assert "--EVAL_ITERS" not in found.arguments()
    assert "smoke.environment.NCCL_PROTO" in refusal("llama3.1-8b-fp8", NCCL_PROTO="LL")


def test_arguments_reach_torchrun_through_the_script() -> None:
    plan = rack("llama3.1-8b-fp8", options={"lr-warmup-iters": 2})
    assert plan.nodes[0].files["arguments"] == "--lr-warmup-iters\n2\n"
    assert "lr-warmup-iters" not in plan.nodes[0].environment


@pytest.mark.parametrize(
    ("recipe", "name", "meant"),
    [
        ("radeon-gpt-1gpu", "inital-loss-scale", "initial-loss-scale"),
        ("radeon-gpt-1gpu", "--loss_scale_windw", "loss-scale-window"),
        ("stanford-gpt", "moe_top_k", "moe-top-k"),
        ("llama3.1-8b-fp8", "mbs", "MBS"),
        ("llama3.1-8b-fp8", "overlap_grad_reduc", "overlap-grad-reduce"),
        ("primus-llama3.1-8b-fp8", "adam-beta1", "adam_beta1"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(recipe: str, name: str, meant: str) -> None:
    _, problems = chosen(recipe, **{**STANFORD, name: 1} if "llama" not in recipe else {name: 1})
    (problem,) = [problem for problem in problems if f"smoke.options.{name} =" in problem]
    assert problem.endswith(f"expected a known option (did you mean {meant}?)")


def test_an_option_far_from_all_names_the_usual_ones() -> None:
    assert "such as MODEL_SIZE, MBS" in refusal("llama3.1-8b-fp8", qqqqq=1)


@pytest.mark.parametrize(
    ("recipe", "name", "why"),
    [
        ("llama3.1-8b-fp8", "tensor-model-parallel-size", "it is TP"),
        ("llama3.1-8b-fp8", "num-layers", "MODEL_SIZE decides it"),
        ("llama2-7b-fp8", "NO_TORCH_COMPILE", "it changes nothing"),
        ("deepseek-v2-lite", "expert-model-parallel-size", "fixes it to 8"),
        ("radeon-gpt-1gpu", "train-samples", "counted in iterations"),
        ("radeon-gpt-1gpu", "checkpoint-activations", "recompute-granularity = full"),
        ("stanford-ict", "query-seq-length", "no such argument"),
    ],
)
def test_what_would_undo_the_plan_is_refused(recipe: str, name: str, why: str) -> None:
    assert further_option(recipes()[recipe].family, name) is None
    _, problems = chosen(recipe, **{**(STANFORD if "stanford" in recipe or "radeon" in recipe else {}), name: 1})
    assert [why in problem for problem in problems if name in problem] == [True]


@pytest.mark.parametrize("name", ["HF_TOKEN", "HF_HUB_TOKEN", "HUGGING_FACE_HUB_TOKEN", "hf_token"])
def test_a_token_is_no_option_and_is_not_repeated(name: str) -> None:
    for recipe in ("llama3.1-8b-fp8", "gpt-small"):
        problem = refusal(recipe, **{name: "hf_secret"})
        assert "smoke.hf_token_file" in problem and "exported" in problem and "hf_secret" not in problem
    smoke = {"recipe": "llama3.1-8b-fp8", "image": "megatron", "environment": {name: "hf_secret"}}
    problem = found(smoke)[f"smoke.environment.{name}"]
    assert "hf_token_file" in problem and "hf_secret" not in problem


# -- what excludes each other ----------------------------------------------------------------------------------------


def test_t5_and_ict_pass_what_85f95ae_takes() -> None:
    known = program("stanford_85f95ae")
    for recipe in (name for name in recipes() if name.startswith("stanford")):
        (node,) = rack(recipe, options=STANFORD).nodes
        given = {word[2:] for word in node.command[node.command.index("torchrun") :] if word.startswith("--")}
        assert given - {"nnodes", "node-rank", "nproc-per-node", "master-addr", "master-port"} <= set(known.arguments)
        assert not {"seq-length", "encoder-seq-length"} <= given
        assert not {"num-layers", "encoder-num-layers"} <= given
    (node,) = rack("stanford-t5", options=STANFORD).nodes
    assert {"--seq-length", "--decoder-seq-length"} <= set(node.command)


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ("stanford-t5", {"encoder-seq-length": 512}, "no encoder-seq-length with seq-length"),
        ("stanford-gpt", {"seq-length": 1025}, "at least seq-length = 1025"),
        ("stanford-t5", {"decoder-seq-length": 513}, "at least decoder-seq-length = 513"),
        ("stanford-gpt", {"min-lr": 0.00011}, "at least min-lr = 0.00011"),
        ("stanford-gpt", {"save": "/c"}, "save-interval = nothing: expected a value with save"),
        ("stanford-gpt", {"recompute-granularity": "full"}, "recompute-method = nothing"),
        ("stanford-gpt", {"recompute-granularity": "selective", "recompute-method": "block"}, "no recompute-method"),
        ("stanford-gpt", {"transformer-impl": "transformer_engine"}, "local with fp16 = 1"),
        ("stanford-gpt", {"bf16": 1}, "expected 0 with fp16 = 1"),
        ("stanford-gpt", {"lr-warmup-fraction": 0.1, "lr-warmup-iters": 2}, "no lr-warmup-iters"),
        ("stanford-gpt", {"lr-warmup-iters": 50}, "lr-warmup-iters = 50: expected less than train-iters = 50: "),
        ("stanford-gpt", {"lr-warmup-iters": 9, "lr-decay-iters": 9}, "less than lr-decay-iters = 9: "),
        ("stanford-gpt", {"lr-warmup-fraction": 1}, "lr-warmup-fraction = 1: expected less than 1: "),
        ("radeon-gpt-1gpu", {"lr-warmup-init": 0.5}, "expected at least lr-warmup-init = 0.5: "),
        ("stanford-gpt", {"start-weight-decay": 0.1, "end-weight-decay": 0.2}, "weight-decay-incr-style = nothing"),
        ("stanford-gpt", {"end-weight-decay": 0.2}, "start-weight-decay = nothing"),
        ("stanford-gpt", {"eval-interval": 0}, "expected at least 1: "),
        ("llama3.1-8b-fp8", {"exit-interval": 49}, "exit-interval = 49: expected at least TOTAL_ITERS = 50: "),
        ("llama3.1-8b-fp8", {"lr-warmup-iters": 8, "lr-decay-iters": 8}, "less than lr-decay-iters = 8: "),
        ("llama3.1-8b-fp8", {"lr-decay-style": "WSD"}, "lr-wsd-decay-iters = nothing"),
        ("llama3.1-8b-fp8", {"skip-train": 1}, "no skip-train: a smoke run trains"),
        ("stanford-ict", {"tensor-model-parallel-size": 2}, "ICT has no model parallelism"),
        ("radeon-gpt-1gpu", {"save": "/c"}, "save-interval = nothing"),
        ("radeon-gpt-1gpu", {"max-position-embeddings": 1023}, "at least seq-length = 1024"),
        ("llama2-7b-fp8", {"TOKENIZER_TYPE": "Llama2Tokenizer", "TOKENIZER_MODEL": "/t"}, "no TOKENIZER_MODEL with"),
        ("llama3.1-8b-fp8", {"MOCK_DATA": 0}, "DATA_PATH = nothing: expected a value with MOCK_DATA = 0"),
        ("llama3.1-8b-fp8", {"MOCK_DATA": 1, "DATA_PATH": "/d/x"}, "expected 0 with DATA_PATH"),
        ("llama3.1-8b-fp8", {"ENABLE_PROFILING": 1, "TOTAL_ITERS": 12}, "at least 13 with ENABLE_PROFILING = 1"),
    ],
)
def test_what_the_program_refuses_is_refused_before(recipe: str, options: dict[str, Any], expected: str) -> None:
    data = STANFORD if recipe.startswith(("stanford", "radeon")) else {}
    if recipe.startswith("radeon"):
        data = GPT
    assert expected in refusal(recipe, **{**data, **options})


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("stanford-gpt", {"seq-length": 1024}),
        ("stanford-t5", {"decoder-seq-length": 512}),
        ("stanford-gpt", {"min-lr": 0.0001}),
        ("stanford-gpt", {"save": "/c", "save-interval": 10}),
        ("stanford-gpt", {"recompute-granularity": "selective"}),
        ("stanford-gpt", {"recompute-granularity": "full", "recompute-method": "block"}),
        ("stanford-gpt", {"bf16": 1, "fp16": 0, "transformer-impl": "transformer_engine"}),
        ("stanford-gpt", {"lr-warmup-iters": 49, "exit-interval": 50}),
        ("stanford-gpt", {"lr-warmup-iters": 50, "lr-decay-iters": 51}),
        ("llama3.1-8b-fp8", {"lr-warmup-iters": 60}),  # the script passes 320,000 iterations of decay
        ("stanford-ict", {"tensor-model-parallel-size": 1}),
        ("llama3.1-8b-fp8", {"ENABLE_PROFILING": 1, "TOTAL_ITERS": 13}),
        ("llama3.1-8b-fp8", {"MOCK_DATA": 0, "DATA_PATH": "/d/x"}),
    ],
)
def test_what_just_fits_is_taken(recipe: str, options: dict[str, Any]) -> None:
    data = STANFORD if recipe.startswith("stanford") else {}
    assert chosen(recipe, **{**data, **options})[1] == []


def test_a_gpt_needs_its_merges_and_an_ict_its_titles() -> None:
    _, problems = chosen("stanford-gpt", **{"data-path": "/d", "vocab-file": "/v"})
    assert [problem.partition(" = ")[0] for problem in problems] == ["smoke: smoke.options.merge-file"]
    _, problems = chosen("stanford-ict", **{"data-path": "/d", "vocab-file": "/v"})
    assert [problem.partition(" = ")[0] for problem in problems] == ["smoke: smoke.options.titles-data-path"]
    assert chosen("stanford-bert", **{"data-path": "/d", "vocab-file": "/v"})[1] == []


def test_real_data_is_read_where_a_script_names_its_own_place() -> None:
    found, problems = chosen("llama3.1-8b-fp8", DATA_PATH="/d/x", DATA_CACHE_PATH="/cache")
    assert (problems, found.given["MOCK_DATA"]) == ([], False)
    assert found.arguments() == ["--data-cache-path", "/cache"]
    assert "reads it" in found.forced["MOCK_DATA"]
    assert "rocm_fd6f0d1" in families()["llama3"].programs
    assert "DATA_CACHE_PATH" in program("rocm_fd6f0d1").sets["examples/llama/train_llama3.sh"]
    assert "DATA_DIR" in program("rocm_fd6f0d1").sets["examples/deepseek_v2/train_deepseekv2.sh"]
    words = chosen("deepseek-v2-lite", MOCK_DATA=0, DATA_DIR="/root/data")[0].arguments()
    assert words[:2] == ["--train-data-path", "/root/data/mmap_deepseekv2_datasets_text_document"]
    assert chosen("deepseek-v2-lite")[0].arguments() == []


# -- what the plan tells ---------------------------------------------------------------------------------------------


def test_an_option_that_not_every_version_has_is_told() -> None:
    told = render(rack("radeon-gpt-1gpu", nic=None, options={**GPT, "use-flash-attn": 1}))
    assert "note: use-flash-attn" in told and "c99f1fd (2022-05-25) has no such argument" in told
    assert "note:" not in render(rack("radeon-gpt-1gpu", nic=None, options=GPT))


def test_the_documented_image_holds_the_documented_commit() -> None:
    llama = families()["llama3"]
    assert [each.name for each in of_image(llama, "rocm/megatron-lm:v25.4")] == ["rocm_fd6f0d1"]
    assert [each.name for each in of_image(llama, "rocm/megatron-lm:v25.5")] == ["rocm_8aa8865", "rocm_fd6f0d1"]
    assert [each.name for each in of_image(llama, None)] == ["rocm_8aa8865", "rocm_fd6f0d1"]
    told = render(rack("llama3.1-8b-fp8", options={"EVAL_ITERS": 3}))
    assert "note: EVAL_ITERS" in told and "fd6f0d1 (2025-03-13) reads no such variable" in told
    told = render(rack("llama3.1-8b-fp8", options={"DATA_CACHE_PATH": "/c"}))
    assert "fd6f0d1 (2025-03-13) sets it itself" in told


@pytest.mark.parametrize(
    ("model", "asks"),
    [
        ("meta-llama/Llama-3.1-8B", True),
        ("google/gemma-2-9b", True),
        ("NousResearch/Meta-Llama-3-8B", False),
        ("deepseek-ai/DeepSeek-V2-Lite", False),
        ("/data/meta-llama/x", False),
    ],
)
def test_which_models_are_gated(model: str, asks: bool) -> None:
    assert gated(model) is asks


def test_a_gated_tokenizer_without_a_token_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    warning = "warning: tokenizer"
    assert warning in render(rack("llama3.1-8b-fp8"))
    assert "there is no token: smoke.hf_token_file, HF_TOKEN exported here" in render(rack("llama3.1-8b-fp8"))
    # The script of v25.4 downloads Llama 3.1's whatever is named, and takes a folder as it is.
    assert warning in render(rack("llama3.1-8b-fp8", options={"TOKENIZER_MODEL": "NousResearch/Meta-Llama-3-8B"}))
    assert warning not in render(rack("llama3.1-8b-fp8", options={"TOKENIZER_MODEL": "/data/tokenizer"}))
    assert warning not in render(rack("llama2-7b-fp8"))
    assert warning not in render(rack("deepseek-v2-lite"))
    token = tmp_path / "token"
    token.write_text("hf_x")
    token.chmod(0o600)
    plan = rack("llama3.1-8b-fp8", hf_token_file=str(token))
    assert warning not in render(plan) and plan.nodes[0].secrets == ["HF_TOKEN"]


def test_an_exported_token_goes_with_the_jobs_that_take_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_exported")
    plan = rack("llama3.1-8b-fp8")
    assert plan.nodes[0].secrets == ["HF_TOKEN"]
    assert "warning: tokenizer" not in render(plan) and "as it is exported on this machine" in render(plan)
    assert "hf_exported" not in plan.model_dump_json()
    assert rack("stanford-bert", options=STANFORD).nodes[0].secrets == []
    monkeypatch.setenv("HF_TOKEN", "")
    assert rack("llama3.1-8b-fp8").nodes[0].secrets == []


def test_traces_of_the_profiler_are_fetched() -> None:
    plan = rack("llama3.1-8b-fp8", options={"ENABLE_PROFILING": 1})
    assert plan.nodes[0].logs == ["{run_dir}/logs/output_perf.log", "{run_dir}/logs/traces.tar.gz"]
    assert rack("llama3.1-8b-fp8").nodes[0].logs == ["{run_dir}/logs/output_perf.log"]


# -- which GPUs ------------------------------------------------------------------------------------------------------


def test_gpus_are_chosen_as_the_documents_do_it() -> None:
    own = {"HIP_VISIBLE_DEVICES": "2,5", "CUDA_VISIBLE_DEVICES": "2,5", "PYTORCH_ROCM_DEVICE": "2,5"}
    plan = rack("radeon-gpt-2gpus", nic=None, options=GPT, environment=own)
    assert own.items() <= plan.nodes[0].environment.items()
    assert plan.world_size == 2
    plan = rack("llama3.1-8b-fp8", environment={"ROCR_VISIBLE_DEVICES": "0,1,2,7"})
    assert (plan.world_size, plan.nodes[0].environment.get("HIP_VISIBLE_DEVICES")) == (4, None)
    assert "one for each of the GPUs 0,1,2,7" in render(plan)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HIP_VISIBLE_DEVICES": ""}, "the numbers of GPUs"),
        ({"HIP_VISIBLE_DEVICES": "0,0"}, "each once"),
        ({"HIP_VISIBLE_DEVICES": "GPU-1,GPU-2"}, "the numbers of GPUs"),
        ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,2"}, "expected 0,1 as HIP_VISIBLE_DEVICES says"),
        ({"HIP_VISIBLE_DEVICES": "0,1", "ROCR_VISIBLE_DEVICES": "0,1"}, "count among the GPUs that it leaves"),
        ({"HIP_VISIBLE_DEVICES": "0"}, "= 0: expected 2 GPUs, one for each rank of a node"),
        ({"HIP_VISIBLE_DEVICES": "0,8"}, "= 0,8: expected GPUs 0 to 7, the 8 GPUs of mi300x"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_before_the_first_connection(
    environment: dict[str, str], expected: str
) -> None:
    assert expected in str(found({"recipe": "radeon-gpt-2gpus", "options": GPT, "environment": environment}))


def test_a_chosen_gpu_that_a_node_has_not_is_refused() -> None:
    with pytest.raises(PlanError, match="gpus = 8: expected at least 9: GPU 8 was chosen"):
        rack("radeon-gpt-2gpus", nic=None, options=GPT, environment={"HIP_VISIBLE_DEVICES": "0,8"})


def test_the_last_gpu_can_be_chosen() -> None:
    assert rack("radeon-gpt-2gpus", nic=None, options=GPT, environment={"HIP_VISIBLE_DEVICES": "0,7"}).world_size == 2
    with pytest.raises(PlanError, match=r"smoke.ranks_per_node = 4: expected 8"):
        rack("deepseek-v2-lite", environment={"HIP_VISIBLE_DEVICES": "0,1,2,3"})


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4096.0, "4096"),
        (4294967296.0, "4294967296.0"),
        (1e-05, "1e-05"),
        (0.12345678, "0.12345678"),
        (True, "1"),
        (3, "3"),
    ],
)
def test_numbers_reach_the_program_as_they_are(value: Any, text: str) -> None:
    assert as_text(value) == text
    assert float(text) == float(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="a number"):
        Option(type="float", description="x").parse(value)


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x1b[31m", "\0", ""])
def test_a_text_with_control_characters_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="a text"):
        Option(type="text", description="x").parse(value)
