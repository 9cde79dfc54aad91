"""Deploys that are made for one document: another recipe, or an image without its digest, is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deploy import documented
from tests.states import desired

TAG = "rocm/stanford-megatron-lm:latest"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls `recipe_of` for a host with this site's layer; gives the reasons for which the host was failed."""

    def call(family: str, by_digest: bool, **site: Any) -> list[str]:
        reasons: list[str] = []
        session = SimpleNamespace(
            examination=SimpleNamespace(desired={"node1": desired(nic=None, **site)}),
            host=lambda name: name,
            fail=lambda host, why: reasons.append(why),
        )
        monkeypatch.setattr(documented, "session", lambda: session)
        monkeypatch.setattr(documented, "current_host", SimpleNamespace(name="node1"))
        documented.recipe_of(family, by_digest)
        return reasons

    return call


def test_an_image_is_named_by_digest(refused: Any) -> None:
    smoke = {"recipe": "stanford-gpt", "image": "stanford"}
    (why,) = refused("stanford", True, smoke=smoke, images={"stanford": TAG})
    assert "by digest" in why and "@sha256:070556f0" in why
    assert refused("stanford", True, smoke=smoke, images={"stanford": f"{TAG}@sha256:{'0' * 64}"}) == []
    assert refused("stanford", False, smoke=smoke, images={"stanford": TAG}) == []


def test_another_documents_recipe_is_refused(refused: Any) -> None:
    (why,) = refused("radeon", False, smoke={"recipe": "gpt-small"})
    assert "'gpt-small'" in why and "radeon-gpt-tp2" in why
    assert refused("radeon", False) == [], "without a smoke run there is nothing to refuse"
