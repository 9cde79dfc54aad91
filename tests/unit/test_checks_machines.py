"""One machine under several names, and identities that were cloned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shakedown.checks import machines
from shakedown.checks.fleet import outliers
from shakedown.report.causes import causes
from shakedown.state.findings import Finding, Verdict
from tests.states import desired, healthy, unreadable, with_


def compare(machines: Mapping[str, int], changes: Mapping[str, dict[Any, Any]] | None = None) -> list[Finding]:
    """Findings other than ok over names that lead to machines by their numbers."""
    states = {name: with_(healthy(number), (changes or {}).get(name, {})) for name, number in machines.items()}
    found = outliers(states, dict.fromkeys(states, "rack7"), dict.fromkeys(states, desired()))
    return [finding for finding in found if finding.verdict is not Verdict.OK]


def test_64_names_of_three_machines_fail_with_each_others_names() -> None:
    names = {f"node{number:02d}": number % 3 for number in range(64)}
    found = compare(names)
    assert {(f.name, f.verdict) for f in found} == {("fleet.machine", Verdict.FAIL)}
    assert {f.node for f in found} == {*names}
    assert str(found[0].actual).startswith("one machine under 22 names: node[00,03,06,09,12,15,")
    assert [len(cause.nodes) for cause in causes(found)] == [22, 21, 21]
    assert found[0].evidence == "the same board serial, boot id, device serials, host key, machine-id"


def test_one_machine_under_two_names_fails_with_both() -> None:
    found = compare({"a": 1, "b": 2, "alias": 1, "c": 3})
    assert [(f.node, f.name, f.actual) for f in found] == [
        ("a", "fleet.machine", "one machine under 2 names: a, alias"),
        ("alias", "fleet.machine", "one machine under 2 names: a, alias"),
    ]


@pytest.mark.parametrize("names", [2, 3, 4, 12])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"system.hostname": "node1"},
        {"system.host_key": "ssh-ed25519 AAAAsame"},
        {"interfaces.0.ipv4": ["10.9.9.9/24"]},
    ],
)
def test_what_names_share_is_one_cause_over_all_of_them(names: int, change: dict[Any, Any]) -> None:
    """Whether they are one machine, or have one host name, key or address, however many they are."""
    machines = {f"node{number}": number if change else 1 for number in range(1, names + 1)}
    found = causes(compare(machines, dict.fromkeys(machines, change)))
    assert [cause.nodes for cause in found] == [tuple(machines)]


@pytest.mark.parametrize(
    "hidden",
    [
        {"system.board_serial": unreadable("not permitted")},
        {"system.board_serial": "Default string"},
        {"system.board_serial": "................"},
        {"system.machine_id": unreadable("missing"), "system.host_key": unreadable("missing")},
        {"system.boot_id": unreadable("missing")},
        {"gpus": [], "rdma": []},
    ],
)
def test_what_could_not_be_read_hides_no_second_name(hidden: dict[Any, Any]) -> None:
    found = compare({"a": 1, "b": 1}, {"a": hidden, "b": hidden})
    assert [f.node for f in found if f.name == "fleet.machine"] == ["a", "b"]


def test_a_machine_that_was_booted_between_two_readings_is_one() -> None:
    found = compare({"a": 1, "b": 1}, {"b": {"system.boot_id": "another"}})
    assert [f.node for f in found if f.name == "fleet.machine"] == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"system.machine_id": "5" * 31 + "6"}, "fleet.machine_id"),
        ({"system.host_key": "ssh-ed25519 AAAAsame"}, "fleet.host_key"),
        ({"system.board_serial": "CN0AFTER-REPAIR"}, "fleet.board_serial"),
        ({"system.boot_id": "one kernel"}, "fleet.boot_id"),
    ],
)
def test_an_identity_that_was_cloned_alone_is_advice(change: dict[Any, Any], name: str) -> None:
    found = compare({"a": 1, "b": 2, "c": 3}, {"a": change, "c": change})
    assert [(f.node, f.name, str(f.verdict)) for f in found] == [("a", name, "warn"), ("c", name, "warn")]
    assert str(found[0].actual).endswith(" on a, c") and found[0].remedy is not None


def test_nodes_of_one_image_are_different_machines() -> None:
    cloned = {"system.machine_id": "5" * 31 + "6", "system.host_key": "ssh-ed25519 AAAAsame"}
    found = compare({"a": 1, "b": 2, "c": 3}, dict.fromkeys("abc", cloned))
    assert {(f.name, str(f.verdict)) for f in found} == {("fleet.machine_id", "warn"), ("fleet.host_key", "warn")}


def test_two_systems_on_one_kernel_are_advice_unless_they_show_the_same_devices() -> None:
    """Containers and virtual machines of one snapshot share the kernel's boot id and the board, and have keys of their
    own. Two that hold the same GPUs are one machine."""
    shared = {"system.boot_id": "one kernel", "system.board_serial": "CN0HOST"}
    found = compare({"a": 1, "b": 2}, dict.fromkeys("ab", shared))
    assert {(f.name, str(f.verdict)) for f in found} == {("fleet.boot_id", "warn"), ("fleet.board_serial", "warn")}
    gpus = {f"gpus.{index}.serial": f"{index:016x}5" for index in range(8)}
    found = compare({"a": 1, "b": 2}, {name: {**shared, **gpus} for name in "ab"})
    assert {f.node for f in found if f.name == "fleet.machine" and f.verdict is Verdict.FAIL} == {"a", "b"}


@pytest.mark.parametrize("text", ["", "None", "To Be Filled By O.E.M.", "Default string", "00000000", "0123456789"])
def test_placeholders_identify_no_machine(text: str) -> None:
    assert compare({"a": 1, "b": 2}, {name: {"system.board_serial": text} for name in "ab"}) == []


@pytest.mark.parametrize(
    ("agree", "differ", "one"),
    [
        ({machines.SERIAL, machines.KEY}, {machines.BOOT}, True),  # booted between the two readings
        ({machines.MACHINE, machines.KEY}, {machines.BOOT}, False),  # an image with its keys, on two boards
        ({machines.SERIAL, machines.KEY}, {machines.BOOT, machines.MACHINE}, False),
    ],
)
def test_another_boot_is_one_machine_only_by_its_board(agree: set[str], differ: set[str], one: bool) -> None:
    here, there = ({name: frozenset({"a" if name in agree else node}) for name in agree | differ} for node in "bc")
    assert machines.is_one_machine(here, there) is one
