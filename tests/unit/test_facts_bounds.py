"""Whatever a node answers, a fact of ours makes sense of it or fails that host alone."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

from shakedown import facts
from shakedown.facts.base import WORDS, Fact

MODULES = sorted(path.stem for path in Path(facts.__path__[0]).glob("*.py") if path.stem not in ("__init__", "base"))
CLASSES = [
    each
    for name in MODULES
    for each in vars(importlib.import_module(f"shakedown.facts.{name}")).values()
    if inspect.isclass(each) and issubclass(each, FactBase) and each.__module__ == f"shakedown.facts.{name}"
]
GARBAGE = (
    [""], ["", "", ""], [" "], ["="], ["|"], ["a|b"], ["a b"], ["a  b"], ["{}"], ["[1]"], ["null"], ["{" * 5000],
    ["-1 9 9"], ["9" * 5000], ["9" * 5000 + " 1"], ["\ufffd"], ["simd_count"], ["device|"], ["device|" * 9], ["! /x"],
    ["x" * 1_000_000], ["= x", "= y"],
    ["LoadState=loaded", ""], ["1 2 {", "= x"], ['1 2 {"size": [], "mtime": {}}', "= x"],
)  # fmt: skip


def test_every_fact_of_ours_is_one() -> None:
    assert len(CLASSES) > 12
    assert [each.__name__ for each in CLASSES if not issubclass(each, Fact)] == []


@pytest.mark.parametrize("fact", CLASSES, ids=lambda each: each.__name__)
def test_what_makes_no_sense_fails_one_host(fact: type[FactBase[object]]) -> None:
    for lines in GARBAGE:
        try:
            fact().process(list(lines))
        except FactProcessError as error:
            assert str(error).isprintable()
            assert len(str(error)) <= WORDS


@pytest.mark.parametrize(
    ("fact", "answer"),
    [
        ("dataset.Downloaded", '{"a": 5}'),
        ("dataset.Downloaded", '{"a": {"size": 1}}'),
        ("dataset.Downloaded", '["ab"]'),
        ("records.Records", '{"there": true, "problem": "", "files": [1]}'),
    ],
)
def test_an_answer_without_the_parts_that_operations_read_fails_one_host(fact: str, answer: str) -> None:
    """An error in an operation, where it reads them, would end the run for all hosts."""
    module, _, name = fact.partition(".")
    with pytest.raises(FactProcessError, match="no sense in"):
        getattr(importlib.import_module(f"shakedown.facts.{module}"), name)().process([answer])
