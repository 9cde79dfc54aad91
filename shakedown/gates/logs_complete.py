"""Whether the logs are there, and whole."""

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.gates.model import Outcome, some
from shakedown.gates.node_log import line_count, logs_of
from shakedown.gates.observed import LogCopies
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def logs_complete(copies: LogCopies) -> Outcome:
    """Every node's log is there, and is all that the job said on that node."""
    logs = copies.by_node
    missing = [node for node, log in logs.items() if log is None]
    faults = [f"{node}: {log.incomplete}" for node, log in logs.items() if log and log.incomplete]
    faults += [f"no log of {some(missing)}"] if missing else []
    faults += ["there are no logs"] if not logs else []
    faults += [logs_of(logs, copies.unlogged)] if copies.unlogged else []
    faults += copies.faults
    return Outcome(
        verdict=Verdict.UNKNOWN if faults else Verdict.OK,
        wanted=len(logs) + copies.unlogged,
        actual=sum(log is not None and not log.incomplete for log in logs.values()),
        unit="logs",
        evidence="; ".join(faults) or f"{counted(line_count(logs), 'line')}, as long as on the nodes",
        remedy=advice("unlogged" if copies.unlogged else "incomplete") if faults else None,
    )
