"""Merging kernel parameters: what is added makes the line obeyed, and what stood there stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shakedown.checks.tuning import missing

KEYS = st.sampled_from(["iommu", "pci", "amd_iommu", "quiet", "console"])
VALUES = st.sampled_from(["on", "off", "pt", "bfsort", "realloc=off", "a,b"])
PARAMETERS = st.one_of(KEYS, st.builds("{}={}".format, KEYS, VALUES))
LINES = st.lists(PARAMETERS, max_size=8)
# Wanting two values of one parameter at once can be met by pci only.
WANTED = st.lists(PARAMETERS, max_size=5, unique_by=lambda each: each if each[:3] == "pci" else each.partition("=")[0])


@given(WANTED, LINES)
def test_a_line_with_what_was_missing_lacks_nothing(wanted: list[str], line: list[str]) -> None:
    added = missing(wanted, line)
    assert missing(wanted, [*line, *added]) == []
    assert set(added) <= set(wanted)


@given(WANTED)
def test_an_empty_line_lacks_everything(wanted: list[str]) -> None:
    assert missing(wanted, []) == wanted


@given(WANTED, LINES)
def test_nothing_is_added_twice(wanted: list[str], line: list[str]) -> None:
    assert missing(wanted, [*line, *wanted]) == []
