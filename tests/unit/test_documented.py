"""Deploys that are made for one document: another recipe, or an image without its digest, is refused."""

from __future__ import annotations

from typing import Any

from shakedown.runner.pyinfra.prepare import DOCUMENTED, problems
from shakedown.runner.pyinfra.site_files import DEPLOYS
from tests.states import desired

TAG = "rocm/stanford-megatron-lm:latest"


def refused(deploy: str, **site: Any) -> list[str]:
    return [str(problem) for problem in problems(deploy, {"node1": desired(nic=None, **site)})]


def test_an_image_is_named_by_digest() -> None:
    smoke = {"recipe": "stanford-gpt", "image": "stanford"}
    (why,) = refused("stanford_megatron", smoke=smoke, images={"stanford": TAG})
    assert why.startswith("host node1, for deploy/stanford_megatron.py: smoke.image") and "by digest" in why
    assert "@sha256:070556f0" in why
    assert refused("stanford_megatron", smoke=smoke, images={"stanford": f"{TAG}@sha256:{'0' * 64}"}) == []
    assert refused("megatron", smoke=smoke, images={"stanford": TAG}) == []


def test_another_documents_recipe_is_refused() -> None:
    (why,) = refused("megatron_source", smoke={"recipe": "gpt-small"})
    assert "'gpt-small'" in why and "radeon-gpt-tp2" in why
    assert refused("megatron_source") == [], "without a smoke run there is nothing to refuse"


def test_each_deploy_of_a_document_is_there() -> None:
    assert all((DEPLOYS / f"{deploy}.py").is_file() for deploy in DOCUMENTED)
