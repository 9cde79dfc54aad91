"""How much may happen at once, and when nothing more may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shakedown.common.text import counted
from shakedown.desired.amounts import of
from shakedown.desired.models import Service
from shakedown.service.model import LOAD, RUNGS, Known

MENDING_S = 7 * 24 * 3600  # for so long a node on which nothing more was done counts as being mended
WINDOW_S = 24 * 3600  # in which attempts that failed are counted


def at_once(services: Iterable[Service], nodes: int) -> int:
    """How many of so many nodes may be out of service together: of hosts that say different things the smallest, and
    at least one."""
    return min((of(each.at_once, nodes, 1) for each in services), default=1)


def stop_at(services: Iterable[Service], nodes: int) -> int:
    """The nodes of which more must not fail: at least one, since a single one is what all this is for."""
    return min((of(each.stop_at, nodes, 1) for each in services), default=1)


def too_many_named(named: Iterable[str], allowed: int) -> str:
    """Why one run names too many for each of them to be bad; empty: it does not."""
    nodes = set(named)
    if len(nodes) <= allowed:
        return ""
    share = f"service.stop_at allows {allowed}: what they share is to be looked at first"
    return f"{counted(len(nodes), 'node')} are named at once, and {share}"


def too_many_failed(known: Mapping[str, Known], now: int, allowed: int) -> str:
    """Why no further node is tried: of too many nodes the last attempt of this day has failed."""
    failed = [node for node, its in known.items() if _last_outcome(its, now - WINDOW_S) == "failed"]
    if len(failed) <= allowed:
        return ""
    return f"attempts on {counted(len(failed), 'node')} have failed within a day, and service.stop_at allows {allowed}"


def _last_outcome(known: Known, since: int) -> str:
    """Of the last attempt that came to its end."""
    tried = (step for step in reversed(known.steps) if step.done == "ended" and step.rung in (*RUNGS, LOAD))
    return next((step.outcome for step in tried if step.outcome != "interrupted" and step.at >= since), "")
