"""Theil and Sen's slope against scipy's."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import theilslopes

from shakedown.smoke.slope import theil_sen

POINTS = st.lists(
    st.tuples(st.integers(0, 40).map(float), st.sampled_from([0.0, 1.0, 2.5]) | st.floats(-1e9, 1e9)), min_size=2
) | st.integers(2, 60).flatmap(lambda n: st.lists(st.floats(-1e6, 1e6), min_size=n, max_size=n)).map(
    lambda values: list(enumerate(values))
)


@given(POINTS, st.sampled_from([0.9, 0.95, 0.99]))
@settings(deadline=None)
def test_the_figures_are_scipy_s(points, confidence):
    x, y = ([point[side] for point in points] for side in (0, 1))
    found = theil_sen(x, y, confidence)
    if len(set(x)) == 1:
        assert all(map(math.isnan, found))
        return
    with warnings.catch_warnings(action="ignore"):
        expected = theilslopes(y, x, alpha=confidence)
    assert tuple(found) == pytest.approx(tuple(map(float, expected)), rel=1e-9, abs=1e-9, nan_ok=True)
