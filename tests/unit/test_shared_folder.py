"""A folder that the nodes do not share."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.operations import shared_folder


@dataclass(frozen=True)
class Node:
    name: str


@pytest.mark.parametrize("shared", [True, False])
def test_a_node_that_does_not_see_the_token_of_the_first_one_fails(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    first, second = Node("node1"), Node("node2")
    asked: list[tuple[str, str]] = []
    words: list[str] = []

    def script(_host: Any, _name: str, document: dict[str, Any], show: bool) -> tuple[bool, str]:
        asked.append((document["do"], document["name"]))
        return shared, ""

    monkeypatch.setattr(shared_folder.atomic, "run_script", script)
    monkeypatch.setattr(shared_folder, "refused", lambda state, host, reason: words.append(reason) or False)
    hosts = [first, second]

    class Inventory(list[Any]):
        def get_active_hosts(self) -> list[Any]:
            return hosts

    state: Any = SimpleNamespace(inventory=Inventory(hosts))
    node: Any = second
    assert shared_folder._see(state, node, "/shared", "run-1") is shared
    own, of_first = ".shakedown-run-1-node2", ".shakedown-run-1-node1"
    assert asked == [("see", of_first), *([] if shared else [("untoken", own)])], "a node that fails leaves no token"
    assert words == ([] if shared else ["/shared is not the folder that node1 has: mount the same file system there"])
