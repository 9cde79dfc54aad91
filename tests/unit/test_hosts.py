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


def test_groups_of_clustershell_are_not_asked_for():
    """What such a configuration says, and whether there is one, must not decide what an inventory names."""
    assert nodes("@local", "n[1-2]") == ["@local", "n1", "n2"]
