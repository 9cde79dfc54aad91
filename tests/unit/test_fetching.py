"""From where an image comes, and on whose word. What nodes say of a registry is made up, and what they are sent too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.images import parse
from shakedown.operations import fetching, registries
from shakedown.operations.fetching import Wish, fetch
from shakedown.operations.givers import Sharing
from shakedown.operations.registries import Registry

TRUE, LIE = "sha256:" + "1" * 64, "sha256:" + "2" * 64
CONFIG = "sha256:" + "c" * 64
OTHER_CONFIG = "sha256:" + "d" * 64


class Rack:
    """Nodes, and what each says that the registry told it; `had` says how each came to the image."""

    def __init__(self, **told: tuple[str, str] | str) -> None:
        self.told, self.had = told, list[tuple[str, str, str]]()
        self.nodes = {name: self._node(name) for name in told}

    def _node(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            connected=True,
            print_prefix="",
            log_styled=lambda said, **_how: self.had.append((name, "", said)),
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.nodes.values())

    def get_host(self, name: str) -> Any:
        return self.nodes[name]

    def run(self, host: Any, script: str, document: dict[str, Any], **how: Any) -> tuple[bool, Any]:
        if script == "pull.py":
            self.had.append((host.name, "registry" if document["room_bytes"] else "manifest", document["digest"]))
            return True, SimpleNamespace(stderr_lines=[])
        told = self.told[host.name]
        if isinstance(told, str) and how["like"]:
            raise OSError(told)
        if isinstance(told, str):
            return False, SimpleNamespace(stderr=told)
        said = {"digest": told[0], "compressed_bytes": 5, "config": told[1]}
        return True, SimpleNamespace(stdout_lines=[json.dumps(said)])

    def hand_over(self, giver: Any, receiver: Any, image_id: str, *_how: Any) -> tuple[bool, str]:
        self.had.append((receiver.name, giver.name, image_id))
        return True, "took it"


def played(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, *nodes: str, digest: str | None = None, shares: bool = True
) -> Rack:
    """The nodes fetch the image, one after the other."""
    monkeypatch.setattr(registries, "run_script", rack.run)
    monkeypatch.setattr(fetching, "run_script", rack.run)
    monkeypatch.setattr(fetching, "hand_over", rack.hand_over)

    class State:
        inventory = rack

    image, state = parse("registry.lab/train:v1"), State()
    sharing = Sharing(2, lambda _giver, _receiver: "198.18.0.1", lambda _image: []) if shares else None
    source = Registry("registry.lab", "train")
    wish = Wish(image, digest, [source], "docker", None, 3, 60, 60, None, sharing)
    for node in nodes:
        assert fetch(state, rack.nodes[node], wish)  # type: ignore[arg-type]
    return rack


def test_one_node_pulls_and_the_next_takes_it_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    same = (TRUE, CONFIG)
    rack = played(Rack(a=same, b=same, c=same), monkeypatch, "a", "b")
    assert rack.had == [("a", "registry", TRUE), ("b", "a", CONFIG), ("b", "manifest", TRUE)]


@pytest.mark.parametrize("lie", [(LIE, CONFIG), (TRUE, OTHER_CONFIG)])
def test_two_nodes_outvote_the_first_that_names_another_image(
    monkeypatch: pytest.MonkeyPatch, lie: tuple[str, str]
) -> None:
    same = (TRUE, CONFIG)
    rack = played(Rack(a=lie, b=same, c=same), monkeypatch, "a", "b")
    assert rack.had == [("a", "registry", TRUE), ("b", "a", CONFIG), ("b", "manifest", TRUE)]


@pytest.mark.parametrize(
    "told",
    [{"b": (TRUE, OTHER_CONFIG)}, {"b": "the connection broke"}, {"b": "x", "c": "x", "d": "x", "e": (TRUE, CONFIG)}],
)
def test_what_no_second_node_was_told_is_pulled_by_each(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]) -> None:
    rack = played(Rack(a=(TRUE, CONFIG), **told), monkeypatch, "a", "b")
    assert rack.had == [("a", "registry", TRUE), ("b", "registry", TRUE)]


@pytest.mark.parametrize("more", [{"c": (TRUE, CONFIG)}, {}])
@pytest.mark.parametrize("shares", [True, False])
def test_one_node_cannot_choose_what_the_others_pull(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], shares: bool
) -> None:
    rack = played(Rack(a=(LIE, CONFIG), b=(TRUE, CONFIG), **more), monkeypatch, "a", "b", shares=shares)
    assert [digest for node, _, digest in rack.had if node == "b"][-1] == TRUE


def test_the_image_of_a_pinned_digest_is_no_single_node_s_word_either(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = played(Rack(a=(TRUE, OTHER_CONFIG), b=(TRUE, CONFIG)), monkeypatch, "a", "b", digest=TRUE)
    assert rack.had == [("a", "registry", TRUE), ("b", "registry", TRUE)]
