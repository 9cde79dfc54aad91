"""Plans for tests: healthy nodes, one image, one recipe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from shakedown.desired.models import DesiredState, Smoke
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.jobs.plan import make_plan
from shakedown.jobs.plan.draft import PlanDraft
from shakedown.recipes.configurations import configurations
from shakedown.recipes.fitting import fit
from shakedown.recipes.recipe import Recipe, recipes
from shakedown.state.node import NodeState
from tests.states import GIB, bare, desired, healthy, image, with_

RUN_ID = "20261121T060000-abcdef"
IMAGE = "rocm/megatron-lm:v25.4"
DIGEST = "sha256:" + "ab" * 32


@cache
def shipped() -> dict[str, Recipe]:
    """Every recipe, with the values for the first GPU that AMD publishes some for."""
    with_values = {}
    for name, recipe in recipes().items():
        of_gpus = recipe.entry.experiment is not None
        gpus = configurations(recipe.family_name).published(str(recipe.entry.experiment)) if of_gpus else ["mi300x"]
        with_values[name], problems = fit(recipe, Smoke(recipe=name), gpus[:1])
        assert problems == []
    return with_values


def rack(
    recipe: str,
    nodes: int = 1,
    changes: Mapping[str, Mapping[Any, Any]] | None = None,
    gpu: str = "mi300x",
    nic: str | None = "thor2",
    site: Mapping[str, Any] | None = None,
    **smoke: Any,
) -> LaunchPlan:
    """Plan `recipe` on node01, node02, ... with 8 GPUs and 8 HCAs. `changes`: node -> changes to its state."""
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    own = desired(
        gpu, nic, images={"megatron": IMAGE}, smoke={"recipe": recipe, "image": "megatron", **smoke}, **(site or {})
    )
    states = {
        name: with_(healthy(number + 1), {"containers.images": [image(IMAGE, DIGEST)], **(changes or {}).get(name, {})})
        for number, name in enumerate(names)
    }
    return make_plan(dict.fromkeys(names, own), states, RUN_ID)


def small(nodes: int = 1, **smoke: Any) -> LaunchPlan:
    """Plan the embedded default on machines without GPUs."""
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    own = desired("cpu", None, smoke={"recipe": "gpt-small", **smoke})
    states = {name: with_(bare(number + 1), {"memory.available_bytes": 8 * GIB}) for number, name in enumerate(names)}
    return make_plan(dict.fromkeys(names, own), states, RUN_ID)


def draft(own: DesiredState, states: Mapping[str, NodeState], recipe: str = "llama3.1-8b-fp8") -> PlanDraft:
    """Begin a plan over nodes with the same desired state."""
    smoke = own.smoke or Smoke(recipe=recipe)
    return PlanDraft(RUN_ID, recipes()[smoke.recipe], dict.fromkeys(states, own), dict(states), smoke)


def value(node: NodePlan, option: str) -> list[str]:
    """The values of an option of the container engine's command line."""
    words = node.command
    return [words[index + 1] for index, word in enumerate(words) if word == option]
