"""Reboots: how many at once, who is never rebooted, and what happens when a node does not come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from shakedown.operations import reboot

HERE = Path(reboot.BOOT_ID).read_text().strip()


@dataclass
class Rack:
    """Nodes that go down when asked, and come back after `down_s` seconds with another boot id - or never."""

    down_s: float = 0.05
    dead: tuple[str, ...] = ()
    down: set[str] = field(default_factory=set)
    most_down: int = 0
    rebooted: list[str] = field(default_factory=list)


class Node:
    def __init__(self, name: str, rack: Rack) -> None:
        self.name, self.rack, self.boot = name, rack, 0
        self.connected = True
        self.current_op_global_arguments = {"_sudo": True}
        self.connector_data: dict[str, Any] = {}
        self.said: list[str] = []
        self.arguments: dict[str, Any] = {}

    def run_shell_command(self, command: Any, **arguments: Any) -> tuple[bool, Any]:
        text = command.get_raw_value()
        if "reboot" in text:
            self.arguments = arguments
            gevent.spawn(self._go_down)
            return True, SimpleNamespace(stdout="", stderr="")
        if not self.connected:
            raise OSError("connection lost")
        return True, SimpleNamespace(stdout=f"boot-{self.boot}\n", stderr="")

    def _go_down(self) -> None:
        self.rack.rebooted.append(self.name)
        self.rack.down.add(self.name)
        self.rack.most_down = max(self.rack.most_down, len(self.rack.down))
        self.connected = False
        gevent.sleep(self.rack.down_s)
        if self.name not in self.rack.dead:
            self.boot += 1
            self.rack.down.discard(self.name)

    def disconnect(self) -> None:
        self.connected = False

    def connect(self, show_errors: bool = True) -> None:
        self.connected = self.name not in self.rack.down

    def log_styled(self, message: str, **_: Any) -> None:
        self.said.append(message)


class State:
    """One run."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "INTERVAL_S", 0.01)
    for name in ("remove_any_sudo_askpass_file", "clear_askpass_cache"):
        monkeypatch.setattr(reboot, name, lambda host: None)


def run(rack: Rack, names: list[str], at_once: int = 1, timeout_s: float = 2) -> dict[str, tuple[bool, list[str]]]:
    nodes = [Node(name, rack) for name in names]
    state = State()
    jobs = [gevent.spawn(reboot._reboot, state, node, at_once, timeout_s) for node in nodes]
    gevent.joinall(jobs, timeout=20, raise_error=True)
    assert all(node.arguments in ({}, {"_sudo": True}) for node in nodes)
    return {node.name: (job.value, node.said) for node, job in zip(nodes, jobs, strict=True)}


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_nodes_are_down_together_than_allowed(at_once: int) -> None:
    rack = Rack()
    results = run(rack, [f"n{index}" for index in range(6)], at_once)
    assert all(came_back for came_back, _ in results.values())
    assert sorted(rack.rebooted) == [f"n{index}" for index in range(6)]
    assert rack.most_down == at_once


def test_a_node_that_stays_away_is_given_up_and_no_other_is_rebooted() -> None:
    rack = Rack(dead=("n1",))
    results = run(rack, ["n0", "n1", "n2", "n3"], timeout_s=0.2)
    assert [results[name][0] for name in results] == [True, False, False, False]
    assert "did not come back" in results["n1"][1][0]
    assert results["n2"][1] == ["not rebooted, because n1 did not come back"]
    assert rack.rebooted == ["n0", "n1"]


def test_a_node_that_answers_with_the_same_boot_id_has_not_come_back() -> None:
    rack = Rack(down_s=5)
    node = Node("n0", rack)
    node._go_down = lambda: rack.rebooted.append("n0")  # type: ignore[method-assign]
    assert reboot._reboot(State(), node, 1, 0.2) is False  # type: ignore[arg-type]
    assert rack.rebooted == ["n0"]


@pytest.mark.parametrize("boot_id", [HERE])
def test_the_controller_is_never_rebooted(boot_id: str) -> None:
    """Nor a container or a namespace on it, which has its kernel."""
    files = {reboot.CMDLINE: ["quiet"], reboot.BOOT_ID: [boot_id]}
    host = create_host(FakeState(), facts={})
    host.get_fact = lambda *_, **__: files
    with ctx_state.use(FakeState()), ctx_host.use(host):
        (command,) = reboot.when_needed._inner(["iommu=pt"])
    assert command.function.__name__ == "refused"
    assert "not rebooted" in command.args[0]
