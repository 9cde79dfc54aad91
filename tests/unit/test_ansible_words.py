"""Ansible's words in an inventory: each is answered with what stands here in its place, and that is there."""

from __future__ import annotations

import re
from typing import Any, get_args

import click
import pytest

from shakedown.cli import main
from shakedown.desired.models import DesiredState
from shakedown.desired.resolve import KEYS
from shakedown.runner.pyinfra import ansible
from shakedown.runner.pyinfra.inventory_file import _expected, known_keys


@pytest.mark.parametrize("word", ansible.WORDS)
def test_what_stands_in_the_place_of_a_word_of_ansible_is_there(word: str) -> None:
    expected = _expected(word)
    assert expected.endswith(f"; {word!r} is Ansible's word") or word in KEYS
    keys = re.findall(r"'(\w+)'", ansible.WORDS[word].replace("pyinfra's key", ""))
    assert set(keys) <= known_keys().keys()
    for section, key in re.findall(r"\b(\w+)\.(\w+)\b", ansible.WORDS[word].replace("GROUP.py", "")):
        kind: Any = DesiredState.model_fields[section].annotation
        assert key in next(iter(get_args(kind)), kind).model_fields, f"{section}.{key}"
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    there = {name for command in commands if command for option in command.params for name in option.opts}
    assert set(re.findall(r"--[a-z]+", ansible.WORDS[word])) <= there


@pytest.mark.parametrize(
    ("key", "meant"),
    [("port", "ssh_port"), ("user", "ssh_user"), ("key", "ssh_key"), ("password", "ssh_password"), ("sudo", "_sudo"),
     ("hostname", "ssh_hostname"), ("sudo_user", "_sudo_user"), ("Port", "ssh_port"), ("GPU", "gpu")],
)  # fmt: skip
def test_a_key_without_its_first_part_is_answered_with_the_whole(key: str, meant: str) -> None:
    assert f"key {meant!r}" in _expected(key)
