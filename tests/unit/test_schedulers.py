"""Schedulers are folders, found by their names."""

from __future__ import annotations

import pytest

from shakedown import hosts
from shakedown.schedulers import registry
from shakedown.schedulers.interface import Scheduler


def test_each_folder_is_a_scheduler() -> None:
    assert registry.names() == ("kubernetes", "slurm")
    for name in registry.names():
        kind = registry.find(name)
        assert issubclass(kind, Scheduler) and kind.title == name.capitalize() and "node" in kind.of_node


def test_a_name_without_a_folder_is_refused_with_those_that_there_are() -> None:
    for refused in (registry.find, hosts.scheduled):
        with pytest.raises(ValueError, match="'lsf': no such scheduler; there are kubernetes, slurm"):
            refused("lsf")
