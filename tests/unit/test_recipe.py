"""Recipes are what their documents say, and a run's options are checked all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shakedown.desired.models import Smoke
from shakedown.recipes.documents import documents
from shakedown.recipes.options import ResolvedOptions, as_text, choose
from shakedown.recipes.recipe import Family, families, recipes
from tests.documents import commands, configuration, variables

DOCUMENTED = commands("000_commands.txt")
LAUNCHED = {title: lines for title, lines in DOCUMENTED.items() if title in recipes()}
DERIVED = {"MASTER_ADDR", "NNODES", "NODE_RANK"}
CVS = {"mi300x": "mi300x", "mi325": "mi325x", "mi350": "mi350x", "mi355": "mi355x"}


def chosen(recipe: str, **smoke: Any) -> tuple[ResolvedOptions, list[str]]:
    found, problems = choose(recipes()[recipe], Smoke(recipe=recipe, **smoke))
    return found, [str(problem) for problem in problems]


def test_every_command_of_document_000_has_its_recipe() -> None:
    others = {"docker run", "key options of Llama", "key options of DeepSeek V2"}
    assert set(DOCUMENTED) - others == set(LAUNCHED)
    assert len(LAUNCHED) == 10


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_recipe_has_the_documented_values(name: str) -> None:
    recipe = recipes()[name]
    own = {option: as_text(recipe.family.options[option].parse(v)) for option, v in recipe.entry.options.items()}
    for words in LAUNCHED[name]:
        wanted = {key: value for key, value in variables(words).items() if key not in DERIVED}
        different = {key for key in wanted if own.get(key) != wanted[key]}
        assert different | (set(own) - set(wanted)) == set(recipe.entry.corrected)
        assert words[-2:] == recipe.family.command


@pytest.mark.parametrize(
    ("title", "family"), [("Llama", "llama3"), ("Llama", "llama2"), ("DeepSeek V2", "deepseek_v2")]
)
def test_every_documented_key_option_is_typed(title: str, family: str) -> None:
    (names,) = DOCUMENTED[f"key options of {title}"]
    assert set(names) <= set(families()[family].options)


@pytest.mark.parametrize(
    ("file", "nodes"),
    [
        ("mi3xx_megatron_llama_single.json", 1),
        ("mi35x_megatron_llama_single.json", 1),
        ("mi3xx_megatron_llama_distributed.json", 4),
    ],
)
def test_figures_and_sizes_are_those_of_document_001(file: str, nodes: int) -> None:
    (models,) = configuration(file)["model_params"].values()
    rows = [(gpu, values) for gpus in models.values() for gpu, values in gpus.items()]
    assert len(rows) == 4
    for gpu, row in rows:
        assert _recipe_of(CVS[gpu], nodes, row), (file, gpu, row)


def _recipe_of(gpu: str, nodes: int, row: dict[str, Any]) -> list[str]:
    """The recipes with these sizes, and these figures for this GPU and number of nodes."""
    results = row["result_dict"]
    figures = {k: float(results.get(f"_example_{k}", v)) for k, v in results.items() if not k.startswith("_")}
    sizes = {
        "MODEL_SIZE": row["model_size"],
        "BS": row["batch_size"],
        "MBS": row["micro_batch_size"],
        "SEQ_LENGTH": row["sequence_length"],
        "TP": row["tensor_parallelism"],
        "PP": row["pipeline_parallelism"],
        "FSDP": row["fsdp"],
        "RECOMPUTE": row["recompute"],
        "TE_FP8": {"TE_FP8": "1", "TE_FP16": "0"}[row["precision"]],
    }
    found = []
    for name, recipe in recipes().items():
        if recipe.family_name != "llama3":
            continue
        own, _ = chosen(name)
        fits = all(as_text(own.value(option) or 0) == size for option, size in sizes.items())
        expected = [each.figures for each in recipe.entry.expect if gpu in each.gpus and each.nodes == nodes]
        if fits and figures in expected:
            found.append(name)
    return found


def test_all_errors_of_the_options_come_at_once() -> None:
    _, problems = chosen(
        "llama3.1-8b-fp8",
        iterations=20,
        options={"MSB": 2, "BS": "many", "TP": 3, "TE_FP8": 2, "MASTER_ADDR": "10.0.0.1", "EP": 8, "TOTAL_ITERS": 30},
    )
    text = "\n".join(problems)
    assert len(problems) == 7
    for part in ("MSB = 2: expected a known option (did you mean MBS?)", "BS = 'many'", "one of 1, 2, 4, 8", "0 or 1"):
        assert part in text
    assert "MASTER_ADDR = '10.0.0.1': expected no such option: it is derived" in text
    assert "Llama is a dense model" in text
    assert "smoke.iterations = 20: expected 30 as smoke.options.TOTAL_ITERS says" in text


def test_an_unknown_precision_is_an_error_and_never_fp8() -> None:
    found, problems = chosen("llama3.1-8b-bf16", options={"precision": "TE_INT4"})
    known = "TE_FP8, TE_FP16, TE_BF16, TE_F16, fp8, bf16"
    assert problems == [f"smoke: smoke.options.precision = 'TE_INT4': expected one of {known}"]
    assert found.variables()["TE_FP8"] == "0"


@pytest.mark.parametrize(("precision", "flag"), [("TE_FP16", "0"), ("bf16", "0"), ("TE_FP8", "1"), ("fp8", "1")])
def test_te_fp16_means_sixteen_bits(precision: str, flag: str) -> None:
    found, problems = chosen("llama3.1-8b-fp8", options={"precision": precision})
    assert (problems, found.variables()["TE_FP8"]) == ([], flag)


def test_precision_and_flag_must_not_contradict() -> None:
    _, problems = chosen("llama3.1-8b-fp8", options={"precision": "bf16", "TE_FP8": 1})
    assert problems == ["smoke: smoke.options.precision = 'bf16': expected what TE_FP8 = 1 says, or no TE_FP8"]


def test_fsdp_excludes_what_the_document_says() -> None:
    options = {"FSDP": 1, "TP": 2, "PP": 2, "SEQ_PARALLEL": 1, "use-distributed-optimizer": 1}
    _, problems = chosen("llama3.1-8b-bf16", options=options)
    assert [problem.partition(" = ")[0] for problem in problems] == [
        "smoke: smoke.options.TP",
        "smoke: smoke.options.SEQ_PARALLEL",
        "smoke: smoke.options.PP",
        "smoke: smoke.options.use-distributed-optimizer",
    ]


def test_fsdp_turns_sequence_parallelism_off_and_says_so() -> None:
    found, problems = chosen("llama3.1-8b-bf16", options={"FSDP": 1})
    assert problems == []
    assert found.variables()["SEQ_PARALLEL"] == "0"
    assert "FSDP2" in found.forced["SEQ_PARALLEL"]


def test_fp8_without_transformer_engine_is_refused() -> None:
    _, problems = chosen("llama3.1-8b-fp8", options={"transformer-impl": "local"})
    assert len(problems) == 1
    found, problems = chosen("llama3.1-8b-bf16", options={"transformer-impl": "local"})
    assert (problems, found.arguments()) == ([], ["--transformer-impl", "local"])


def test_the_documents_own_spelling_of_the_model_size() -> None:
    found, problems = chosen("llama3.1-8b-fp8", options={"MODEL_SIZE": "70B"})
    assert (problems, found.variables()["MODEL_SIZE"]) == ([], "70")


def test_too_few_iterations_leave_nothing_to_judge() -> None:
    _, problems = chosen("llama3.1-8b-fp8", options={"TOTAL_ITERS": 3})
    assert problems == ["smoke: smoke.options.TOTAL_ITERS = 3: expected at least 4"]


def test_deepseek_ends_after_fifty_iterations() -> None:
    _, problems = chosen("deepseek-v2-lite", iterations=51)
    assert problems == ["smoke: smoke.iterations = 51: expected a whole number, at least 1, at most 50"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"recipes": {"x": {"description": "x", "options": {"MBZ": 1}}}}, "recipes.x: MBZ is no option"),
        ({"recipes": {"x": {"description": "x", "options": {"TP": 3}}}}, "one of 1, 2, 4, 8"),
        ({"rules": [{"when": {"FSPD": 1}, "require": {}, "why": "x"}]}, "rules: FSPD is no option"),
        ({"color": "red"}, "Extra inputs"),
    ],
)
def test_a_typing_error_in_a_family_is_found(change: dict[str, Any], complaint: str) -> None:
    document = families()["llama3"].model_dump(exclude_unset=True)
    with pytest.raises(ValueError, match=complaint):
        check(Family.model_validate(document | change))


def check(family: Family) -> None:
    """Raise ValueError for a name in the file that means no option of the family, and for a value that is none."""
    used: list[tuple[str, Mapping[str, Any]]] = [("roles", dict.fromkeys(family.role_options.values()))]
    used += [("names", dict.fromkeys(family.names.values()))]
    used += [(f"recipes.{name}", entry.options) for name, entry in family.recipes.items()]
    used += [("rules", {**dict.fromkeys(rule.names()), **rule.when, **rule.require}) for rule in family.rules]
    used += [("conditional", {**dict.fromkeys(part.given), **part.when}) for part in family.conditional]
    used += [("models", {**model.when, **model.sharded}) for model in family.models]
    used += [("launch.real_data", family.launch.real_data)]
    used += [("launch.cache_dir", dict.fromkeys(filter(None, (family.launch.cache_dir,))))]
    spelt_out = [(name, meaning) for name, values in family.shorthand.items() for meaning in values.values()]
    used += [(f"shorthand.{name}", meaning) for name, meaning in spelt_out]
    corrected = {name: set(entry.corrected) - set(family.refused) for name, entry in family.recipes.items()}
    used += [(f"recipes.{name}.corrected", dict.fromkeys(names)) for name, names in corrected.items()]
    used += [("options", {name: option.default}) for name, option in family.options.items()]
    for where, options in used:
        for name, value in options.items():
            if name not in family.options and name not in family.facts:
                raise ValueError(f"{where}: {name} is no option of this family")
            if value is not None and name in family.options:
                family.options[name].parse(value)
    for name, option in family.options.items():
        if option.type == "choice" and not option.values:
            raise ValueError(f"{name}: a choice needs values")
    for document in (family.document, *(entry.document for entry in family.recipes.values() if entry.document)):
        if document not in documents():
            raise ValueError(f"{document}: not in documents.toml")
    for expect in (expect for entry in family.recipes.values() for expect in entry.expect):
        if expect.source not in documents():
            raise ValueError(f"{expect.source}: not in documents.toml")


@pytest.mark.parametrize("name", families())
def test_every_name_in_a_familys_file_means_something(name: str) -> None:
    check(families()[name])


def test_no_two_families_have_a_recipe_of_one_name() -> None:
    assert len(recipes()) == sum(len(family.recipes) for family in families().values())


def test_llama2_takes_what_llama3_takes() -> None:
    llama2, llama3 = families()["llama2"], families()["llama3"]
    assert set(llama2.options) - set(llama3.options) == {"TOKENIZER_TYPE"}
    assert llama2.options["MODEL_SIZE"].values == [7, 13, 70]
    assert not set(llama2.recipes) & set(llama3.recipes)


def test_a_document_that_nobody_knows_is_refused() -> None:
    """What a plan or a finding names is a title with an address, never a name that leads nowhere."""
    document = families()["llama3"].model_dump(exclude_unset=True)
    with pytest.raises(ValueError, match=r"documents\.toml"):
        check(Family.model_validate({**document, "document": "000.txt"}))
    assert all(each.url is None or each.url.startswith("https://") for each in documents().values())
    named = {recipe.document for recipe in recipes().values()}
    assert {each.title for each in named if each.url is None} == {documents()["embedded"].title}
