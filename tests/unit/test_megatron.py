"""Combinations that Megatron-LM itself refuses are refused before the first connection."""

from typing import Any

import pytest

from shakedown.desired.models import Smoke
from shakedown.recipes.options import choose
from shakedown.recipes.program import megatron_rules, option_of, program, rules_of
from shakedown.recipes.recipe import Rule, families, recipes
from tests.at_once import at_once
from tests.plans import shipped
from tests.unit.test_preflight import LLAMA, found

DATA = {"data-path": "/d", "vocab-file": "/v", "merge-file": "/m"}
OTHERWISE = {
    "bf16": 1,
    "use-distributed-optimizer": 1,
    "pipeline-model-parallel-size": 2,
    "recompute-granularity": "selective",
}
RULES = [rule for rule in megatron_rules() if not rule.variables]


def problems_of(recipe: str, **options: Any) -> list[str]:
    return [str(problem) for problem in choose(shipped()[recipe], Smoke(recipe=recipe, options=options))[1]]


def some_value(name: str) -> Any:
    option = option_of(families()["radeon"], name)
    assert option is not None, name
    values: dict[str, Any] = {"flag": 1, "int": 2, "float": 2.0, "text": "x", "path": "/x"}
    return option.values[0] if option.values else values[option.type]


def broken(rule: Rule) -> dict[str, Any]:
    """Options of radeon-gpt-1gpu that break a rule."""
    options = {**DATA, **rule.when, **{name: some_value(name) for name in rule.given}}
    options |= {name: some_value(name) for name in rule.excludes[:1]}
    options |= {name: OTHERWISE[name] for name in rule.require}
    options |= {name: 0 for name in rule.needs if name == "fp16"}  # which the recipe itself has
    for name, other in rule.at_least.items():
        options |= {other: 2, name: 1} if isinstance(other, str) else {name: other - 1}
    for name, other in rule.below.items():
        options |= {other: 2, name: 2} if isinstance(other, str) else {name: other}
    return options


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.why)
def test_each_rule_names_arguments_of_megatron_and_refuses_what_breaks_it(rule: Rule) -> None:
    known = [program(name) for name in {name for family in families().values() for name in family.programs}]
    words = [*rule.names(), *rule.when, *rule.given, *rule.require, *rule.needs, *rule.excludes]
    for word in words:
        assert any(word in version.arguments for version in known), word
    options = broken(rule)
    recipe = "llama3.1-8b-bf16" if "WSD" in rule.when.values() else "radeon-gpt-1gpu"  # whose program is of 2023
    assert any(rule.why in problem for problem in problems_of(recipe, **options)), options


@at_once("name", [name for name, own in recipes().items() if own.family.programs])
def test_no_recipe_breaks_a_rule_by_itself(name: str) -> None:
    data = {"radeon": DATA, "stanford": {**DATA, "titles-data-path": "/t"}}
    assert problems_of(name, **data.get(recipes()[name].family_name, {})) == []


def test_fsdp_with_the_overlap_of_the_distributed_optimizer() -> None:
    (problem,) = problems_of("llama3.1-8b-bf16", **{"FSDP": 1, "overlap-param-gather": 1})
    assert "smoke.options.overlap-param-gather = 1: expected no overlap-param-gather with FSDP = 1" in problem
    assert problems_of("llama3.1-8b-bf16", **{"overlap-param-gather": 1}) == [], "the script passes its optimizer"
    assert len(problems_of("llama3.1-8b-bf16", **{"OPTIMIZER": "sgd", "overlap-param-gather": 1})) == 1
    assert len(problems_of("primus-llama3.1-8b-bf16", use_torch_fsdp2="true", overlap_param_gather="true")) == 1
    assert problems_of("primus-llama3.1-8b-bf16", overlap_param_gather="true") == [], "the file has the optimizer"


def test_what_a_script_passes_counts() -> None:
    assert len(problems_of("llama3.1-8b-bf16", **{"RECOMPUTE": 1, "recompute-granularity": "selective"})) == 1
    assert len(problems_of("llama3.1-8b-bf16", **{"rotary-interleaved": 1})) == 1
    assert problems_of("llama3.1-8b-bf16", **{"rotary-interleaved": 1, "ROPE_FUSION": 0}) == []
    assert problems_of("llama3.1-8b-bf16", save="/x") == [], "the script passes save-interval"
    assert len(problems_of("llama3.1-8b-bf16", **{"deterministic-mode": 1})) == 1
    (problem,) = problems_of("deepseek-v2-lite", **{"lr-warmup-fraction": 0.1})
    assert "lr-warmup-iters = as the script passes it: expected no lr-warmup-iters" in problem
    (problem,) = problems_of("llama3.1-8b-bf16", **{"use-flash-attn": 1})
    assert "expected no such option: it is USE_FLASH_ATTN" in problem


def test_a_variable_that_ends_the_program() -> None:
    queues = {**LLAMA, "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}
    assert found(queues) == {}
    problems = found({**queues, "options": {"FSDP": 1}})
    assert "expected another value with FSDP = 1" in problems["smoke.environment.CUDA_DEVICE_MAX_CONNECTIONS"]


def test_all_combinations_of_one_input_are_refused_at_once() -> None:
    options = {"FSDP": 1, "overlap-param-gather": 1, "PP": 2, "moe-use-upcycling": 1, "replication": 1}
    problems = found({**LLAMA, "options": options, "environment": {"RANK": "0"}})
    assert set(problems) == {
        "smoke.options.overlap-param-gather",
        "smoke.options.PP",
        "smoke.options.save",
        "smoke.options.replication-jump",
        "smoke.environment.RANK",
    }


def test_a_sequence_that_context_parallel_cannot_divide() -> None:
    problem = found({**LLAMA, "options": {"CP": 8, "SEQ_LENGTH": 8200}}, to_train=True)["smoke.options.SEQ_LENGTH"]
    assert "expected a multiple of 2 x context parallel 8" in problem
    assert found({**LLAMA, "options": {"CP": 8}}, to_train=True) == {}


def test_the_small_gpt_is_not_megatron_s_program() -> None:
    assert rules_of("gpt_small") == []
