"""A check finds what the node's state shows, at the edges of its conditions: tests/data/cases/checks.jsonl."""

from __future__ import annotations

import pytest

from tests.cases import cases, wrong

CASES = cases("checks")


@pytest.mark.parametrize("call", CASES)
def test_answers_are_as_recorded(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(CASES[call], monkeypatch) is None
