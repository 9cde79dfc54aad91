"""A training over four nodes that stands still: every rank leaves its evidence, and no third one is blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.hangs import ODD, WAYS, Played, play


def blames_nobody_else(played: Played) -> None:
    """Whatever it could make out, and on however busy a machine."""
    assert not played.wrong, played.found
    assert played.missing == (), played.result.nodes
    assert played.seconds < 20


def test_two_of_four_nodes_that_no_longer_hear_each_other_are_told_and_no_third(
    rack: RackMaker, tmp_path: Path
) -> None:
    lab = rack(4)
    for turn in range(2):  # a connection that happened to be idle has nothing unacknowledged
        played = play(lab, tmp_path / f"link{turn}", "link")
        blames_nobody_else(played)
        if played.right:
            break
    assert (played.found.confidence, played.found.among) == ("undecided", ("node2", "node3")), played.found
    assert "is not acknowledged between node2 and node3" in played.found.evidence[0].text


@pytest.mark.long
def test_who_goes_its_own_way_in_a_training_of_four_is_named(rack: RackMaker, tmp_path: Path) -> None:
    lab = rack(4)
    every = [play(lab, tmp_path / way, way) for way in WAYS[:-1]]
    for played in every:
        blames_nobody_else(played)
        assert played.found.origin in ((ODD,), ()), (played.way, played.found)
    assert sum(played.right for played in every) >= len(every) - 1, [(each.way, each.found) for each in every]
