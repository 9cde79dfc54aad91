"""The limits on repairs: how many nodes at once, and when repairs stop."""

from collections.abc import Iterable, Mapping

from shakedown.common.text import counted
from shakedown.desired.models import Service
from shakedown.desired.values import nodes_in
from shakedown.service.model import LOAD, REPAIRS, Known

MENDING_S = 7 * 24 * 3600  # for so long after its last step a node counts as under repair
WINDOW_S = 24 * 3600  # in which attempts that failed are counted


def at_once(services: Iterable[Service], nodes: int) -> int:
    """Return how many nodes may be out of service together: the smallest value of all hosts, and at least one."""
    return min((nodes_in(service.at_once, nodes, 1) for service in services), default=1)


def stop_at(services: Iterable[Service], nodes: int) -> int:
    """Return how many nodes may fail before repairs stop: at least one, since a single bad node is the usual case."""
    return min((nodes_in(service.stop_at, nodes, 1) for service in services), default=1)


def too_many_named(named: Iterable[str], allowed: int) -> str:
    """Return why a run names too many nodes at once; empty: it does not."""
    nodes = set(named)
    if len(nodes) <= allowed:
        return ""
    advice = f"service.stop_at allows {allowed}: look first at what the nodes share"
    return f"{counted(len(nodes), 'node')} are named at once, and {advice}"


def too_many_failed(known: Mapping[str, Known], now: int, allowed: int) -> str:
    """Return why no further repair begins: the last attempt of the day failed on too many nodes; empty: it may."""
    failed = [node for node, history in known.items() if _last_outcome(history, now - WINDOW_S) == "failed"]
    if len(failed) <= allowed:
        return ""
    return f"attempts on {counted(len(failed), 'node')} have failed within a day, and service.stop_at allows {allowed}"


def _last_outcome(known: Known, since: int) -> str:
    """Return the outcome of the last attempt that was not interrupted."""
    tried = (step for step in reversed(known.steps) if step.done == "ended" and step.rung in (*REPAIRS, LOAD))
    return next((step.outcome for step in tried if step.outcome != "interrupted" and step.at >= since), "")
