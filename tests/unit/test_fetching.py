"""On whose word an image is pulled. What the controller and the nodes hear from a registry is made up here."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.operations import images, registries
from shakedown.operations.registries import Registry, Wish, fetch
from shakedown.runner.examine import PULL, arguments_of
from shakedown.state.images import parse
from tests.states import desired

TRUE, LIE = "sha256:" + "1" * 64, "sha256:" + "2" * 64
PINNED = "sha256:" + "3" * 64


class Rack:
    """Nodes with what each says of a registry. `asked`: who asked the registry; `pulled`: what each node pulled."""

    def __init__(self, controller: str | None, **nodes: str | None) -> None:
        self.answers = {"controller": controller, **nodes}
        self.asked, self.pulled, self.errors = list[str](), list[tuple[str, str]](), list[str]()
        self.nodes = {name: self._node(name) for name in nodes}

    def _node(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            connected=True,
            print_prefix="",
            get_fact=lambda _fact: "x86_64",
            log_styled=lambda words, **_how: self.errors.append(words),
        )

    def _line(self, name: str) -> str:
        self.asked.append(name)
        answer = self.answers[name]
        words = {"digest": answer, "compressed_bytes": 5} if answer else {"error": "transport", "detail": "no way"}
        return json.dumps(words)

    def here(self, *_argv: Any, **_how: Any) -> Any:
        return SimpleNamespace(stdout=self._line("controller"))

    def there(self, host: Any, script: str, document: dict[str, Any], **_how: Any) -> tuple[bool, Any]:
        if script == "pull.py":
            self.pulled.append((host.name, document["digest"]))
            return True, SimpleNamespace(stderr_lines=[])
        return True, SimpleNamespace(stdout_lines=[self._line(host.name)])


def fetch_on(rack: Rack, monkeypatch: pytest.MonkeyPatch, reference: str = "registry.lab/train:v1") -> list[bool]:
    """Have all nodes fetch the image, one after the other."""
    monkeypatch.setattr(registries, "run_script", rack.there)
    monkeypatch.setattr(registries.subprocess, "run", rack.here)

    class State:
        """A run's state: answers are kept by it."""

    state = State()
    wish = Wish(parse(reference), [Registry("registry.lab", "train")], "docker", None, 3, 60, 60, None)
    return [fetch(state, node, wish) for node in rack.nodes.values()]  # type: ignore[arg-type]


def test_the_registry_is_asked_once_by_the_controller_and_no_node_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = Rack(TRUE, a=LIE, b=LIE, c=LIE)
    assert all(fetch_on(rack, monkeypatch))
    assert rack.asked == ["controller"] and rack.pulled == [(node, TRUE) for node in "abc"]


def test_where_the_controller_has_no_way_each_node_goes_by_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = Rack(None, a=LIE, b=LIE, c=TRUE, d=None)
    assert fetch_on(rack, monkeypatch) == [True, True, True, False]
    assert rack.asked == ["controller", *"abcd"]
    assert rack.pulled == [("a", LIE), ("b", LIE), ("c", TRUE)]
    assert "no way" in rack.errors[0]


@pytest.mark.parametrize("controller", [PINNED, None])
def test_the_digest_of_the_inventory_is_pulled_whoever_answers(
    monkeypatch: pytest.MonkeyPatch, controller: str | None
) -> None:
    rack = Rack(controller, a=None, b=None)
    assert all(fetch_on(rack, monkeypatch, f"registry.lab/train:v1@{PINNED}"))
    assert rack.pulled == [("a", PINNED), ("b", PINNED)]


def test_what_a_node_holds_under_a_tag_is_no_part_of_another_node_s_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    state = desired(images={"it": "registry.lab/train:v1"})
    examination: Any = SimpleNamespace(desired={"a": state})  # no reading is looked at
    reference = {"reference": "registry.lab/train:v1"}
    finding: Any = SimpleNamespace(node="a", remedy=SimpleNamespace(operation=PULL, arguments=reference))
    assert arguments_of(examination, finding) == {**reference, "at_once": 8}


def test_a_look_for_an_image_asks_the_registry_and_pulls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the inventory names the digest: a pull would find no registry."""
    looks: list[bool] = []

    def there(_host: Any, script: str, document: dict[str, Any], **_how: Any) -> tuple[bool, Any]:
        if script == "pull.py":
            looks.append(document["looks"])
        return True, SimpleNamespace(stderr_lines=[], stdout_lines=['{"error": "transport", "detail": "no way"}'])

    for controller, reference, there_is in (
        (TRUE, "registry.lab/train:v1", True),
        (None, "registry.lab/train:v1", False),
        (None, f"registry.lab/train:v1@{PINNED}", False),
    ):
        rack = Rack(controller, a=None)
        fetch_on(rack, monkeypatch)
        monkeypatch.setattr(registries, "run_script", there)
        state: Any = type("State", (), {})()
        found = images.pullable(state, rack.nodes["a"], reference=reference)
        assert found == there_is and (there_is or "no way" in rack.errors[-1])
    assert looks == [True], "the room is looked at on the node where the image can be had"
