"""A host in two groups that say different things is refused before anything is connected to."""

from __future__ import annotations

from typing import Any

import pytest
from pyinfra.api import Config, State
from pyinfra.api.inventory import Inventory

from shakedown.desired.problems import DesiredStateError
from shakedown.runner.inventory import desired_states


def hosts_of(groups: dict[str, tuple[list[Any], dict[str, Any]]], override: dict[str, Any] | None = None) -> State:
    names = list(dict.fromkeys(entry for members, _ in groups.values() for entry in map(_plain, members)))
    own = [next((e for members, _ in groups.values() for e in members if _plain(e) == name), name) for name in names]
    return State(Inventory((own, {}), override_data=override or {}, **groups), Config())


def _plain(entry: Any) -> str:
    return entry if isinstance(entry, str) else str(entry[0])


def problems(state: State) -> list[str]:
    with pytest.raises(DesiredStateError) as error:
        desired_states(state)
    assert not any(host.connected for host in state.inventory)
    return [str(problem) for problem in error.value.problems]


def test_two_groups_with_different_values_are_refused_with_both() -> None:
    found = problems(
        hosts_of(
            {
                "rack7": (["node01", "node02"], {"gpu": "cpu", "system": {"disk_free": {"/": "1G"}}}),
                "loan": (["node02"], {"gpu": "cpu", "system": {"disk_free": {"/": "2G"}}}),
            }
        )
    )
    (line,) = [line for line in found if "disk_free" in line]
    assert "host node02" in line and "rack7" in line and "loan" in line and "node01" not in line
    assert "'1G'" in line and "'2G'" in line


def test_another_profile_or_another_user_is_refused_too() -> None:
    found = problems(
        hosts_of({"a": (["n1"], {"gpu": "cpu", "ssh_user": "root"}), "b": (["n1"], {"gpu": "mi300x", "ssh_user": "x"})})
    )
    assert any(": gpu = " in line for line in found) and any(": ssh_user = " in line for line in found)


def test_a_section_that_one_group_leaves_out_and_another_fills_is_refused() -> None:
    filled: dict[str, Any] = {"gpu": "cpu", "system": {"disk_free": {"/": "1G"}}}
    for order in ({"a": filled, "b": {"system": None}}, {"b": {"system": None}, "a": filled}):
        (line,) = problems(hosts_of({group: (["n1"], data) for group, data in order.items()}))
        assert "system = None" in line and "system.disk_free./" in line and "host n1" in line
    own: Any = {"a": ([("n1", {"system": None})], filled), "b": (["n1"], {"system": {"disk_free": {"/": "2G"}}})}
    assert desired_states(hosts_of(own)).states["n1"].system.disk_free == {}


def test_a_secret_in_two_groups_is_not_shown() -> None:
    found = problems(
        hosts_of({"a": (["n1"], {"gpu": "cpu", "ssh_password": "s3"}), "b": (["n1"], {"ssh_password": "t4"})})
    )
    assert any("ssh_password" in line for line in found) and not any("s3" in line or "t4" in line for line in found)


@pytest.mark.parametrize(
    "groups",
    [
        {"a": (["n1"], {"gpu": "cpu"}), "b": (["n1"], {"gpu": "cpu", "tuning": {"thp": "always"}})},
        {"a": ([("n1", {"gpu": "cpu"})], {"gpu": "cpu"}), "b": (["n1"], {"gpu": "mi300x"})},
        {"a": (["n1"], {"gpu": "cpu"}), "b": (["n2"], {"gpu": "cpu", "tuning": {"thp": "never"}})},
        {"all": (["n1"], {"tuning": {"thp": "never"}}), "a": (["n1"], {"gpu": "cpu", "tuning": {"thp": "always"}})},
    ],
    ids=["agree", "host data decides", "no host in both", "all is below"],
)
def test_groups_that_leave_nothing_open_are_not_refused(groups: Any) -> None:
    assert set(desired_states(hosts_of(groups)).states) >= {"n1"}


def test_data_of_the_command_line_decides() -> None:
    groups: Any = {"a": (["n1"], {"gpu": "mi300x"}), "b": (["n1"], {"gpu": "mi325x"})}
    assert desired_states(hosts_of(groups, {"gpu": "cpu"})).states["n1"].gpu.count == 0
