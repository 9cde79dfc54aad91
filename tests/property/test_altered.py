"""A signed run and a signed archive to which anything was done are not verified: 300; bench/altered.py does 10,000."""

from __future__ import annotations

from bench.altered import play


def test_no_altered_run_or_archive_is_accepted() -> None:
    result = play(altered=300, judged=2, seed=5)
    assert (result.altered, result.accepted, result.judged, result.alike) == (300, [], 2, 2)
