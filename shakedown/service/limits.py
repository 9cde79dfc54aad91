"""How much may happen at once, and when nothing more may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor

from shakedown.desired.models import Service
from shakedown.service.model import RUNGS, Known
from shakedown.text import counted

WINDOW_S = 24 * 3600  # in which attempts that failed are counted
_LEAST = 2  # nodes, below which nothing is told from chance


def at_once(services: Iterable[Service], nodes: int) -> int:
    """How many of so many nodes may be out of service together: of hosts that say different things the smallest, and
    at least one."""
    found = [
        floor(nodes * int(each.at_once.rstrip("%")) / 100) if isinstance(each.at_once, str) else each.at_once
        for each in services
    ]
    return max(min(found, default=1), 1)


def share_of(services: Iterable[Service], nodes: int) -> int:
    """The nodes of which more must not fail: at least one, since a single one is what all this is for."""
    return max(floor(min((each.stop_share for each in services), default=0.0) * nodes), _LEAST - 1)


def too_many_named(named: Iterable[str], allowed: int) -> str:
    """Why one run names too many for each of them to be bad; empty: it does not."""
    nodes = set(named)
    if len(nodes) <= allowed:
        return ""
    return f"{counted(len(nodes), 'node')} are named at once, and service.stop_share allows {allowed}: what they share is to be looked at first"


def too_many_failed(known: Mapping[str, Known], now: int, allowed: int) -> str:
    """Why no further node is tried: too many attempts of the last day have failed."""
    failed = {
        node
        for node, its in known.items()
        for step in its.steps
        if step.done == "ended"
        and step.rung in (*RUNGS, "load")
        and step.outcome == "failed"
        and now - step.at <= WINDOW_S
    }
    if len(failed) <= allowed:
        return ""
    return (
        f"attempts on {counted(len(failed), 'node')} have failed within a day, and service.stop_share allows {allowed}"
    )
