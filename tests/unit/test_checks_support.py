"""Warnings that are not a pass: GPUs that are supported in part, and variables that were made for others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from shakedown.checks.environment import environment
from shakedown.checks.support import support
from shakedown.findings import Finding, Verdict
from shakedown.images import parse
from shakedown.smoke.recipe import families
from tests.states import desired, healthy


def told(result: Finding | Iterable[Finding] | None) -> list[Finding]:
    if result is None:
        return []
    return [result] if isinstance(result, Finding) else list(result)


SMOKE = {"recipe": "stanford-gpt", "image": "stanford"}
IMAGES = {"stanford": "rocm/stanford-megatron-lm@sha256:" + "0" * 64}


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [
        ("mi300x", Verdict.OK),
        ("mi250x", Verdict.DRIFT),
        ("mi210", Verdict.DRIFT),
        ("mi355x", Verdict.FAIL),
        ("radeon", Verdict.FAIL),
        ("cpu", Verdict.FAIL),
    ],
)
def test_the_documents_devices(gpu: str, verdict: Verdict) -> None:
    (finding,) = told(support(desired(gpu, None, smoke=SMOKE, images=IMAGES), healthy(), "node"))
    assert finding.verdict == verdict
    assert (finding.remedy is None) == (verdict == Verdict.OK)


def test_a_recipe_without_such_a_list_says_nothing() -> None:
    assert support(desired(smoke={"recipe": "gpt-small"}), healthy(), "node") is None
    assert support(desired(), healthy(), "node") is None


@pytest.mark.parametrize("variable", [("HSA_ENABLE_SDMA", "0"), ("NCCL_IB_DISABLE", "1")])
def test_a_workstations_variable_on_an_instinct_node_is_a_warning(variable: tuple[str, str]) -> None:
    name, value = variable
    smoke = {"recipe": "gpt-small", "environment": {name: value}}
    (finding,) = told(environment(desired("mi300x", smoke=smoke), healthy(), "node"))
    assert finding.name == f"environment.{name}" and finding.verdict == Verdict.DRIFT
    assert finding.remedy is not None and finding.remedy.operation is None
    assert not told(environment(desired("radeon", None, smoke=smoke), healthy(), "node"))
    harmless = {"recipe": "gpt-small", "environment": {name: "1" if value == "0" else "0"}}
    assert not told(environment(desired("mi300x", smoke=harmless), healthy(), "node"))


def test_the_radeon_profile_brings_the_documents_environment() -> None:
    asked = desired("radeon", None)
    assert asked.gpu.environment["HSA_ENABLE_SDMA"] == "0"
    assert asked.gpu.pci_ids == ["1002:744c", "1002:747e"]


def test_the_image_is_the_one_that_the_document_links_to() -> None:
    link = (Path(__file__).parents[1] / "data/documents/004_image.txt").read_text().splitlines()[-1]
    repository, _, rest = link.partition("/layers/")[2].partition("/images/")
    name, tag = repository.rsplit("/", 1)
    image = parse(families()["stanford"].container.image or "")
    assert (image.name, image.tag) == (f"docker.io/{name}", tag)
    assert image.digest == rest.replace("sha256-", "sha256:")
