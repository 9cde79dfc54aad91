"""What the ledger answers about rows at the edges of its conditions: tests/data/cases/ledger.jsonl."""

from __future__ import annotations

import pytest

from tests.cases import cases, wrong

CASES = cases("ledger")


@pytest.mark.parametrize("call", CASES)
def test_answers_are_as_recorded(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(CASES[call], monkeypatch) is None
