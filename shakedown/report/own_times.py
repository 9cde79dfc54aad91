"""Nodes beside each other by the own time of their ranks, as rows of a table: the same on the page and in a ticket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shakedown.evidence.stragglers.model import Stragglers

HEADER = ("standing", "node", "ranks", "beside the median of its peers", "least and most of a window")


def rows(found: Stragglers) -> list[tuple[str, ...]]:
    """Return a row for each node in each role, the slowest first."""
    levels = {(times.node, times.role): times.level for times in found.slow}
    return [
        (
            levels.get((times.node, times.role), "ok"),
            times.node,
            times.role or "all",
            f"{times.slower:+.1%}",
            f"{times.least:+.0%} to {times.most:+.0%}",
        )
        for times in found.own
    ]
