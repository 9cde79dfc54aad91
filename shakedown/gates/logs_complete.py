"""Whether the logs are there, and whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.gates.model import Outcome, some
from shakedown.gates.node_log import NodeLog, line_count, logs_of
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def logs_complete(to_be_whole: Mapping[str, NodeLog | None], further: Sequence[str] = (), unlogged: int = 0) -> Outcome:
    """Every node's log is there, and is all that the job said on that node. `further`: what is wrong with the copies of
    other logs."""
    missing = [node for node, log in to_be_whole.items() if log is None]
    said = [f"{node}: {log.incomplete}" for node, log in to_be_whole.items() if log and log.incomplete]
    said += [f"no log of {some(missing)}"] if missing else []
    said += ["there are no logs"] if not to_be_whole else []
    said += [logs_of(to_be_whole, unlogged)] if unlogged else []
    said += further
    return Outcome(
        verdict=Verdict.UNKNOWN if said else Verdict.OK,
        wanted=len(to_be_whole) + unlogged,
        actual=sum(log is not None and not log.incomplete for log in to_be_whole.values()),
        unit="logs",
        evidence="; ".join(said) or f"{counted(line_count(to_be_whole), 'line')}, as long as on the nodes",
        remedy=advice("unlogged" if unlogged else "incomplete") if said else None,
    )
