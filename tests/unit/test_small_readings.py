"""Small readings that larger tests pass by: of a node, and of its agent."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from shakedown.catalogue.lines import records
from shakedown.evidence.diagnosis.signs import of_another
from shakedown.facts import records as node_records
from shakedown.isolation.causes import Shape
from shakedown.node import data, interfaces, system
from shakedown.node.kernel_log import kernel_messages
from shakedown.node.pci import DEVICES, registers
from shakedown.node.safe_files import walk
from shakedown.node.tree import Tree, Unreadable
from shakedown.operations import atomic
from shakedown.runs.isolation import Problem


@pytest.mark.parametrize("systemd", [True, False])
def test_systemd_manages_the_services_where_it_runs(tmp_path: Path, systemd: bool) -> None:
    if systemd:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert system.read(Tree(str(tmp_path)))["service_manager"] == ("systemd" if systemd else "other")


def test_a_function_without_extended_configuration_space_has_no_extended_register(tmp_path: Path) -> None:
    function = tmp_path / DEVICES.strip("/") / "0000:01:00.0"
    function.mkdir(parents=True)
    (function / "config").write_bytes(bytes(256))
    assert registers(Tree(str(tmp_path)), "ECAP_ACS+6.w") == {}


@pytest.mark.parametrize("answered", [True, False])
def test_an_agent_that_does_not_answer_is_an_error_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    monkeypatch.setattr(node_records, "connector_arguments", lambda host: {})
    monkeypatch.setattr(node_records, "parse", lambda lines: {"lines": lines})
    output = SimpleNamespace(stdout='{"a": 1}', stderr="" if answered else "no such file", stdout_lines=['{"a": 1}'])
    host: Any = SimpleNamespace(state=None, run_shell_command=lambda command, **arguments: (answered, output))
    if answered:
        assert node_records.read_verdict(host) == {"lines": ['{"a": 1}']}
    else:
        with pytest.raises(FactProcessError, match="no such file"):
            node_records.read_verdict(host)


def test_records_of_json_that_follow_each_other_in_one_line_are_two() -> None:
    text = '{\n  "MESSAGE": "first",\n  "PRIORITY": "3"\n},{\n  "MESSAGE": "second",\n  "PRIORITY": "4"\n}\n'
    assert [(record.message, record.priority) for record in records(text.splitlines())] == [("first", 3), ("second", 4)]


def test_a_record_that_is_cut_by_the_next_keeps_its_own_lines_numbers() -> None:
    text = '{\n"MESSAGE": "cut",\n{\n"MESSAGE": "whole"\n}\n'
    assert [(found.number, found.message) for found in records(text.splitlines())] == [
        (1, "{"),
        (2, '"MESSAGE": "cut",'),
        (5, "whole"),
    ]


def test_a_launchers_line_is_of_another_node_unless_it_names_its_own() -> None:
    names = {"node1": "node1", "node2": "node2"}
    line = "srun: error: node2: task 3: Killed"
    assert of_another(line, names, "node1") and not of_another(line, names, "node2")


def test_a_file_keeps_its_record_until_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "records", lambda make=False: walk(str(tmp_path / "state"), 0o700 if make else None))
    file = tmp_path / "set.bin"
    file.write_bytes(b"data")
    folder = walk(str(tmp_path))
    assert data.recorded(folder, "set.bin") is None
    data.record(folder, "set.bin", file.stat(), "00" * 32, "https://example.org/set.bin")
    kept = data.recorded(folder, "set.bin")
    assert kept is not None and kept["sha256"] == "00" * 32
    file.write_bytes(b"other data")
    assert data.recorded(folder, "set.bin") is None and data.recorded(folder, "absent.bin") is None


def test_the_kernels_log_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    text = "".join(f"6,{number},100,-;a line of the log\n" for number in range(2000))
    (tmp_path / "dev/kmsg").write_text(text)
    assert kernel_messages(Tree(str(tmp_path))) == text


@pytest.mark.parametrize(
    ("stderr", "message"), [("no space left", "no space left"), ("", "the script printed nothing")]
)
def test_a_script_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, stderr: str, message: str) -> None:
    reasons: list[str] = []
    output = SimpleNamespace(stderr_lines=[stderr] if stderr else [])
    monkeypatch.setattr(atomic, "run_script", lambda *arguments, **options: (False, output))
    monkeypatch.setattr(atomic, "refused", lambda state, host, reason: bool(reasons.append(reason)))
    anything: Any = None
    assert atomic.on_node(SimpleNamespace(print_input=False), anything, {"do": "remove"}) is False
    assert reasons == [message]


def test_the_uplink_of_a_rack_with_one_node_is_no_cause_of_its_own() -> None:
    racks = {"a1": "a", "a2": "a", "b1": "b", "c1": "c", "c2": "c"}
    shape = Shape.from_problem(Problem(nodes=list(racks), racks=racks))
    assert dict(zip(shape.racks, shape.uplinks, strict=True)) == {"a": 1.0, "b": 0.0, "c": 1.0}
    two = Shape.from_problem(Problem(nodes=["a1", "a2", "c1", "c2"], racks=racks))
    assert list(two.uplinks) == [0.0, 0.0]


@pytest.mark.parametrize("line", ['{"msg": "loss 2.5", "level": "info"}', '{"pri": 3, "msg": null}', '{"pri": 3}'])
def test_a_programs_own_json_is_no_record_of_the_kernel(line: str) -> None:
    (record,) = records([line])
    assert record.message == line and record.priority is None


def test_the_statistics_of_an_interface_have_the_drivers_names(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        struct.pack("=IIQI", 0, 0, 1, 3),
        bytes(12) + b"".join(name.ljust(32, b"\0") for name in (b"rx_errors", b" tx_packets", b"x" * 28 + b"_err")),
        struct.pack("=II3Q", 0, 0, 7, 8, 9),
    ]
    monkeypatch.setattr(interfaces, "_ethtool", lambda *_: answers.pop(0))
    assert interfaces.statistics("ens1") == {"rx_errors": 7, "x" * 28 + "_err": 9}


@pytest.mark.parametrize(("present", "count"), [(0, 5), (1, 0), (0, 0)])
def test_an_interface_without_statistics_says_so(monkeypatch: pytest.MonkeyPatch, present: int, count: int) -> None:
    def call(handle: Any, interface: str, command: bytes) -> bytes:
        return struct.pack("=IIQI", 0, 0, present, count)

    monkeypatch.setattr(interfaces, "_ethtool", call)
    with pytest.raises(Unreadable, match="no statistics"):
        interfaces.statistics("ens1")
