"""Virtual environments: what makes an installation another one, and what is proved by import."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyinfra.api.exceptions import OperationValueError

from shakedown.facts.venv import Environment, imports
from shakedown.operations.venv import request_digest


def test_every_part_of_what_is_asked_for_counts() -> None:
    steps = [{"packages": ["torch>=2.6"], "index_url": "https://example.org/rocm6.3"}]
    digest = request_digest(steps, {"/r.txt": "aa"}, "/opt/m", "python3")
    others = [
        request_digest([{**steps[0], "index_url": "https://example.org/cpu"}], {"/r.txt": "aa"}, "/opt/m", "python3"),
        request_digest(steps, {"/r.txt": "bb"}, "/opt/m", "python3"),
        request_digest(steps, {"/r.txt": "aa"}, None, "python3"),
        request_digest(steps, {"/r.txt": "aa"}, "/opt/m", "python3.12"),
    ]
    assert digest == request_digest([dict(steps[0])], {"/r.txt": "aa"}, "/opt/m", "python3")
    assert len({digest, *others}) == 5


def test_a_torch_for_other_gpus_does_not_pass() -> None:
    """The torch of these tests is the CPU's."""
    command = Environment().command(path=sys.prefix, modules=["json"], rocm=True)
    said = Environment().process(subprocess.check_output(["sh", "-c", command], text=True).splitlines())
    assert said["kind"] == "venv" and "is not built for ROCm" in said["import_error"]


def test_only_names_of_modules_become_a_program() -> None:
    with pytest.raises(OperationValueError):
        imports(["os; reboot"])
