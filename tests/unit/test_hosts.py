from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shakedown.hosts import folded, nodes, select


def test_ranges_in_order_without_repeats():
    assert nodes("node[01-03].rack7") == ["node01.rack7", "node02.rack7", "node03.rack7"]
    assert nodes("r[1-2]n[1-2]", "r1n1", "x") == ["r1n1", "r1n2", "r2n1", "r2n2", "x"]


@pytest.mark.parametrize(
    "pattern", ["", "node[01-", "node[2-1]", "n[1-99999999]", "n[1-999]x[1-999]", "m[1-99999999],n[99999999-1]"]
)
def test_a_pattern_that_names_no_host_or_too_many_is_an_error(pattern):
    with pytest.raises(ValueError, match="nodes"):
        nodes(pattern)


def test_a_range_that_runs_down_is_refused_with_the_form_that_works():
    with pytest.raises(ValueError, match=r"^nodes\('node\[08-01\]'\): .*expected a range from low to high") as raised:
        nodes("node[08-01]")
    assert "node[01-08]" in str(raised.value)


def test_groups_of_clustershell_are_not_asked_for():
    """What such a configuration says, and whether there is one, must not decide what an inventory names."""
    assert nodes("@local", "n[1-2]") == ["@local", "n1", "n2"]


NODES = nodes("node[01-64]")
RACKS = nodes("node[01-08].rack7", "node[05-12].rack8")
GROUPS = {"gpu": NODES[:3], "node01": NODES, "rack7": NODES[:32], "rack8": NODES[32:]}


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("node[01-24,30]", "node[01-24,30]"),
        ("node[10-24]*", "node[10-24]"),  # the number is a whole one, and neither 101 nor 210
        ("node03, node01,", "node[01,03]"),
        ("node*,!node[10-60]", "node[01-09,61-64]"),
        ("!node17", "node[01-16,18-64]"),
        ("gpu,!node02", "node[01,03]"),
        ("rack[7-8],!rack8", "node[01-32]"),
        ("rack[7,8],!node[01-60]", "node[61-64]"),
        ("all,!gpu", "node[04-64]"),
        ("node01", "node01"),
        ('"node02"', "node02"),
        ("*[01-03]", "node[01-03]"),
        ("node[1-2]*", "node[1-2]"),
    ],
)
def test_what_a_person_writes_for_hosts(words: str, chosen: str) -> None:
    there = nodes("node[1-64]", "node[101-103]", "node[01-03]") if "*[" in words or "]*" in words else NODES
    assert folded(select([words], there, GROUPS)) == chosen


def test_short_names_hold_where_they_are_unique() -> None:
    assert select(["node[01-02]", "node12"], RACKS) == ["node01.rack7", "node02.rack7", "node12.rack8"]
    assert select(["node05.*"], RACKS) == ["node05.rack7", "node05.rack8"]
    with pytest.raises(ValueError, match=r"^node05: node05.rack7, node05.rack8 begin so: give more of the name"):
        select(["node05"], RACKS)
    with pytest.raises(ValueError, match=r"^node\[05-08\]: node05.rack7.* begin so: .* or node\[05-08\]\.\* for"):
        select(["node[05-08]"], RACKS)
    with pytest.raises(ValueError, match="no such host"):
        select(["10"], ["10.0.0.1"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("node[60-70]", r"node\[65-70\]: no such host; the nearest: node64"),
        ("node[1-3]", r"node\[1-3\]: no such host; the nearest: node\[01-03\]"),
        ("node[1-9]*", r"node\[1-9\]\*: no such host; the nearest: node\[01-09\]"),
        ("node01,!nod17", r"nod17: no such host; the nearest: node17"),
        ("node1?", r"only \* is a wildcard"),
        ("node[ab]*", r"node\[ab\]\*: expected numbers from low to high in brackets"),
        ("node[24-10]", "expected numbers from low to high"),
        ("node[01-03", "expected numbers from low to high"),
        ("node01,!gpu", "leaves no host"),
        ("", "leaves no host"),
    ],
)
def test_a_part_that_chooses_no_host_is_named(words: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        select([words], NODES, {"gpu": NODES[:3]})


@pytest.mark.parametrize(
    ("word", "nearest"), [("node3", "node03.rack7"), ("NODE[1-2]", r"node\[01-02\].rack7"), ("nod17", "node17")]
)
def test_the_nearest_of_long_names_is_found_by_a_short_one(word: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"no such host; the nearest: {nearest}"):
        select([word], nodes("node[01-64].rack7"))
    with pytest.raises(ValueError, match=r"no such host \(there are"):
        select(["node127"], nodes("127.0.1.[1-64]"))


@given(st.sets(st.sampled_from([*NODES, *RACKS, "head", "@local", "a,b", "x y", "gpu[1]"]), min_size=1))
def test_what_output_writes_of_hosts_is_read_again(names: set[str]) -> None:
    there = [*NODES, *RACKS, "head", "@local", "a,b", "x y", "gpu[1]"]
    assert set(select([folded(names)], there)) == names
