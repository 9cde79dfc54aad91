"""Small readings that larger tests pass by: of a node, of its agent, of a log's layout."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from shakedown.catalogue.lines import records
from shakedown.facts import agent
from shakedown.logs.layout import layout
from shakedown.node.pci import DEVICES, registers
from shakedown.node.system import service_manager
from shakedown.node.tree import Tree


@pytest.mark.parametrize("systemd", [True, False])
def test_systemd_manages_the_services_where_it_runs(tmp_path: Path, systemd: bool) -> None:
    if systemd:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert service_manager(Tree(str(tmp_path))) == ("systemd" if systemd else "other")


def test_a_function_without_extended_configuration_space_has_no_extended_register(tmp_path: Path) -> None:
    function = tmp_path / DEVICES.strip("/") / "0000:01:00.0"
    function.mkdir(parents=True)
    (function / "config").write_bytes(bytes(256))
    assert registers(Tree(str(tmp_path)), "ECAP_ACS+6.w") == {}


@pytest.mark.parametrize("answered", [True, False])
def test_an_agent_that_does_not_answer_is_an_error_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    monkeypatch.setattr(agent, "pop_global_arguments", lambda state, host, arguments: ({}, []))
    monkeypatch.setattr(agent, "parse", lambda lines: {"lines": lines})
    output = SimpleNamespace(stdout='{"a": 1}', stderr="" if answered else "no such file", stdout_lines=['{"a": 1}'])
    host: Any = SimpleNamespace(state=None, run_shell_command=lambda command, **arguments: (answered, output))
    if answered:
        assert agent.read_last(host) == {"lines": ['{"a": 1}']}
    else:
        with pytest.raises(FactProcessError, match="no such file"):
            agent.read_last(host)


def test_records_of_json_that_follow_each_other_in_one_line_are_two() -> None:
    text = '{\n  "MESSAGE": "first",\n  "PRIORITY": "3"\n},{\n  "MESSAGE": "second",\n  "PRIORITY": "4"\n}\n'
    assert [(record.message, record.priority) for record in records(text.splitlines())] == [("first", 3), ("second", 4)]


def test_the_layout_of_a_line_is_learned_where_every_part_is_a_field() -> None:
    line = " lm loss: 1.0E+01 | grad norm: 2.500 | "
    learned = layout(line + "\n")
    assert learned is not None
    assert learned.values(line.replace("2.500", "3.5") + "\n") == {"lm_loss": 10.0, "grad_norm": 3.5}
    assert layout(" lm loss: 1.0E+01 | no field at all | \n") is None
