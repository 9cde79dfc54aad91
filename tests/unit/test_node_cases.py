"""What the probe reads of files, at the edges of its conditions: tests/data/cases/node.jsonl."""

from __future__ import annotations

import pytest

from tests.cases import cases, wrong

CASES = cases("node")


@pytest.mark.parametrize("call", CASES)
def test_a_reading_is_what_the_files_say(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(CASES[call], monkeypatch) is None
