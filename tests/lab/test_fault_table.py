"""Every fault of faults/table.toml: what is said, the exit code, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.faults.__main__ import DOCUMENT, strange
from tests.lab.faults.play import Fault, faults, play


@pytest.mark.long
@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_is_named_costs_the_pass_and_leaves_nothing(tmp_path: Path, fault: Fault) -> None:
    outcome = play(fault, tmp_path)
    assert [words for words in fault.says if words not in outcome.said] == [], outcome.said
    assert outcome.code in fault.codes, outcome.said
    assert strange(fault, outcome) == []


def test_the_document_holds_the_table_as_it_is() -> None:
    document = DOCUMENT.read_text()
    assert [fault.name for fault in faults() if f"| {fault.name} | {fault.how} |" not in document] == []
