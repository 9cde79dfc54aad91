from __future__ import annotations

import pytest

from shakedown.hosts import nodes


def test_ranges_in_order_without_repeats():
    assert nodes("node[01-03].rack7") == ["node01.rack7", "node02.rack7", "node03.rack7"]
    assert nodes("r[1-2]n[1-2]", "r1n1", "x") == ["r1n1", "r1n2", "r2n1", "r2n2", "x"]


@pytest.mark.parametrize("pattern", ["", "node[01-", "node[2-1]"])
def test_a_pattern_that_names_no_host_is_an_error(pattern):
    with pytest.raises(ValueError, match="nodes"):
        nodes(pattern)


def test_a_range_that_runs_down_is_refused_with_the_form_that_works():
    with pytest.raises(ValueError, match=r"^nodes\('node\[08-01\]'\): .*expected a range from low to high") as raised:
        nodes("node[08-01]")
    assert "node[01-08]" in str(raised.value)


def test_groups_of_clustershell_are_not_asked_for():
    """What such a configuration says, and whether there is one, must not decide what an inventory names."""
    assert nodes("@local", "n[1-2]") == ["@local", "n1", "n2"]
