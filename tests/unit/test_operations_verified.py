"""The check that ends an operation: by what the node then is, it passes, or fails the host with what is wrong."""

from __future__ import annotations

import importlib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api.command import FunctionCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from shakedown.node.setting import SETTINGS
from shakedown.operations import agent, atomic, rollback, tuning

Facts = dict[str, Any]
CASES = yaml.safe_load((Path(__file__).parents[1] / "data/operations/verified.yaml").read_text("utf-8"))


class Node:
    """A node as its facts have it, by the facts' names."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.said: list[str] = []
        self.shown: list[str] = []  # what a run with --diff names
        self.host = create_host(FakeState(), facts={})
        self.host.get_fact = self.get_fact
        self.host.log_styled = lambda message, **_: self.said.append(message)
        self.host.log = lambda *_: None

    def get_fact(self, fact: type, **arguments: Any) -> Any:
        value = self.facts.get(fact.__name__, {})
        if patterns := arguments.get("patterns"):
            return {path: lines for path, lines in value.items() if any(fnmatch(path, each) for each in patterns)}
        if names := arguments.get("names", arguments.get("paths")):
            return {name: value[name] for name in names if name in value}
        return value

    def wrong(self, name: str, arguments: dict[str, Any], after: Facts) -> str | None:
        """What the operation finds wrong when its commands have run; None: it passes."""
        module = importlib.import_module(f"shakedown.operations.{name.partition('.')[0]}")
        operation = getattr(module, name.partition(".")[2])
        with pytest.MonkeyPatch.context() as patch, ctx_state.use(FakeState()), ctx_host.use(self.host):
            patch.setattr(module, "show_change", lambda what, *_: self.shown.append(what), raising=False)
            commands = [each for each in operation._inner(**arguments) if isinstance(each, FunctionCommand)]
            (check,) = [each for each in commands if each.function.__name__ == "verified"]
            self.facts = after
            passes = check.function(None, self.host)
        assert passes == (not self.said)
        return self.said[0] if self.said else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['operation']}: {case['wrong']}")
def test_an_operation_passes_on_what_the_node_then_is(case: dict[str, Any]) -> None:
    node, wrong = Node(case["before"]), case["wrong"]
    found = node.wrong(case["operation"], case["arguments"], case["after"])
    assert found == wrong or (wrong and wrong in str(found)), found
    assert node.shown == case.get("shows", [])


def test_a_rollback_names_what_it_restores_by_the_values_of_the_moment_before() -> None:
    (case,) = [case for case in CASES if case["operation"] == "rollback.rollback" and case["wrong"] is None]
    written = {"/etc/sysctl.d/90-shakedown.conf": [atomic.HEADER, "a = 1"]}
    node = Node({**case["before"], "Contents": written})
    with ctx_state.use(FakeState()), ctx_host.use(node.host):
        commands = [each for each in rollback.rollback._inner() if isinstance(each, FunctionCommand)]
        planned = node.host.connector_data[rollback.RESTORES]
        node.facts = {"Contents": {f"/sys/kernel/{name}": [f"[now] {name}"] for name in "xy"}}
        (look,) = [each for each in commands if each.function.__name__ == "looked"]
        assert look.function(None, node.host)
    removed = "/etc/sysctl.d/90-shakedown.conf: removed"
    assert planned == ["s: -> a  b (2 files)", removed]
    assert node.host.connector_data[rollback.RESTORES] == ["s: now -> a  b (2 files)", removed]


def test_each_setting_that_a_node_has_once_is_an_operation_of_its_own() -> None:
    once = {name for name, setting in SETTINGS.items() if not setting.details}
    assert once and len(tuning.OF_SETTINGS) == len(once) < len(SETTINGS)
    assert all(callable(vars(tuning)[name]._inner) for name in once)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (None, "has left no verdict"),
        (["{"], "has left no verdict"),
        (["[]"], "has left no verdict"),
        (['{"desired": "d", "program": "p"}'], None),
        (['{"desired": "d", "program": "old"}'], "an older one"),
        (['{"desired": "old", "program": "p"}'], "an older one"),
    ],
)
def test_an_agent_has_reported_by_its_program_and_the_desired_state_of_now(lines: Any, wrong: str | None) -> None:
    node = Node({"Contents": {agent.REPORTED[0]: lines} if lines else {}})
    with ctx_host.use(node.host):
        found = agent._wrong({"digest": "d", "program": "p"})
    assert (found is None) == (wrong is None) and (wrong or "") in (found or "")


@pytest.mark.parametrize("show", [True, False])
def test_what_a_script_prints_tells_how_it_goes_only_where_that_is_wanted(show: bool) -> None:
    node = Node({})
    node.host.current_op_global_arguments = {"_sudo": True, "name": "x"}
    tells: list[Any] = []

    def run_shell_command(_command: Any, **arguments: Any) -> tuple[bool, None]:
        tells.append((bool(node.host.connector_data.get(atomic.TELLS)), arguments["print_output"], arguments["_sudo"]))
        return True, None

    node.host.run_shell_command = run_shell_command
    atomic.run_script(node.host, "files.py", {}, show)
    assert tells == [(show, show, True)] and not node.host.connector_data.get(atomic.TELLS)
