"""One reading of several devices: which verdict, and what is shown of them."""

from __future__ import annotations

from shakedown.checks.compare import common, compare_several, missing, nothing_there, read_again
from shakedown.state.findings import Remedy, Verdict
from shakedown.state.node import Unreadable

GONE = Unreadable(unreadable="missing", detail="/x")
REMEDY = Remedy(text="look")


def test_all_right_is_their_common_value_without_words_or_remedy() -> None:
    finding = compare_several(1, {"a": 1, "b": 1}, (1).__eq__, unit="lanes", remedy=REMEDY)
    assert (finding.verdict, finding.actual, finding.evidence, finding.remedy) == (Verdict.OK, 1, "", None)
    assert finding.unit == "lanes" and finding.wanted == 1


def test_the_wrong_ones_are_named_and_what_was_not_read_as_well() -> None:
    finding = compare_several(1, {"a": 1, "b": 2, "c": GONE}, (1).__eq__, evidence="by hand", remedy=REMEDY)
    assert (finding.verdict, finding.actual, finding.remedy) == (Verdict.FAIL, {"b": 2}, REMEDY)
    assert finding.evidence == "by hand; c: unreadable (missing: /x)"
    drift = compare_several(1, {"b": 2}, (1).__eq__, otherwise=Verdict.DRIFT)
    assert (drift.verdict, drift.evidence) == (Verdict.DRIFT, "")


def test_one_that_was_not_read_leaves_the_rest_unknown() -> None:
    finding = compare_several(1, {"a": 1, "c": GONE}, (1).__eq__, remedy=REMEDY)
    assert (finding.verdict, finding.actual, finding.remedy) == (Verdict.UNKNOWN, None, read_again(GONE))


def test_without_any_device_nothing_is_known() -> None:
    finding = compare_several(1, {}, (1).__eq__)
    assert (finding.verdict, finding.actual, finding.evidence) == (Verdict.UNKNOWN, None, "there is no such device")


def test_nothing_there_is_unknown_where_something_is_wanted_and_right_where_nothing_is() -> None:
    wanted = nothing_there(1, count=8, why="see y", unit="lanes")
    assert (wanted.verdict, wanted.actual, wanted.unit, wanted.evidence) == (Verdict.UNKNOWN, None, "lanes", "see y")
    none = nothing_there(1, count=0, why="see y", unit="lanes")
    assert (none.verdict, none.actual, none.unit) == (Verdict.OK, "none wanted", None)
    assert none.evidence == "none is wanted: count is 0" and none.wanted == 1


def test_common_and_missing() -> None:
    assert common({"a": 1, "b": 1}) == 1 and common({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert missing(GONE) and not missing(Unreadable(unreadable="failed")) and not missing("missing")
