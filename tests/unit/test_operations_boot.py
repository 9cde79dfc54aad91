"""boot.settings: the commands for a node, of which nothing but its files is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.exceptions import OperationValueError
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from shakedown import node
from shakedown.facts.settings import Contents, PciRegisters
from shakedown.operations import atomic, boot
from shakedown.operations.atomic import FOLDER, HEADER

ASSETS = Path(node.__file__).parent / "assets"
SCRIPT = boot.program()
UNIT = (ASSETS / "shakedown-boot.service").read_text().splitlines()
INSTALLED = {boot.SCRIPT: SCRIPT, boot.UNIT: UNIT, boot.ENABLED: UNIT, boot.SYSTEMD: []}
GOVERNOR = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
PCI = "/sys/bus/pci/devices/0000:{}:00.0"


class Node:
    """A node that is its files (and its PCI registers)."""

    def __init__(self, files: dict[str, list[str]], registers: dict[str, str] | None = None) -> None:
        self.files, self.registers = files, registers or {}
        self.noop = ""
        self.host = create_host(FakeState(), facts={})
        self.host.get_fact = self.get_fact
        self.host.log_styled = lambda message, **_: setattr(self, "said", message)

    def get_fact(self, fact: type, **arguments: Any) -> Any:
        if fact is PciRegisters:
            return self.registers
        assert fact is Contents
        return {
            path: lines for path, lines in self.files.items() if any(fnmatch(path, p) for p in arguments["patterns"])
        }

    def commands(self, settings: dict[str, str | int]) -> list[str]:
        """The commands in short: what is written where, what is run."""
        with ctx_state.use(FakeState()), ctx_host.use(self.host):
            commands = list(boot.settings._inner(settings))
            self.noop = self.host.noop_description or ""
        return [short(command) for command in commands]

    def verify(self, settings: dict[str, str | int], after: dict[str, list[str]]) -> str | None:
        """What the operation says when its commands have run and the node then looks like `after`."""
        with ctx_state.use(FakeState()), ctx_host.use(self.host):
            *_, check = boot.settings._inner(settings)
            assert isinstance(check, FunctionCommand)
            self.files = after
            return None if check.function(None, self.host) else self.said


def short(command: Any) -> str:
    if isinstance(command, StringCommand):
        return command.get_raw_value().replace("'", "")
    assert isinstance(command, FunctionCommand)
    if command.function is not atomic.on_node:
        return f"{command.function.__name__}{''.join(str(each) for each in command.args)}"
    (document,) = command.args
    if document["path"].startswith(FOLDER):
        return f"remember {json.loads(document['lines'][0])['setting']}"
    assert document["lines"][0] == HEADER or HEADER in document["lines"]
    return f"write {document['path']}: {' '.join(document['lines'][1:]) if document['path'] == boot.CONF else '...'}"


@pytest.fixture
def cpus() -> Iterator[dict[str, list[str]]]:
    yield {**INSTALLED, GOVERNOR.format(0): ["performance"], GOVERNOR.format(1): ["powersave"]}


def test_a_new_node_gets_script_file_unit_and_the_setting_now(cpus: dict[str, list[str]]) -> None:
    files = {path: lines for path, lines in cpus.items() if path not in (boot.SCRIPT, boot.UNIT, boot.ENABLED)}
    assert Node(files).commands({"cpu_governor": "performance"}) == [
        "remember boot.cpu_governor",
        f"write {boot.SCRIPT}: ...",
        f"{boot.SCRIPT} cpu_governor=performance",
        f"write {boot.CONF}: cpu_governor=performance",
        f"write {boot.UNIT}: ...",
        "systemctl daemon-reload && systemctl enable shakedown-boot.service",
        "verified",
    ]


def test_as_wanted_now_and_at_boot_is_no_change(cpus: dict[str, list[str]]) -> None:
    cpus[GOVERNOR.format(1)] = ["performance"]
    node = Node({**cpus, boot.CONF: [HEADER, "cpu_governor=performance"]})
    assert node.commands({"cpu_governor": "performance"}) == []
    assert node.noop == "cpu_governor=performance: so now, and at boot"


def test_one_cpu_that_differs_is_set_by_the_script_alone(cpus: dict[str, list[str]]) -> None:
    node = Node({**cpus, boot.CONF: [HEADER, "cpu_governor=performance"]})
    run = [f"{boot.SCRIPT} cpu_governor=performance", "verified"]
    assert node.commands({"cpu_governor": "performance"}) == ["remember boot.cpu_governor", *run]


def test_the_other_lines_of_the_file_stay() -> None:
    files = {**INSTALLED, "/sys/kernel/mm/transparent_hugepage/enabled": ["[always] madvise never"]}
    node = Node({**files, boot.CONF: [HEADER, "c2=disabled", "thp=never", "mtu.ens1=9000"]})
    assert f"write {boot.CONF}: c2=disabled mtu.ens1=9000 thp=always" in node.commands({"thp": "always"})


@pytest.mark.parametrize("gone", [boot.SCRIPT, boot.UNIT, boot.ENABLED])
def test_what_somebody_removed_is_put_back(gone: str) -> None:
    files = {**INSTALLED, "/sys/class/net/ens1/mtu": ["9000"], boot.CONF: [HEADER, "mtu.ens1=9000"]}
    del files[gone]
    commands = Node(files).commands({"mtu.ens1": 9000})
    assert any(gone in command or "systemctl enable" in command for command in commands)
    assert f"{boot.SCRIPT} mtu.ens1=9000" not in commands


def test_the_script_of_an_older_version_is_replaced(cpus: dict[str, list[str]]) -> None:
    older = {**cpus, boot.SCRIPT: ["#!/bin/sh", HEADER, "put performance"], boot.CONF: [HEADER, "mtu.ens1=9000"]}
    commands = Node(older | {"/sys/class/net/ens1/mtu": ["9000"]}).commands({"mtu.ens1": 9000})
    assert commands == [f"write {boot.SCRIPT}: ...", "verified"]


def test_what_can_be_read_no_more_after_the_change_fails_the_host(cpus: dict[str, list[str]]) -> None:
    after = {boot.CONF: [HEADER, "cpu_governor=performance"], boot.ENABLED: UNIT}
    assert "cpu_governor cannot be read" in str(Node(cpus).verify({"cpu_governor": "performance"}, after))


def test_without_systemd_it_is_made_now_and_says_that_it_will_not_last() -> None:
    commands = Node({"/sys/class/net/ens1/mtu": ["1500"]}).commands({"mtu.ens1": 9000})
    assert commands[:3] == ["remember boot.mtu.ens1", f"write {boot.SCRIPT}: ...", f"{boot.SCRIPT} mtu.ens1=9000"]
    assert "does not run systemd" in commands[3]
    assert not any("systemctl" in command or boot.CONF in command for command in commands)


def test_acs_is_off_only_when_every_function_says_so() -> None:
    files = {**INSTALLED, boot.CONF: [HEADER, "acs=off"]}
    assert Node(files, {"0000:c0:01.1": "0000"}).commands({"acs": "off"}) == []
    on = Node(files, {"0000:c0:01.1": "0000", "0000:c0:02.1": "001d"})
    assert f"{boot.SCRIPT} acs=off" in on.commands({"acs": "off"})


def test_a_machine_without_acs_has_it_off_and_keeps_it_off() -> None:
    commands = Node(dict(INSTALLED)).commands({"acs": "off"})
    assert commands == ["remember boot.acs", f"write {boot.CONF}: acs=off", "verified"]


def test_read_requests_of_other_vendors_and_of_nics_without_rdma_do_not_count() -> None:
    files = {**INSTALLED, boot.CONF: [HEADER, "max_read_request.14e4=4096"]}
    for bus, vendor, rdma in (("c1", "0x14e4", True), ("05", "0x14e4", False), ("c2", "0x15b3", True)):
        files[f"{PCI.format(bus)}/vendor"] = [vendor]
        if rdma:
            files[f"{PCI.format(bus)}/infiniband"] = []
    registers = {"0000:c1:00.0": "5930", "0000:05:00.0": "2930", "0000:c2:00.0": "2930"}
    assert Node(files, registers).commands({"max_read_request.14e4": 4096}) == []
    assert Node(files, registers | {"0000:c1:00.0": "2930"}).commands({"max_read_request.14e4": 4096}) != []


def test_a_script_that_did_not_do_it_fails_the_host(cpus: dict[str, list[str]]) -> None:
    node = Node(cpus)
    wrong = node.verify({"cpu_governor": "performance"}, {**cpus, boot.CONF: [HEADER, "cpu_governor=performance"]})
    assert wrong is not None and "cpu1" in wrong and "powersave" in wrong
    right = {**cpus, GOVERNOR.format(1): ["performance"], boot.CONF: [HEADER, "cpu_governor=performance"]}
    assert Node(cpus).verify({"cpu_governor": "performance"}, right) is None
    lost = {**right, boot.CONF: [HEADER]}
    assert "lacks cpu_governor=performance" in str(Node(cpus).verify({"cpu_governor": "performance"}, lost))


@pytest.mark.parametrize(
    "settings",
    [{"c2": "off"}, {"flux": "on"}, {"mtu": 9000}, {"mtu.ens1;reboot": 9000}, {"thp.x": "always"}, {"mtu.ens1": "9k"}],
)
def test_a_setting_that_the_script_does_not_know_is_refused_before_anything_is_read(settings: dict[str, Any]) -> None:
    with pytest.raises(OperationValueError, match="no such boot setting"):
        Node({}).commands(settings)
