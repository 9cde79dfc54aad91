"""The global batch: the recipe's accumulation steps hold for any number of nodes, and the site's own value stays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.desired.models import Smoke
from shakedown.jobs.plan import render
from shakedown.jobs.plan.participants import Split, split
from shakedown.recipes.options import choose, documented, model_parallel
from shakedown.runner.repair.child import Commands
from shakedown.runner.repair.service import loads
from shakedown.service.evidence import SMOKE
from tests.plans import rack, shipped
from tests.states import desired
from tests.unit.test_preflight import LLAMA, found

STEPS = {
    "deepseek-v2-lite": 8,
    "llama2-7b-fp8": 8,
    "llama2-70b-bf16-fsdp": 1,
    "llama2-7b-benchmark": 24,
    "llama2-7b-benchmark-2nodes": 8,
    "llama3.1-8b-fp8": 8,
    "llama3.1-8b-fp8-2nodes": 8,
    "llama3.1-70b-fp8": 128,
    "llama3.1-70b-bf16-4nodes": 16,
    "llama3.1-8b-fp8-mi355x": 4,
    "primus-llama3.1-8b-fp8": 8,
    "primus-llama3.1-70b-bf16": 1,
    "radeon-gpt-tp2": 8,
    "radeon-gpt-1gpu": 4,
    "stanford-gpt": 2,
    "gpt-small": 2,
}


# The others choose their own sizes, and test_primus.py has the whole table of Primus.
SHAPES = ("primus-llama3.1-8b-fp8", "primus-llama3.1-70b-bf16", "primus-llama3.1-405b-fp8", "primus-mixtral-8x22b-bf16")
DIVIDED = {
    name: own
    for name, own in shipped().items()
    if own.family.roles and (own.entry.experiment is None or name in SHAPES)
}

# Each small number of nodes, and around powers of two and what divides them: what a division may round.
SIZES = sorted({*range(1, 33), *(base + by for base in (48, 64, 96, 128, 256, 384, 512) for by in (-1, 0, 1))})


def test_the_page_says_which_recipes_keep_no_accumulation_steps() -> None:
    """The number of nodes of a recipe, and whether its batch follows them, is data."""
    page = (Path(__file__).parents[2] / "docs/reference/recipes.md").read_text("utf-8")
    paragraph = " ".join(page.partition("## Recipes")[2].partition("<!-- generated")[0].split())
    choose_themselves = {name for name, own in shipped().items() if not own.family.roles}
    alone = paragraph.partition("; their scripts choose the batch")[0].rpartition(". ")[2]
    assert choose_themselves and " run on each node alone" in alone
    assert all(f"`{name}`" in alone for name in choose_themselves)
    assert "any number of nodes" not in page
    for name, own in shipped().items():
        if own.family.limits and own.family.limits.max_nodes == 1:
            assert re.search(rf"^\| `{re.escape(name)}` \|[^|]*\|[^|]*\| (at most )?1 \|", page, re.MULTILINE), name


def divided(recipe: str, nodes: int, **options: Any) -> Split:
    """The division of a recipe's job, with a document's node for each node."""
    own = DIVIDED[recipe]
    chosen, _ = choose(own, Smoke(recipe=recipe, options=options))
    sizes, problems = split(chosen, nodes * (own.ranks_per_node or own.family.document_gpus))
    assert sizes is not None, [str(problem) for problem in problems]
    return sizes


@pytest.mark.parametrize("name", DIVIDED)
def test_a_recipe_trains_on_any_number_of_nodes_with_its_own_steps(name: str) -> None:
    own = DIVIDED[name]
    steps = documented(own).steps
    assert STEPS.get(name, steps) == steps
    least = (own.entry.nodes or 1) if own.entry.experiment else 1  # of a model over many nodes, a multiple of them
    for nodes in (least * size for size in SIZES if least * size < 514):
        sizes = divided(name, nodes)
        assert (sizes.micro_batches, sizes.global_batch) == (steps, steps * sizes.micro_batch * sizes.data)


@pytest.mark.parametrize("name", [name for name, own in DIVIDED.items() if documented(own).batch is not None])
def test_on_the_document_s_own_nodes_the_batch_is_the_document_s(name: str) -> None:
    own = DIVIDED[name]
    nodes, batch = own.entry.nodes or 1, documented(own).batch
    assert divided(name, nodes).global_batch == batch
    ranks = nodes * (own.ranks_per_node or own.family.document_gpus)
    chosen, _ = choose(own, Smoke(recipe=name))
    assert batch is not None and batch % (chosen.role("micro_batch") * (ranks // model_parallel(chosen))) == 0


def test_the_readme_s_rack_of_sixty_four_nodes() -> None:
    assert divided("llama3.1-8b-fp8", 64).global_batch == 8192
    assert found(LLAMA, hosts=64, to_train=True) == {}
    assert found({**LLAMA, "min_nodes": 1}, hosts=64, to_train=True) == {}


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_a_plan_names_the_source_of_its_batch(nodes: int) -> None:
    plan = rack("llama3.1-8b-fp8", nodes)
    batch = 128 * nodes
    assert plan.global_batch == batch
    assert plan.nodes[0].environment["BS"] == str(batch)
    text = render(plan)
    assert f"  batch          global {batch} = 8 steps x micro 2 x DP {8 * nodes}, 8192 tokens a sequence\n" in text
    reason = f"8 accumulation steps x micro batch 2 x data parallel {8 * nodes}, at any size"
    assert f"{reason}; llama3.1-8b-fp8 has 128 on 1 node: 8 steps" in text
    comparable = "they hold for 1 node(s), not for {}; the work of a GPU is the same (8 steps), the network differs"
    assert (comparable.format(nodes) in text) == (nodes > 1)


def test_primus_gets_the_batch_as_its_own_argument() -> None:
    command = rack("primus-llama3.1-8b-bf16", 3).nodes[2].command
    assert command[command.index("--global_batch_size") + 1] == "384"


def test_a_batch_of_the_site_stays_or_is_refused_with_the_nearest_values() -> None:
    plan = rack("llama3.1-8b-fp8", 3, options={"BS": 48})
    assert (plan.global_batch, plan.nodes[0].environment["BS"]) == (48, "48")
    assert "the work of a GPU is the same" not in render(plan), "the recipe's own batch would be 384"
    reason = "as smoke.options.BS says: 1 accumulation step x micro batch 2 x data parallel 24"
    assert reason in render(plan)
    problem = found({**LLAMA, "options": {"BS": 1500}}, hosts=64, to_train=True)["smoke.options.BS"]
    assert "such as 1024 or 2048; without BS it is 8192 (8 steps) (over 64 x 8 ranks)" in problem
    far = found({**LLAMA, "options": {"BS": 8192}, "min_nodes": 50}, hosts=64, to_train=True)["smoke.options.BS"]
    assert "50 to 64 nodes" in far and "such as" not in far and "without BS it follows the nodes (8 steps)" in far


def test_a_micro_batch_of_the_site_keeps_the_steps() -> None:
    assert divided("llama3.1-8b-fp8", 2, MBS=4).global_batch == 8 * 4 * 16
    assert divided("llama3.1-8b-fp8", 2, TP=8).global_batch == 8 * 2 * 2


def test_a_load_of_the_service_keeps_the_steps_of_the_site_s_batch() -> None:
    def smoke_of(**options: Any) -> dict[str, Any]:
        own = desired(smoke={"recipe": "llama3.1-8b-fp8", "image": "megatron", "options": options})
        picture: Any = SimpleNamespace(examination=SimpleNamespace(desired={"node01": own}), fleet=64)
        proposal: Any = SimpleNamespace(node="node01", loads=[SMOKE])
        commands = Commands("rack.py", ('smoke={"options": {"MBS": 2}}',))
        command = loads(commands, picture, proposal, ["node02", "node03"])[-1]
        (word,) = (word for word in command if word.startswith("smoke="))
        return dict(json.loads(word.partition("=")[2])["options"])

    assert smoke_of() == {"MBS": 2}
    assert smoke_of(BS=2048) == {"MBS": 2, "BS": 2 * 2 * 24}
